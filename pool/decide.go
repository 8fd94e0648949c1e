package pool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"croft"
	"croft/internal/wording"
)

// maxChecks is the limit of concurrent livechecks, over all pools.
const maxChecks = 64

// leastPeriod is the minimum interval between two livechecks of a resource: a pool with period 0 must not check without
// pause.
const leastPeriod = time.Second

// decider is one pass over a ledger.
type decider struct {
	*Ledger
	now     time.Time
	pools   []*stock // in the order of the file; removed pools last
	actions []Action
	next    time.Time
}

// Decide returns what to do now, and when to decide again if nothing happens before; zero: no further round is needed.
// It depends only on its arguments. Each decision is recorded in the ledger before the next one is made, so later
// decisions build on it.
func Decide(l *Ledger, now time.Time) (actions []Action, next time.Time) {
	r := decider{Ledger: l, now: now, pools: l.inOrder()}
	r.expire()
	r.takeBack()
	planned := r.planOnDemand()
	for _, p := range r.pools {
		r.condemnFrom(p)
		r.remove(p)
		r.startFor(p, planned[p.name()])
		r.listOrphans(p)
		r.forgetPool(p)
	}
	r.assign()
	r.makeRoom()
	r.livecheck()
	return r.actions, r.next
}

// inOrder returns the pools in the order of the file, then the others by name.
func (l *Ledger) inOrder() []*stock {
	var all []*stock
	for _, name := range l.order {
		all = append(all, l.pools[name])
	}
	for _, name := range slices.Sorted(maps.Keys(l.pools)) {
		if p := l.pools[name]; p.Removed {
			all = append(all, p)
		}
	}
	return all
}

func (r *decider) do(a Action) Action {
	a = r.apply(a, r.now)
	r.actions = append(r.actions, a)
	return a
}

// later requests another round at t.
func (r *decider) later(t time.Time) {
	if r.next.IsZero() || t.Before(r.next) {
		r.next = t
	}
}

// due reports whether t has come; if not, it requests a round then.
func (r *decider) due(t time.Time) bool {
	if t.After(r.now) {
		r.later(t)
		return false
	}
	return true
}

// expire closes tickets whose lease has run out.
func (r *decider) expire() {
	for _, id := range slices.Sorted(maps.Keys(r.leased)) {
		if t := r.leased[id]; r.due(t.Expires()) {
			r.do(Action{Op: OpExpire, Ticket: id,
				Reason: fmt.Sprintf("nobody used the ticket for %s, the length of its lease",
					wording.Duration(t.TTL))})
		}
	}
}

// takeBack takes resources from ended tickets, and cleans the ones that may be used again.
func (r *decider) takeBack() {
	for _, p := range r.pools {
		for _, res := range p.resources {
			if res.State != Up || res.Ticket == 0 {
				continue
			}
			owner := res.Ticket
			if t := r.tickets[owner]; t != nil && t.State == TicketOpen {
				continue
			}
			r.do(Action{Op: OpTakeBack, Pool: p.name(), Resource: res.ID, Ticket: owner,
				Reason: fmt.Sprintf("ticket %d ended", owner)})
			if p.settingsOf(res).Commands.Release != "" {
				r.do(Action{Op: OpRelease, Pool: p.name(), Resource: res.ID,
					Reason: fmt.Sprintf("ticket %d had it", owner)})
			}
		}
	}
}

// condemnFrom requests the deletion of the pool's resources that must be deleted.
func (r *decider) condemnFrom(p *stock) {
	spare := r.surplus(p)
	excess := r.excess(p)
	for _, res := range p.resources {
		if res.State != Up {
			continue
		}
		reason := r.whyGo(p, res)
		if reason == "" && spare > 0 && res.Free() {
			spare--
			reason = "it was started on demand, and nobody waits for it any more"
		}
		if reason == "" {
			reason = excess[res.ID]
		}
		if reason != "" {
			r.do(Action{Op: OpCondemn, Pool: p.name(), Resource: res.ID, Reason: reason})
		}
	}
}

// excess returns the unassigned resources that a pool with the setting renew no longer needs, with the reasons:
// resources beyond max, resources beyond max_prealloc, and outdated ones as soon as the warm stock is complete without
// them.
func (r *decider) excess(p *stock) map[ResourceID]string {
	if !p.Settings.Renew || !p.serves() {
		return nil
	}
	why := map[ResourceID]string{}
	c := p.count()
	beyond := c.Live() - c.DeleteRequest - c.Deleting - p.Settings.Max
	warm := c.Free - p.Settings.MaxPrealloc
	complete := c.Free >= p.Settings.Prealloc() || c.Live() >= p.Settings.Max && c.DeleteRequest+c.Deleting == 0
	for _, pick := range []func(*Resource) bool{p.Settings.outdated, func(res *Resource) bool { return !res.Free() },
		func(*Resource) bool { return true }} {
		for _, res := range p.resources {
			if !res.Idle() || why[res.ID] != "" || !pick(res) {
				continue
			}
			stale := p.Settings.outdated(res)
			switch {
			case beyond > 0:
				why[res.ID] = fmt.Sprintf("the pool has more than its max, %d", p.Settings.Max)
			case stale && complete:
				why[res.ID] = "the pool makes other resources now"
				complete = c.Free >= p.Settings.Prealloc() // a full pool replaces its resources one at a time
			case warm > 0 && len(p.Settings.OnDemand) == 0 && p.Settings.warm(res):
				why[res.ID] = fmt.Sprintf("more are warm than max_prealloc, %d", p.Settings.MaxPrealloc)
			default:
				continue
			}
			beyond--
			if p.Settings.warm(res) {
				warm--
			}
		}
	}
	return why
}

// whyGo returns why an UP resource must be deleted; empty: it may stay.
func (r *decider) whyGo(p *stock, res *Resource) string {
	set := &p.Settings
	switch {
	case p.settingsOf(res).checks() && res.Failures >= set.LivecheckAttempts:
		return fmt.Sprintf("%d livechecks in a row failed", res.Failures)
	case res.Ticket != 0:
		return ""
	case p.former(res):
		return p.whyFormer()
	case p.Removed:
		return fmt.Sprintf("pool %s is in the file no more", p.name())
	case p.Mode == Drained:
		return fmt.Sprintf("pool %s is drained", p.name())
	case res.Free():
		return ""
	case set.ReuseTime == 0:
		return "it was used, and the pool's resources are used once"
	case res.Private:
		return "it was used, and its ticket named no sandbox, so nobody else may have it"
	case set.ReuseCount > 0 && res.Releases > set.ReuseCount:
		return fmt.Sprintf("it was used %d times, and may be used again %d times", res.Releases, set.ReuseCount)
	case set.ReuseMaxTime > 0 && r.due(res.Sandboxed.Add(set.ReuseMaxTime)):
		return fmt.Sprintf("it was first used more than %s ago", wording.Duration(set.ReuseMaxTime))
	case r.due(res.Released.Add(set.ReuseTime)):
		return fmt.Sprintf("no ticket of its sandbox took it for %s", wording.Duration(set.ReuseTime))
	}
	return ""
}

// remove deletes condemned resources. An assigned one has its ticket failed first.
func (r *decider) remove(p *stock) {
	for _, res := range p.resources {
		if res.State != DeleteRequest {
			continue
		}
		r.failOwner(res)
		switch stopping, starts := r.jobs[res.ID]; {
		case starts && !stopping:
			r.do(Action{Op: OpAbort, Pool: p.name(), Resource: res.ID, Reason: res.Reason})
		case !starts && r.due(res.NotBefore):
			r.do(Action{Op: OpDelete, Pool: p.name(), Resource: res.ID, Reason: res.Reason})
		}
	}
}

// failOwner fails the ticket of a resource that must be deleted.
func (r *decider) failOwner(res *Resource) {
	if t := r.tickets[res.Ticket]; t != nil && t.State == TicketOpen {
		r.do(Action{Op: OpFail, Ticket: t.ID, Pool: res.Pool, Resource: res.ID, Reason: res.Reason})
	}
}

// failCondemned does the part of Decide that needs no command: a ticket fails as soon as its resource is condemned.
func failCondemned(l *Ledger, now time.Time) []Action {
	r := decider{Ledger: l, now: now}
	for _, p := range l.inOrder() {
		for _, res := range p.resources {
			if res.State == DeleteRequest {
				r.failOwner(res)
			}
		}
	}
	return r.actions
}

// startFor starts the resources that the pool lacks, for its warm stock or for waiting tickets.
func (r *decider) startFor(p *stock, planned int) {
	if !p.serves() || p.Settings.Prealloc() == 0 && planned == 0 {
		return
	}
	c := p.count()
	for live := c.Live(); live < p.Settings.Max && c.Starting < p.Settings.MaxStarting; live++ {
		reason := fmt.Sprintf("%d of %d are warm", c.Free+c.Starting, p.Settings.Prealloc())
		switch {
		case p.Settings.Prealloc() > 0 && c.Free+c.Starting >= p.Settings.Prealloc():
			return
		case p.Settings.Prealloc() == 0 && planned == 0:
			return
		case p.Settings.Prealloc() == 0:
			reason = "a ticket waits for it"
			planned--
		}
		if !r.due(p.NotBefore) || p.Settings.StartDelay > 0 && !r.due(p.LastStart.Add(p.Settings.StartDelay)) {
			return
		}
		r.do(Action{Op: OpStart, Pool: p.name(), Reason: reason})
		c.Starting++
	}
}

// listOrphans periodically searches for resources of the pool that the ledger does not have.
func (r *decider) listOrphans(p *stock) {
	if p.Settings.Commands.List == "" || p.Removed || r.listing[p.name()] {
		return
	}
	last := p.Listed
	if last.IsZero() {
		last = p.Created
	}
	if r.due(last.Add(max(p.Settings.ListPeriod, leastPeriod))) {
		r.do(Action{Op: OpList, Pool: p.name(), Reason: fmt.Sprintf("the last search for orphans was %s ago",
			wording.Duration(p.Settings.ListPeriod))})
	}
}

// forgetPool drops a pool that was removed from the file and has no resources left.
func (r *decider) forgetPool(p *stock) {
	if p.Removed && len(p.resources) == 0 && !r.listing[p.name()] && len(r.orphans[p.name()]) == 0 {
		r.do(Action{Op: OpForget, Pool: p.name(), Reason: "it is no longer in the file, and nothing is left of it"})
	}
}

// livecheck checks the resources whose check is due by their pool's period, the longest overdue first.
func (r *decider) livecheck() {
	var want []*Resource
	for _, p := range r.pools {
		for _, res := range p.resources {
			if res.State == Up && !r.busy[res.ID] && p.settingsOf(res).checks() && r.due(r.nextCheck(p, res)) {
				want = append(want, res)
			}
		}
	}
	slices.SortStableFunc(want, func(a, b *Resource) int {
		return cmp.Or(a.Checked.Compare(b.Checked), cmp.Compare(a.ID, b.ID))
	})
	for _, res := range want[:min(len(want), max(0, maxChecks-len(r.busy)))] {
		r.do(Action{Op: OpCheck, Pool: res.Pool, Resource: res.ID, Reason: "it is time"})
	}
}

// nextCheck is the time of a resource's next livecheck.
func (r *decider) nextCheck(p *stock, res *Resource) time.Time {
	last := res.Checked
	if last.IsZero() && r.pace > 0 {
		last = r.began
	}
	return last.Add(max(p.Settings.LivecheckPeriod, r.pace, leastPeriod))
}

// fits reports whether a pool's resources may serve tickets of a project with these tags.
func fits(s *Settings, p croft.Project, tags []string) bool {
	return s.IsFor(p) && hasAll(s.AllTags(), tags)
}

// hasAll reports whether tags include all names.
func hasAll(tags []Tag, names []string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(tags, func(t Tag) bool { return t.Name == name }) {
			return false
		}
	}
	return true
}

// score is the sum of the priorities of the named tags.
func score(tags []Tag, names []string) (sum int) {
	for _, t := range tags {
		if slices.Contains(names, t.Name) {
			sum += t.Priority
		}
	}
	return sum
}
