package pool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"croft"
)

// How long is waited after a failure: doubled with every further one.
const (
	firstDelay = time.Second
	startDelay = 5 * time.Minute  // at most, before a pool starts something again
	purgeDelay = 10 * time.Minute // at most, before something is deleted again
)

// abandonAfter is how often deleting is tried of what failed to start by itself: often
// there is nothing to delete, and whoever says so with an error is not asked for ever.
const abandonAfter = 3

// backOff is the delay after n failures in a row.
func backOff(n int, most time.Duration) time.Duration {
	if n > 20 {
		return most
	}
	return min(firstDelay<<max(0, n-1), most)
}

// configure makes what the file says part of the ledger.
func (s *Ledger) configure(pools []Settings, now time.Time) {
	s.order, s.configured = nil, true
	there := map[Name]bool{}
	for i, set := range pools {
		there[set.Name] = true
		s.order = append(s.order, set.Name)
		p := s.pools[set.Name]
		if p == nil {
			p = &stock{Record: Record{Created: now}}
			s.pools[set.Name] = p
		} else if !p.Removed && p.Position == i && reflect.DeepEqual(p.Settings, set) {
			continue
		}
		if p.Settings.Commands != set.Commands {
			p.Failed, p.NotBefore = 0, time.Time{} // what failed may have been mended
		}
		p.Settings, p.Position, p.Removed = set, i, false
		s.touchPool(p)
	}
	for name, p := range s.pools {
		if !there[name] && !p.Removed {
			p.Removed = true
			s.touchPool(p)
		}
	}
}

// startEnd is what starting a resource came to.
type startEnd struct {
	data  []byte
	facts json.RawMessage
	took  time.Duration
	err   error
}

// started notes that starting a resource ended.
func (s *Ledger) started(id ResourceID, end startEnd, now time.Time) {
	delete(s.jobs, id)
	r := s.resources[id]
	p := s.pools[r.Pool]
	r.Data, r.Facts = end.data, end.facts
	s.touchResource(r)
	if r.State != Starting {
		return // it was condemned meanwhile, and says nothing of the pool
	}
	p.Stats.started(end.err == nil, end.took, now)
	s.touchPool(p)
	if end.err != nil {
		r.Error, r.Aborted = end.err.Error(), !errors.Is(end.err, croft.Unavailable)
		p.Failed++
		p.LastError = end.err.Error()
		p.NotBefore = now.Add(backOff(p.Failed, startDelay))
		s.condemn(r, "starting it failed")
		return
	}
	p.Failed, p.NotBefore, p.LastError = 0, time.Time{}, ""
	r.CameUp, r.Tags = now, p.Settings.AllTags()
	s.set(r, Up)
}

// checked notes what a livecheck came to.
func (s *Ledger) checked(id ResourceID, err error, now time.Time) {
	delete(s.busy, id)
	r := s.resources[id]
	if r == nil || r.State != Up && r.State != Releasing {
		return
	}
	r.Checked = now
	if err == nil {
		r.Failures, r.Error = 0, ""
	} else {
		r.Failures++
		r.Error = err.Error()
	}
	if errors.Is(err, ErrLost) {
		r.Failures = max(r.Failures, s.pools[r.Pool].Settings.LivecheckAttempts)
	}
	s.touchResource(r)
}

// lose notes which instances were lost as of a time; those that came up later are not
// known then.
func (s *Ledger) lose(asOf time.Time, lost func(croft.InstanceID) error, now time.Time) {
	for _, p := range s.pools {
		for _, r := range p.resources {
			if r.State != Up || r.Instance == "" || r.CameUp.After(asOf) {
				continue
			}
			if err := lost(r.Instance); err != nil {
				s.checked(r.ID, fmt.Errorf("%w: %w", ErrLost, err), now)
			}
		}
	}
}

// released notes that cleaning a resource ended. What could not be cleaned is not used
// again.
func (s *Ledger) released(id ResourceID, err error) {
	r := s.resources[id]
	if r == nil || r.State != Releasing {
		return
	}
	if err != nil {
		r.Error = err.Error()
		s.condemn(r, "cleaning it failed")
		return
	}
	s.set(r, Up)
}

// deleted notes that deleting a resource ended. What failed is tried again.
func (s *Ledger) deleted(id ResourceID, err error, now time.Time) {
	r := s.resources[id]
	if r == nil || r.State != Deleting {
		return
	}
	if err == nil {
		r.Error = ""
		s.gone(r, now)
		return
	}
	r.Error = err.Error()
	r.Deletes++
	if r.Aborted && r.Deletes >= abandonAfter {
		s.gone(r, now)
		return
	}
	r.NotBefore = now.Add(backOff(r.Deletes, purgeDelay))
	s.set(r, DeleteRequest)
}

// liveNames are the names of all resources that have not ended.
func (s *Ledger) liveNames() map[string]bool {
	names := map[string]bool{}
	for _, p := range s.pools {
		for _, r := range p.resources {
			names[r.Name] = true
		}
	}
	return names
}

// listed returns the orphans among what a search found: names that no resource had when
// it began, nor has now.
func (s *Ledger) listed(pool Name, output []byte, before map[string]bool) []string {
	delete(s.listing, pool)
	p := s.pools[pool]
	if p == nil || p.Removed {
		return nil
	}
	now := s.liveNames()
	found := map[string]bool{}
	for _, word := range bytes.Fields(output) {
		if name := string(word); !before[name] && !now[name] && !s.orphans[pool][name] {
			found[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(found))
	for _, name := range names {
		if s.orphans[pool] == nil {
			s.orphans[pool] = map[string]bool{}
		}
		s.orphans[pool][name] = true
	}
	return names
}

// orphanGone notes that deleting an orphan ended; what failed is found again.
func (s *Ledger) orphanGone(pool Name, name string) {
	delete(s.orphans[pool], name)
	if len(s.orphans[pool]) == 0 {
		delete(s.orphans, pool)
	}
}
