package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNamesAreDueOnceTheyAreOldAndIdle(t *testing.T) {
	born := time.Unix(1_000_000, 0)
	for name, test := range map[string]struct {
		others     int           // number of other custom symbols
		noted, now time.Duration // time since its creation
		users      int           // when it is noted as idle
		usersNow   int
		rewritten  bool // between the two
		due        bool
	}{
		"after a day":                    {0, 0, tidiedAfter, 0, 0, false, true},
		"within the day":                 {0, 0, tidiedAfter - time.Second, 0, 0, false, false},
		"when idle for long enough":      {0, tidiedAfter, tidiedAfter + idleFor, 0, 0, false, true},
		"not before":                     {0, tidiedAfter, tidiedAfter + idleFor - time.Second, 0, 0, false, false},
		"not while it is used":           {0, 0, tidiedAfter, 0, 1, false, false},
		"not when it was used":           {0, 0, tidiedAfter, 1, 0, false, false},
		"not when it was used meanwhile": {0, 0, tidiedAfter, 0, 0, true, false},
		"sooner if there are many":       {maxCustom / 2, 0, soonTidied, 0, 0, false, true},
		"but not with one less":          {maxCustom/2 - 1, 0, soonTidied, 0, 0, false, false},
		"nor too soon if there are many": {maxCustom / 2, -idleFor, soonTidied - time.Second, 0, 0, false, false},
		"nor if just used if there are many": {maxCustom / 2, soonTidied, soonTidied + idleFor - time.Second, 0, 0,
			false, false},
	} {
		t.Run(name, func(t *testing.T) {
			all := newSymbols([]string{"STANDARD"}, born)
			for n := range test.others {
				all.put(fmt.Sprint("CUSTOM_", n), born.Add(100*24*time.Hour).Unix(), 5, 5)
			}
			all.put("CUSTOM_X", born.Unix(), 5, 5)
			d := &tidier{idle: map[string]idle{}}
			x := all.Get("CUSTOM_X")
			x.Users = test.users
			if due := d.due(all, born.Add(test.noted)); len(due) > 0 || len(d.idle) != test.others+1-test.users {
				t.Errorf("at first %q are due and %d noted", due, len(d.idle))
			}
			if x.Users = test.usersNow; test.rewritten {
				x.modified++
			}
			due := d.due(all, born.Add(test.now))
			if slices.Equal(due, []string{"CUSTOM_X"}) != test.due || len(due) > 1 {
				t.Errorf("%q are due", due)
			}
			if len(d.idle) != test.others+1-test.usersNow {
				t.Errorf("%d are noted", len(d.idle))
			}
			if all.remove("CUSTOM_X"); slices.Contains(d.due(all, born.Add(test.now)), "CUSTOM_X") ||
				len(d.idle) != test.others {
				t.Errorf("%d are noted after its end", len(d.idle))
			}
		})
	}
}

func TestUnusedNamesAreRemoved(t *testing.T) {
	ensure := func(names ...string) func(*Tx) error {
		return func(t *Tx) error {
			for _, name := range names {
				if _, _, err := t.EnsureTrait(name); err != nil {
					return err
				}
			}
			return nil
		}
	}
	left := func(s *liveStore) (names []string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, symbols := range []*Symbols{s.classes, s.traits} {
			for x := range symbols.All() {
				if !x.Standard {
					names = append(names, x.Name)
				}
			}
		}
		return names
	}
	running(t, func(s *liveStore) {
		var many []string
		for n := range 2*tidyBatch + 1 {
			many = append(many, fmt.Sprint("CUSTOM_", n))
		}
		s.other(create("a", ""), ensure(many...), ensure("CUSTOM_USED"), createClass("CUSTOM_CLASS"),
			createClass("CUSTOM_HELD"), has("a", spec("CUSTOM_HELD", 4)), trait("a", 1, "CUSTOM_USED"))
	}, func(t *testing.T, _ *Ledger, s *liveStore, log func() string) {
		time.Sleep(15 * time.Minute) // other creates them in 1970
		if text := log(); !slices.Equal(left(s), []string{"CUSTOM_HELD", "CUSTOM_USED"}) ||
			strings.Count(text, "were removed") != 2 || !strings.Contains(text, "of=traits count=65") ||
			!strings.Contains(text, `of="resource classes" count=1`) {
			t.Errorf("left: %q, logged %s", left(s), text)
		}
	})
	// Other ledgers remove one name and use another one while the ledger removes both.
	running(t, func(s *liveStore) {
		s.other(create("a", ""), ensure("CUSTOM_FREE", "CUSTOM_GONE", "CUSTOM_USED"))
	}, func(t *testing.T, _ *Ledger, s *liveStore, log func() string) {
		removals := 0
		s.set(func() {
			s.before = func(txn Txn) error {
				if len(txn.Then) == 0 {
					return nil
				}
				if removals++; removals == 1 {
					s.other(func(t *Tx) error { return t.DeleteTrait("CUSTOM_GONE") }, trait("a", 0, "CUSTOM_USED"),
						trait("a", 1))
				}
				return nil
			}
		})
		time.Sleep(15 * time.Minute) // other creates them in 1970
		if log(); !slices.Equal(left(s), []string{"CUSTOM_USED"}) || removals != 2 {
			t.Errorf("left: %q after %d removals", left(s), removals)
		}
	})
	// A name whose removal is not confirmed is removed in the next turn.
	running(t, func(s *liveStore) { s.other(ensure("CUSTOM_FREE")) }, func(t *testing.T, _ *Ledger, s *liveStore,
		log func() string) {
		s.set(func() {
			s.before = func(txn Txn) error {
				if len(txn.Then) > 0 {
					return errors.New("away")
				}
				return nil
			}
		})
		time.Sleep(time.Hour)
		if text := log(); strings.Contains(text, "were removed") || len(left(s)) != 1 {
			t.Errorf("left: %q, logged %s", left(s), text)
		}
		s.set(func() { s.before = nil })
		time.Sleep(2 * time.Minute)
		if log(); len(left(s)) != 0 {
			t.Errorf("left: %q", left(s))
		}
	})
}
