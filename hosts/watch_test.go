package hosts_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/hosts"
)

// elsewhere recreates instances on host b while that has room.
type elsewhere struct {
	*world
	room bool
}

func (e *elsewhere) Recreate(_ context.Context, _ croft.Project, id string) (croft.Instance, error) {
	inst := croft.Instance{ID: croft.InstanceID(id), Host: "b"}
	if err := e.step("recreate", id); err != nil || e.room {
		return inst, err
	}
	return inst, croft.Errorf(croft.NoCapacity, "no room")
}

func TestAWatcherFinishesWhatAFenceBegan(t *testing.T) {
	lost := func(id croft.InstanceID, policy croft.Restart) croft.Status {
		return croft.Status{Instance: croft.Instance{ID: id, State: croft.StateLost, Lost: &croft.Loss{Host: "a"},
			Spec: croft.Spec{GuestSettings: croft.GuestSettings{Restart: policy}}}}
	}
	w := &world{instances: []croft.Status{
		{Instance: croft.Instance{ID: "web", Host: "a", State: croft.StateScheduled}},
		{Instance: croft.Instance{ID: "held", Host: "a", State: croft.StateHeld}},
		{Instance: croft.Instance{ID: "db", Host: "b", State: croft.StateScheduled}},
		lost("moves", croft.RestartElsewhere), lost("stays", croft.RestartAlways)}}
	w.known = []croft.Host{{ID: "a", Name: "one", Death: &croft.Death{Declared: time.Unix(1, 0)}},
		{ID: "b", Name: "two", Alive: true}, {ID: "c", Name: "three"}}
	var log bytes.Buffer
	e := &elsewhere{world: w}
	f := w.fleet(t)
	f.Recreator = e
	watcher := &hosts.Watcher{Fleet: f, Log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 {
		if err := watcher.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, once := range []string{"a host is silent; its guests may still run", "cannot be recreated yet"} {
		if n := strings.Count(log.String(), once); n != 1 {
			t.Errorf("%q is logged %d times:\n%s", once, n, log.String())
		}
	}
	if strings.Contains(log.String(), "host=a") {
		t.Errorf("a host that is known to be dead counts as silent:\n%s", log.String())
	}
	w.steps, e.room, w.known[2].Alive = nil, true, true
	if err := watcher.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(w.steps, func(s string) bool {
		word, _, _ := strings.Cut(s, " ")
		return !slices.Contains([]string{"lose", "order", "bury", "recreate"}, word)
	})
	if want := []string{"lose web left on a", "recreate moves"}; !slices.Equal(got, want) {
		t.Errorf("done: %q, want %q", got, want)
	}
	for _, once := range []string{"a host has returned", "lost instance recreated"} {
		if !strings.Contains(log.String(), once) {
			t.Errorf("%q is not logged:\n%s", once, log.String())
		}
	}
}
