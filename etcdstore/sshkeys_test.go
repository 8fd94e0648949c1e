package etcdstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/schedule"
)

func TestKeysAreAProjectsOwn(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	add := func(project croft.Project, name string) error {
		return store.SSHKeys.AddKey(t.Context(), schedule.Key{Project: project, Name: name,
			Line:  "ssh-ed25519 AAAA " + name,
			Added: at})
	}
	for _, err := range []error{add("lab", "b"), add("lab", "a"), add("lab-2", "a")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := add("lab", "a"); !errors.Is(err, croft.Conflict) {
		t.Errorf("a name for the second time: %v", err)
	}
	got, err := store.SSHKeys.ListKeys(t.Context(), "lab")
	want := []schedule.Key{{Project: "lab", Name: "a", Line: "ssh-ed25519 AAAA a", Added: at},
		{Project: "lab", Name: "b", Line: "ssh-ed25519 AAAA b", Added: at}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if lines, err := schedule.FindKeys(t.Context(), store.SSHKeys.ListKeys, "lab", []string{"b", "a"}); err != nil ||
		cmp.Diff([]string{want[1].Line, want[0].Line}, lines) != "" {
		t.Errorf("found %q, %v", lines, err)
	}
	if _, err := schedule.FindKeys(t.Context(), store.SSHKeys.ListKeys, "lab", []string{"aa"}); !errors.Is(err,
		croft.NotFound) {
		t.Errorf("a key that is not there: %v", err)
	}
	if err := store.SSHKeys.RemoveKey(t.Context(), "lab", "a"); err != nil {
		t.Error(err)
	}
	if err := store.SSHKeys.RemoveKey(t.Context(), "lab", "a"); !errors.Is(err, croft.NotFound) {
		t.Errorf("a removal for the second time: %v", err)
	}
	if other, err := store.SSHKeys.ListKeys(t.Context(), "lab-2"); len(other) != 1 || err != nil {
		t.Errorf("another project has %v, %v", other, err)
	}
}
