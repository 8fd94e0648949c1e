package schedule

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"croft"
)

// inFlight counts what other requests of the same scheduler have chosen and what is
// in no usage yet that a request has read. Without it, requests that begin together
// would all read the same usages and choose the same host.
//
// Claims that had landed before a request read its candidates are in the usages
// already, and those of other processes cannot be known before they land: there
// chance among equals, and Placement's refusal, have to do.
type inFlight struct {
	mu      sync.Mutex
	now     int64 // counts what happened, as a clock would
	readers map[*reading]bool
	choices map[*choice]bool
}

// reading is a request that has read candidates, or is about to.
type reading struct{ since int64 }

// choice is a candidate that a request is taking. It counts until it is given up, or
// for as long as anybody ranks what was read before it landed.
type choice struct {
	candidate       croft.Candidate
	project         croft.Project
	member          []croft.Member
	claimed, joined int64 // when the usages, and the groups, began to have it; 0: not yet
}

func newInFlight() *inFlight {
	return &inFlight{readers: map[*reading]bool{}, choices: map[*choice]bool{}}
}

// read begins a request's reading. Call done when it ranks by it no more.
func (u *inFlight) read() *reading {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := &reading{since: u.tick()}
	u.readers[r] = true
	return r
}

func (u *inFlight) done(r *reading) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.readers, r)
	u.prune()
}

// choose ranks the candidates, with what others have chosen since r, and makes the
// first of them a choice, all at once. The rest is as it was, without that one.
func (u *inFlight) choose(r *reading, inst croft.Instance, candidates []croft.Candidate,
	rank func([]croft.Candidate, []croft.Member) []croft.Candidate) (*choice, []croft.Candidate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	counted := make([]croft.Candidate, len(candidates))
	used, members := u.since(r, inst.Project)
	for i, c := range candidates {
		counted[i] = addUsed(c, used)
	}
	best := rank(counted, members)[0]
	i := slices.IndexFunc(candidates, func(c croft.Candidate) bool { return same(c, best) })
	ch := &choice{candidate: candidates[i], project: inst.Project}
	for _, a := range inst.Spec.Affinities {
		ch.member = append(ch.member, croft.Member{Affinity: a, Instance: inst.ID, Host: hostOf(best)})
	}
	u.choices[ch] = true
	return ch, slices.Delete(candidates, i, i+1)
}

// same tells whether two candidates take the same from the same providers.
func same(a, b croft.Candidate) bool {
	return maps.EqualFunc(a.Allocations, b.Allocations, func(x, y croft.Resources) bool { return maps.Equal(x, y) })
}

// since sums the choices that what r has read does not show: amounts by provider, and
// the members of the project's groups.
func (u *inFlight) since(r *reading, project croft.Project) (used map[croft.HostID]croft.Resources,
	members []croft.Member) {
	used = map[croft.HostID]croft.Resources{}
	for ch := range u.choices {
		if ch.project == project && (ch.joined == 0 || ch.joined > r.since) {
			members = append(members, ch.member...)
		}
		if ch.claimed != 0 && ch.claimed <= r.since {
			continue
		}
		for provider, amounts := range ch.candidate.Allocations {
			if used[provider] == nil {
				used[provider] = croft.Resources{}
			}
			for class, amount := range amounts {
				used[provider][class] += amount
			}
		}
	}
	return used, members
}

// addUsed is the candidate with more used of its providers; c stays as it is.
func addUsed(c croft.Candidate, used map[croft.HostID]croft.Resources) croft.Candidate {
	cloned := false
	for provider := range c.Allocations {
		more, summary := used[provider], c.Summaries[provider]
		if len(more) == 0 {
			continue
		}
		if !cloned {
			c.Summaries, cloned = maps.Clone(c.Summaries), true
		}
		summary.Used = maps.Clone(summary.Used)
		for class, amount := range more {
			summary.Used[class] += amount
		}
		c.Summaries[provider] = summary
	}
	return c
}

// claimed says that the choice is in the usages from now on.
func (u *inFlight) claimed(ch *choice) {
	u.mu.Lock()
	defer u.mu.Unlock()
	ch.claimed = u.tick()
}

// end ends a choice: it was ordered, or, where it was not, counts no more.
func (u *inFlight) end(ch *choice, ordered bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !ordered {
		delete(u.choices, ch)
		return
	}
	ch.joined = u.tick()
	ch.claimed = cmp.Or(ch.claimed, ch.joined)
	u.prune()
}

// prune forgets the choices that everybody who ranks has read of.
func (u *inFlight) prune() {
	oldest := u.now
	for r := range u.readers {
		oldest = min(oldest, r.since)
	}
	maps.DeleteFunc(u.choices, func(ch *choice, _ bool) bool { return ch.joined != 0 && ch.joined <= oldest })
}

func (u *inFlight) tick() int64 {
	u.now++
	return u.now
}
