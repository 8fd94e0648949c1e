package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// usedBonus is added to the score of what the ticket's sandbox has used before: it
// comes before what is fresh, whatever the priorities.
const usedBonus = 500

// shelf holds the ready resources that are the same to every ticket.
type shelf struct {
	tags    []Tag
	sandbox string
	ready   []*Resource // by number; from the front they are handed out
}

// shelves are all ready resources.
type shelves struct {
	fresh []*shelf            // of no sandbox
	used  map[string][]*shelf // by sandbox
	left  int
	memo  map[string][]*shelf // fresh ones that fit, best first, by the ticket's tags
}

// assign gives ready resources to those that wait: those with an on-demand tag first,
// then who came first. Each gets the best that has all its tags and was used in its
// sandbox or nowhere.
func (r *round) assign() {
	if len(r.waiting) == 0 {
		return
	}
	stock := r.stockUp()
	if stock.left == 0 {
		return
	}
	names := r.onDemandTags()
	var served []match
	for _, first := range []bool{true, false} {
		if first && len(names) == 0 {
			continue
		}
		for _, t := range r.waiting {
			if stock.left == 0 {
				break
			}
			if isOnDemand(t, names) != first {
				continue
			}
			if res := stock.take(t); res != nil {
				served = append(served, match{t, res})
			}
		}
	}
	r.hand(served)
}

// match is a ticket with what it gets.
type match struct {
	*Ticket
	resource *Resource
}

// hand makes the assignments, and takes their tickets out of those that wait.
func (r *round) hand(all []match) {
	for _, s := range all {
		r.do(Action{Op: OpAssign, Pool: s.resource.Pool, Resource: s.resource.ID, Ticket: s.ID,
			Reason: "it is the best of those that have " + cmp.Or(strings.Join(s.Tags, ", "), "any tags")})
	}
	if len(all) > 0 {
		r.waiting = slices.DeleteFunc(r.waiting, func(t *Ticket) bool { return t.Resource != 0 })
	}
}

// stockUp sorts what is ready onto shelves.
func (r *round) stockUp() *shelves {
	s := &shelves{used: map[string][]*shelf{}, memo: map[string][]*shelf{}}
	at := map[string]*shelf{}
	for _, p := range r.pools {
		if !p.serves() {
			continue
		}
		for _, res := range p.resources {
			if !res.Idle() || res.Failures > 0 {
				continue
			}
			key := shelfKey(res)
			on := at[key]
			if on == nil {
				on = &shelf{tags: res.Tags, sandbox: res.Sandbox}
				at[key] = on
				if on.sandbox == "" {
					s.fresh = append(s.fresh, on)
				} else {
					s.used[on.sandbox] = append(s.used[on.sandbox], on)
				}
			}
			on.ready = append(on.ready, res)
			s.left++
		}
	}
	for _, on := range at {
		slices.SortFunc(on.ready, func(a, b *Resource) int { return cmp.Compare(a.ID, b.ID) })
	}
	return s
}

func shelfKey(r *Resource) string {
	var b strings.Builder
	for _, t := range r.Tags {
		fmt.Fprintf(&b, "%s\x00%d\x00", t.Name, t.Priority)
	}
	b.WriteString(r.Sandbox)
	return b.String()
}

// take takes the best for a ticket from its shelf; nil where nothing fits.
func (s *shelves) take(t *Ticket) *Resource {
	var best *shelf
	most := 0
	consider := func(on *shelf, bonus int) {
		if len(on.ready) == 0 {
			return
		}
		sum := score(on.tags, t.Tags) + bonus
		if best == nil || sum > most || sum == most && on.ready[0].ID < best.ready[0].ID {
			best, most = on, sum
		}
	}
	for _, on := range s.used[t.Sandbox] {
		if hasAll(on.tags, t.Tags) {
			consider(on, usedBonus)
		}
	}
	for _, on := range s.fitting(t.Tags) {
		consider(on, 0)
	}
	if best == nil {
		return nil
	}
	res := best.ready[0]
	best.ready = best.ready[1:]
	s.left--
	return res
}

// fitting are the fresh shelves with all of the tags.
func (s *shelves) fitting(tags []string) []*shelf {
	key := tagKey(tags)
	fit, known := s.memo[key]
	if !known {
		for _, on := range s.fresh {
			if hasAll(on.tags, tags) {
				fit = append(fit, on)
			}
		}
		s.memo[key] = fit
	}
	return fit
}
