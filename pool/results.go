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

// Delays after a failure, doubled with each further failure.
const (
	firstDelay = time.Second
	startDelay = 5 * time.Minute  // upper limit, before a pool's next start
	purgeDelay = 10 * time.Minute // upper limit, before the next deletion
)

// After abandonAfter attempts, about a quarter of an hour, a resource whose start failed before its limit is given up:
// it no longer counts for the pool's maximum. Often there is nothing to delete, and a hook may report that as an error.
// Its deletion is still retried, because the cloud may have been unreachable in all that time, and the start may have
// created something. The resource ends when its deletion failed refusedAfter times although other commands of the pool
// succeeded in between. A pool keeps at most maxGivenUp such resources.
const (
	abandonAfter = 11
	refusedAfter = 3
	maxGivenUp   = 64
	givenUpDelay = time.Hour // upper limit, before the next deletion of a resource that was given up
)

// refusal counts the failed deletions of a resource, but only those between which other commands of its pool succeeded.
type refusal struct {
	answers int // stock.answers of the pool when the newest deletion failed
	times   int
}

// backOff is the delay after n failures in a row.
func backOff(n int, most time.Duration) time.Duration {
	if n > 20 {
		return most
	}
	return min(firstDelay<<max(0, n-1), most)
}

// configure records the pools of the file in the ledger.
func (l *Ledger) configure(pools []Settings, now time.Time) {
	l.order, l.configured = nil, true
	there := map[Name]bool{}
	for i, set := range pools {
		there[set.Name] = true
		l.order = append(l.order, set.Name)
		p := l.pools[set.Name]
		var resized *Resized
		if p == nil {
			p = &stock{Record: Record{Created: now, First: l.head.Resource + 1}}
			l.pools[set.Name] = p
		} else {
			if p.Settings.Project == set.Project { // another project starts with the file's sizes
				set, resized = p.Resized.over(set)
			}
			if !p.Removed && p.Position == i && reflect.DeepEqual(p.Settings, set) &&
				reflect.DeepEqual(p.Resized, resized) {
				continue
			}
		}
		l.change(p, set)
		p.Resized = resized
		p.Position, p.Removed = i, false
		l.touchPool(p)
	}
	for name, p := range l.pools {
		if !there[name] && !p.Removed {
			p.Removed = true
			l.touchPool(p)
		}
	}
}

// inUse reports whether removing the pool from the file would delete resources although no operator has drained the
// pool.
func (p *stock) inUse() bool { return len(p.resources) > 0 && p.Mode != Drained && !p.Removed }

func (l *Ledger) anyInUse(names []Name) bool {
	return slices.ContainsFunc(names, func(name Name) bool { return l.pools[name] != nil && l.pools[name].inUse() })
}

// missing returns the settings of the pools that are in use and missing from a file, in their order.
func (l *Ledger) missing(pools []Settings) (all []Settings) {
	for _, p := range l.inOrder() {
		if p.inUse() && !slices.ContainsFunc(pools, func(s Settings) bool { return s.Name == p.name() }) {
			all = append(all, p.fileSettings())
		}
	}
	return all
}

// checkRemoval refuses a file that has no pools while pools are in use. Invalid.
func (l *Ledger) checkRemoval(file string, pools []Settings) error {
	if missing := l.missing(pools); len(pools) == 0 && len(missing) > 0 {
		name := missing[0].Name
		return croft.Errorf(croft.Invalid, "%s names no pools, and pool %s has %d resources: write the pools into the "+
			"file, or drain each pool first (`croft pool drain %s`)", file, name, len(l.pools[name].resources), name)
	}
	return nil
}

// change gives a pool new settings. A pool that passes to another project keeps neither its resources nor its
// statistics, and a pool that is no longer shared keeps no resources: tickets of other projects may have used them.
func (l *Ledger) change(p *stock, set Settings) {
	passed := p.Settings.Name != "" && p.Settings.Project != set.Project
	if passed {
		p.Record = Record{Settings: p.Settings, Former: p.Former, Mode: p.Mode, Created: p.Created, Listed: p.Listed,
			LastStart: p.LastStart}
	}
	if passed || p.Settings.Shared && !set.Shared {
		p.First = l.head.Resource + 1
		for _, r := range p.resources {
			if r.State == Starting {
				l.condemn(r, p.whyFormer())
			}
		}
	}
	if p.Settings.Commands != set.Commands || !reflect.DeepEqual(p.Settings.Instance, set.Instance) {
		// the cause of failures may have been fixed
		p.Failed, p.NotBefore, p.Unproven, p.Full, p.LastError = 0, time.Time{}, 0, false, ""
	}
	if before := p.Settings; before.Name != "" && (before.Instance == nil) != (set.Instance == nil) {
		p.Former = &before
	}
	p.Settings = set
	for _, r := range p.resources {
		if r.Failures > 0 && !p.settingsOf(r).checks() {
			r.Failures = 0 // no livecheck would reset this count again
			l.touchResource(r)
		}
	}
}

// startEnd is the result of starting a resource.
type startEnd struct {
	data  []byte
	facts json.RawMessage
	// revision identifies the record of its instance
	revision int64
	took     time.Duration
	err      error
}

// started records the end of a start.
func (l *Ledger) started(id ResourceID, end startEnd, now time.Time) {
	delete(l.jobs, id)
	r := l.resources[id]
	p := l.pools[r.Pool]
	r.Data, r.Facts, r.InstanceRevision = end.data, end.facts, end.revision
	l.touchResource(r)
	if r.State != Starting {
		return // it was condemned meanwhile, so its end says nothing about the pool
	}
	l.touchPool(p)
	if end.err != nil {
		r.Error, r.Aborted = end.err.Error(), r.Instance == "" && !errors.Is(end.err, croft.Unavailable)
		kind := croft.KindOf(end.err)
		p.Full = kind == croft.NoCapacity || kind == croft.OverQuota
		if !p.Full { // a full cloud is not a failure of the pool
			p.Stats.started(false, end.took, now)
		}
		l.startFailed(p, r.ID, end.err.Error(), now)
		l.condemn(r, "starting it failed")
		return
	}
	p.Stats.started(true, end.took, now)
	l.answered(p, now)
	p.Full = false
	if p.Unproven == 0 { // else its first livecheck decides
		p.Failed, p.NotBefore, p.LastError = 0, time.Time{}, ""
	}
	r.CameUp, r.Tags = now, p.Settings.AllTags()
	l.set(r, Up)
}

// startFailed records a failed start, and delays the pool's next start.
func (l *Ledger) startFailed(p *stock, id ResourceID, why string, now time.Time) {
	p.Failed++
	p.LastError = why
	p.LastFailure = &Failure{id, now, why}
	p.NotBefore = now.Add(backOff(p.Failed, startDelay))
	l.touchPool(p)
}

// leastLife is how long an instance must run before its loss no longer counts as a failed start.
const leastLife = time.Minute

// checked records the result of a livecheck. A resource that fails its first one counts as a failed start: otherwise a
// pool whose resources never work would replace them without a pause.
func (l *Ledger) checked(id ResourceID, err error, now time.Time) {
	delete(l.busy, id)
	r := l.resources[id]
	if r == nil || r.State != Up && r.State != Releasing {
		return
	}
	first := r.Checked.IsZero() && r.State == Up && (!errors.Is(err, ErrLost) || now.Sub(r.CameUp) < leastLife)
	r.Checked = now
	if err == nil {
		r.Failures, r.Error = 0, ""
	} else {
		r.Failures++
		r.Error = err.Error()
	}
	l.touchResource(r)
	if first && !l.pools[r.Pool].former(r) {
		l.proved(l.pools[r.Pool], r, err, now)
	}
	if errors.Is(err, ErrLost) && r.State == Up {
		l.condemn(r, err.Error())
	}
}

// proved records the result of a resource's first livecheck in the pool's record.
func (l *Ledger) proved(p *stock, r *Resource, err error, now time.Time) {
	switch {
	case err != nil:
		p.Unproven++
		p.Failed = p.Unproven - 1
		p.Stats.revoke()
		l.startFailed(p, r.ID, fmt.Sprintf("resource %d came up and failed its first livecheck: %v", r.ID, err), now)
	case p.Unproven > 0:
		p.Unproven, p.Failed, p.NotBefore, p.LastError = 0, 0, time.Time{}, ""
		l.touchPool(p)
	}
}

// lose records the instances that were lost as of a time. It ignores instances that came up later, because the caller
// did not see them.
func (l *Ledger) lose(asOf time.Time, lost func(Resource, Instance) error, now time.Time) {
	for _, p := range l.pools {
		for _, r := range p.resources {
			if r.State != Up || r.Instance == "" || r.CameUp.After(asOf) {
				continue
			}
			if err := lost(*r, p.settingsOf(r).instance()); err != nil {
				l.checked(r.ID, fmt.Errorf("%w: %w", ErrLost, err), now)
			}
		}
	}
}

// released records the end of a cleaning. A resource that could not be cleaned is not used again.
func (l *Ledger) released(id ResourceID, err error) {
	r := l.resources[id]
	if r == nil || r.State != Releasing {
		return
	}
	if err != nil {
		r.Error = err.Error()
		l.condemn(r, "cleaning it failed")
		return
	}
	l.set(r, Up)
}

// deleted records the end of a deletion. A failed one is retried.
func (l *Ledger) deleted(id ResourceID, err error, now time.Time) {
	r := l.resources[id]
	if r == nil || r.State != Deleting {
		return
	}
	p := l.pools[r.Pool]
	if err == nil {
		r.Error = ""
		l.gone(r, now)
		l.answered(p, now)
		return
	}
	r.Error = err.Error()
	r.Deletes++
	most := purgeDelay
	if refused := l.refuse(p, r); r.GivenUp() {
		if refused >= refusedAfter {
			l.gone(r, now)
			return
		}
		most = givenUpDelay
	}
	r.NotBefore = now.Add(backOff(r.Deletes, most))
	l.set(r, DeleteRequest)
	l.forgetGivenUp(p, now)
}

// refuse records that a resource could not be deleted, and returns how often that happened although the pool's cloud
// answered.
func (l *Ledger) refuse(p *stock, r *Resource) int {
	if !r.Aborted {
		return 0
	}
	f, known := l.refusals[r.ID]
	if known && p.answers > f.answers {
		f.times++
	}
	f.answers = p.answers
	l.refusals[r.ID] = f
	return f.times
}

// answered records that a command of the pool succeeded, so its cloud answers. Resources that were given up while it
// did not answer are deleted at once.
func (l *Ledger) answered(p *stock, now time.Time) {
	p.answers++
	for _, r := range p.resources {
		if r.GivenUp() && l.refusals[r.ID].times == 0 && r.NotBefore.After(now) {
			r.NotBefore = now
			l.touchResource(r)
		}
	}
}

// forgetGivenUp ends the given-up resources of a pool beyond the maxGivenUp that it keeps, the earliest first.
func (l *Ledger) forgetGivenUp(p *stock, now time.Time) {
	var all []*Resource
	for _, r := range p.resources {
		if r.GivenUp() && r.State == DeleteRequest {
			all = append(all, r)
		}
	}
	for _, r := range all[:max(0, len(all)-maxGivenUp)] {
		l.gone(r, now)
	}
}

// liveNames returns the names of all resources that have not ended.
func (l *Ledger) liveNames() map[string]bool {
	names := map[string]bool{}
	for _, p := range l.pools {
		for _, r := range p.resources {
			names[r.Name] = true
		}
	}
	return names
}

// listed returns the orphans in the output of a search: names that no resource had when the search started, nor has
// now. The output is nil if the search failed.
func (l *Ledger) listed(pool Name, output []byte, before map[string]bool, now time.Time) []string {
	delete(l.listing, pool)
	p := l.pools[pool]
	if p == nil || p.Removed {
		return nil
	}
	if output != nil {
		l.answered(p, now)
	}
	live := l.liveNames()
	found := map[string]bool{}
	for _, word := range bytes.Fields(output) {
		if name := string(word); !before[name] && !live[name] && !l.orphans[pool][name] {
			found[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(found))
	for _, name := range names {
		if l.orphans[pool] == nil {
			l.orphans[pool] = map[string]bool{}
		}
		l.orphans[pool][name] = true
	}
	return names
}

// orphanGone records the end of an orphan's deletion; if that failed, a later search finds the orphan again.
func (l *Ledger) orphanGone(pool Name, name string) {
	delete(l.orphans[pool], name)
	if len(l.orphans[pool]) == 0 {
		delete(l.orphans, pool)
	}
}

// changes returns the changes since the last call, which must be written.
func (l *Ledger) changes() Batch {
	var b Batch
	c := &l.changed
	if c.head {
		head := l.head
		b.Head = &head
	}
	for _, name := range slices.Sorted(maps.Keys(c.pools)) {
		if p := l.pools[name]; p != nil {
			b.Pools = append(b.Pools, p.Record)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.resources)) {
		if r := l.resources[id]; r != nil {
			b.Resources = append(b.Resources, *r)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.tickets)) {
		if t := l.tickets[id]; t != nil {
			b.Tickets = append(b.Tickets, *t)
		}
	}
	b.GonePools, b.GoneResources, b.GoneTickets = c.gonePools, c.goneResources, c.goneTickets
	c.head, c.gonePools, c.goneResources, c.goneTickets = false, nil, nil, nil
	clear(c.pools)
	clear(c.resources)
	clear(c.tickets)
	return b
}

// slack is the excess of history at which it is cut, so that cutting removes many entries at once.
const slack = 256

// forget drops history beyond keep entries: the tickets and resources that ended first.
func (l *Ledger) forget(keep int) {
	if over := len(l.past) - keep; over >= slack {
		for _, id := range l.past[:over] {
			delete(l.keys, l.tickets[id].key())
			delete(l.tickets, id)
		}
		l.changed.goneTickets = append(l.changed.goneTickets, l.past[:over]...)
		l.past = slices.Clone(l.past[over:])
	}
	if over := len(l.ended) - keep; over >= slack {
		for _, id := range l.ended[:over] {
			delete(l.resources, id)
		}
		l.changed.goneResources = append(l.changed.goneResources, l.ended[:over]...)
		l.ended = slices.Clone(l.ended[over:])
	}
}
