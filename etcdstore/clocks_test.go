package etcdstore_test

import (
	"strings"
	"testing"
	"time"

	"croft"
	"croft/access"
	"croft/actions"
	"croft/etcdstore/etcdtest"
	"croft/usage"
)

// A server whose clock is ahead takes everything for old. The agents of living hosts tell what time it is elsewhere.
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
