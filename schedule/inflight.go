package schedule

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"croft"
)

// inFlight tracks the choices of a scheduler's requests that the usages read by its other requests do not include.
// Without it, concurrent requests would all read the same usages and choose the same host.
//
// Claims made before a request reads its candidates are part of the usages. In-flight claims of other processes are
// unknown; random order among equals, and Placement's refusal, handle those.
type inFlight struct {
	mu      sync.Mutex
	now     int64 // logical clock: counts events
	readers map[*candidateReader]bool
	choices map[*choice]bool
}

// candidateReader is a request that is reading, or has read, candidates.
type candidateReader struct{ since int64 }

// choice is a candidate that a request is taking. It is added to the usages until the request gives it up, or until no
// ranking uses data that was read before it was claimed.
type choice struct {
	candidate       croft.Candidate
	project         croft.Project
	member          []croft.GroupMember
	claimed, joined int64 // logical time from which the usages, and the groups, include it; 0: not yet
}

func newInFlight() *inFlight {
	return &inFlight{readers: map[*candidateReader]bool{}, choices: map[*choice]bool{}}
}

// read registers a request that starts to read candidates. The caller calls done after its last ranking with them.
func (u *inFlight) read() *candidateReader {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := &candidateReader{since: u.tick()}
	u.readers[r] = true
	return r
}

func (u *inFlight) done(r *candidateReader) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.readers, r)
	u.prune()
}

// choose atomically ranks the candidates, including others' choices that r has not read, and makes the first one a
// choice. It returns the other candidates unchanged.
func (u *inFlight) choose(r *candidateReader, inst croft.Instance, candidates []croft.Candidate,
	rank func([]croft.Candidate, []croft.GroupMember) []croft.Candidate) (*choice, []croft.Candidate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	counted := make([]croft.Candidate, len(candidates))
	used, members := u.since(r, inst.Project, candidates)
	for i, c := range candidates {
		counted[i] = addUsed(c, used)
	}
	best := rank(counted, members)[0]
	i := slices.IndexFunc(candidates, func(c croft.Candidate) bool { return same(c, best) })
	ch := &choice{candidate: candidates[i], project: inst.Project}
	for _, a := range inst.Spec.Affinities {
		ch.member = append(ch.member, croft.GroupMember{Affinity: a, Instance: inst.ID, Host: hostOf(best)})
	}
	u.choices[ch] = true
	return ch, slices.Delete(candidates, i, i+1)
}

// same reports whether two candidates have the same allocations.
func same(a, b croft.Candidate) bool {
	return maps.EqualFunc(a.Allocations, b.Allocations, func(x, y croft.Resources) bool { return maps.Equal(x, y) })
}

// since sums the choices that r has not read: amounts by provider of the candidates, and members of the project's
// groups.
func (u *inFlight) since(r *candidateReader, project croft.Project,
	candidates []croft.Candidate) (used map[croft.HostID]croft.Resources, members []croft.GroupMember) {
	used = make(map[croft.HostID]croft.Resources, len(candidates))
	for _, c := range candidates {
		for provider := range c.Allocations {
			used[provider] = nil
		}
	}
	for ch := range u.choices {
		if ch.project == project && (ch.joined == 0 || ch.joined > r.since) {
			members = append(members, ch.member...)
		}
		if ch.claimed != 0 && ch.claimed <= r.since {
			continue
		}
		for provider, amounts := range ch.candidate.Allocations {
			sum, asked := used[provider]
			if !asked {
				continue
			}
			if sum == nil {
				used[provider] = croft.Resources{}
			}
			for class, amount := range amounts {
				used[provider][class] += amount
			}
		}
	}
	return used, members
}

// addUsed returns the candidate with additional usage of its providers. It does not change c.
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

// claimed records that the choice is part of the usages from now on.
func (u *inFlight) claimed(ch *choice) {
	u.mu.Lock()
	defer u.mu.Unlock()
	ch.claimed = u.tick()
}

// end ends a choice: it was ordered, or given up.
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

// prune removes the choices that every current reader has read.
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
