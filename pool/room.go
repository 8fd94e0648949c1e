package pool

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// space is a pool's capacity for the tickets that still wait after all usable resources were assigned.
type space struct {
	*stock
	coming    int         // resources that will come up without any further decision
	releasing map[box]int // being cleaned for their sandbox
	spare     []*Resource // idle resources that no waiting ticket can get, the longest idle first
}

// makeRoom deletes idle resources of full pools, one for each waiting ticket that would otherwise wait until they are
// deleted for other reasons: resources that are kept for another sandbox, and resources with tags of former settings.
// It leaves resources whose livecheck failed to their next livechecks.
func (r *decider) makeRoom() {
	var pools []*space
	for _, p := range r.pools {
		if p.serves() && len(p.resources) > 0 {
			pools = append(pools, r.spaceOf(p))
		}
	}
	able := func(s *space, l *line) bool {
		return fits(&s.Settings, l.project, l.tags) && s.startsFor(l.tags) && len(s.spare) > 0
	}
	if !slices.ContainsFunc(pools, func(s *space) bool { return len(s.spare) > 0 }) {
		return
	}
	goesOn := func(l *line) bool {
		return slices.ContainsFunc(pools, func(s *space) bool { return able(s, l) })
	}
	lines := r.waiting.lines(func([]string) bool { return true })
	held := r.heldByProject()
	for l, t := range inTurn(slices.DeleteFunc(lines, func(l *line) bool { return !goesOn(l) }), held,
		goesOn) {
		held[l.project]++
		if slices.ContainsFunc(pools, func(s *space) bool { return s.absorbs(l, t) }) {
			continue
		}
		i := slices.IndexFunc(pools, func(s *space) bool { return able(s, l) })
		s := pools[i]
		r.do(Action{Op: OpCondemn, Pool: s.name(), Resource: s.spare[0].ID,
			Reason: fmt.Sprintf("the pool is full, and ticket %d waits, which may not have it", t.ID)})
		s.spare = s.spare[1:]
	}
	for _, s := range pools {
		r.remove(s.stock)
	}
}

func (r *decider) spaceOf(p *stock) *space {
	s := &space{stock: p, releasing: map[box]int{}}
	c := p.count()
	s.coming = max(0, p.Settings.Max-c.Live()) + c.Starting
	for _, res := range p.resources {
		switch {
		case res.State == Releasing:
			s.releasing[res.box()]++
		case (res.State == Deleting || res.State == DeleteRequest) && res.Deletes == 0:
			s.coming++ // its deletion makes room
		case res.usable() && !p.Settings.warm(res) && c.Live() >= p.Settings.Max && !p.NotBefore.After(r.now):
			s.spare = append(s.spare, res)
		}
	}
	slices.SortFunc(s.spare, func(a, b *Resource) int {
		return cmp.Or(idleSince(a).Compare(idleSince(b)), cmp.Compare(a.ID, b.ID))
	})
	return s
}

// idleSince returns when the newest ticket of a resource ended, or when the resource came up.
func idleSince(r *Resource) time.Time {
	if r.Released.IsZero() {
		return r.CameUp
	}
	return r.Released
}

// startsFor reports whether the pool starts resources for tickets with these tags: it keeps some warm, or one of the
// tags is on demand.
func (p *Record) startsFor(tags []string) bool {
	return p.Settings.Prealloc() > 0 || slices.ContainsFunc(p.Settings.OnDemand, func(t Tag) bool {
		return slices.Contains(tags, t.Name)
	})
}

// absorbs reports whether the pool will serve a ticket without more room, and reserves the resource that will serve it.
func (s *space) absorbs(l *line, t *Ticket) bool {
	switch {
	case !fits(&s.Settings, l.project, l.tags):
		return false
	case s.releasing[t.box()] > 0:
		s.releasing[t.box()]--
		return true
	case s.coming > 0 && s.startsFor(l.tags):
		s.coming--
		return true
	}
	return false
}
