package pool

import (
	"cmp"
	"slices"
)

// onDemandTags are the tags for which pools start resources only on request.
func (r *decider) onDemandTags() map[string]bool {
	names := map[string]bool{}
	for _, p := range r.pools {
		if p.Removed {
			continue
		}
		for _, t := range p.Settings.OnDemand {
			names[t.Name] = true
		}
	}
	return names
}

func isOnDemand(tags []string, names map[string]bool) bool {
	return len(names) > 0 && slices.ContainsFunc(tags, func(tag string) bool { return names[tag] })
}

// demand is the state of an on-demand pool while starts are planned.
type demand struct {
	*stock
	counts  Counts
	fresh   int         // starting, or ready and never used: such resources fit any sandbox
	used    map[box]int // ready or being cleaned, by sandbox: they fit only this sandbox
	planned int
}

// planOnDemand returns how many resources each pool is to start for waiting tickets: one for each that no
// existing or starting resource will serve. The pool with the highest priorities gets the start; a pool that
// failed lately is passed over until its back-off ends, so that others replace it.
func (r *decider) planOnDemand() map[Name]int {
	names := r.onDemandTags()
	if len(names) == 0 {
		return nil
	}
	pools := r.demands()
	planned := map[Name]int{}
	lines := r.waiting.lines(func(tags []string) bool { return isOnDemand(tags, names) })
	held := r.heldByProject()
	for l, t := range inTurn(lines, held, func(*line) bool { return true }) {
		if absorbed(pools, t) {
			held[l.project]++
			continue
		}
		if p := r.choose(pools, t); p != nil {
			held[l.project]++
			p.planned++
			planned[p.name()]++
		}
	}
	return planned
}

func (r *decider) demands() []*demand {
	var all []*demand
	for _, p := range r.pools {
		if len(p.Settings.OnDemand) > 0 && p.serves() {
			all = append(all, r.demandFor(p))
		}
	}
	slices.SortFunc(all, func(a, b *demand) int { return cmp.Compare(a.name(), b.name()) })
	return all
}

// demandFor counts the resources that will serve tickets without another start.
func (r *decider) demandFor(p *stock) *demand {
	d := &demand{stock: p, counts: p.count(), used: map[box]int{}}
	for _, res := range p.resources {
		switch {
		case res.State == Starting:
			d.fresh++
		case res.State != Releasing && (!res.usable() || r.whyGo(p, res) != ""):
		case res.Sandbox == "":
			d.fresh++
		default:
			d.used[res.box()]++
		}
	}
	return d
}

// absorbed reports whether an existing resource of a pool will serve a ticket. It first takes resources that other
// tickets cannot have.
func absorbed(pools []*demand, t *Ticket) bool {
	able := slices.DeleteFunc(slices.Clone(pools), func(p *demand) bool {
		return !fits(&p.Settings, t.Project, t.Tags)
	})
	if i := slices.IndexFunc(able, func(p *demand) bool { return p.used[t.box()] > 0 }); i >= 0 {
		able[i].used[t.box()]--
		return true
	}
	i := slices.IndexFunc(able, func(p *demand) bool { return p.fresh > 0 })
	if i >= 0 {
		able[i].fresh--
	}
	return i >= 0
}

// choose returns the pool that is to start a resource for a ticket; nil: none now.
func (r *decider) choose(pools []*demand, t *Ticket) (best *demand) {
	most := 0
	for _, p := range pools {
		if !fits(&p.Settings, t.Project, t.Tags) || p.planned+p.counts.Live() >= p.Settings.Max ||
			p.planned+p.counts.Starting >= p.Settings.MaxStarting {
			continue
		}
		if !r.due(p.NotBefore) {
			continue
		}
		if sum := score(p.Settings.AllTags(), t.Tags); best == nil || sum > most {
			best, most = p, sum
		}
	}
	return best
}

// surplus returns how many of an on-demand pool's free resources no ticket waits for, not counting resources that are
// deleted for other reasons.
func (r *decider) surplus(p *stock) int {
	if len(p.Settings.OnDemand) == 0 {
		return 0
	}
	free := 0
	for _, res := range p.resources {
		if res.Free() && r.whyGo(p, res) == "" {
			free++
		}
	}
	for _, l := range r.waiting {
		if fits(&p.Settings, l.project, l.tags) {
			free -= len(l.tickets)
		}
	}
	return max(0, free)
}
