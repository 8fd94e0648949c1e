package etcdstore_test

import (
	"strings"
	"testing"
	"time"

	"croft"
	"croft/control/actions"
	"croft/etcdstore/etcdtest"
	"croft/tenant/access"
	"croft/tenant/usage"
)

// A server whose clock is ahead considers all records old. The agents of living hosts report their times.
func TestNothingIsRemovedByAClockThatDiffersFromThatOfAHost(t *testing.T) {
	t.Parallel()
	f := newFixture(t) // with a living host
	batch := actions.NewBatch(actions.Entry{Time: time.Now(), Operation: "createInstance", User: "anna",
		Project: f.inst.Project, Result: actions.Done})
	etcdtest.Must(0, f.Actions.Append(t.Context(), batch))(t)
	ahead := time.Now().Add(max(actions.Kept, usage.Kept) + time.Hour)
	for what, err := range map[string]error{"action log": f.Actions.Trim(t.Context(), ahead),
		"usage": f.Usage.Trim(t.Context(), ahead)} {
		if croft.KindOf(err) != croft.Unavailable || !strings.Contains(err.Error(), string(f.host)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	entries := func() int {
		page, err := f.Actions.List(t.Context(), access.Everything(), actions.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Entries)
	}
	if n := entries(); n != 1 {
		t.Errorf("%d entries are left", n)
	}
	for what, err := range map[string]error{"action log": f.Actions.Trim(t.Context(), time.Now()),
		"usage": f.Usage.Trim(t.Context(), time.Now())} {
		if err != nil {
			t.Errorf("%s, with clocks that agree: %v", what, err)
		}
	}
}

// A caretaker expires nothing while its clock differs from a living host's.
func TestACaretakerIsToldThatClocksDiffer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if e := etcdtest.Must(f.Turn.Evidence(t.Context()))(t); e.Clocks != nil {
		t.Errorf("with clocks that agree: %v", e.Clocks)
	}
	past := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	if err := etcdtest.Put(t.Context(), f.server.Endpoint(), f.Partition(), "seen/"+string(f.host), past); err != nil {
		t.Fatal(err)
	}
	e := etcdtest.Must(f.Turn.Evidence(t.Context()))(t)
	if e.Clocks == nil || !strings.Contains(e.Clocks.Error(), string(f.host)) {
		t.Errorf("with a host whose clock is an hour behind: %v", e.Clocks)
	}
}
