package pool

import (
	"cmp"
	"slices"
	"strings"

	"croft"
)

// usedBonus is added to the score of resources that the ticket's sandbox has used before, so that they rank above fresh
// ones, whatever the priorities.
const usedBonus = 500

// kind is a group of ready resources that have the same tags and serve the same projects.
type kind struct {
	*Settings // of one of the pools
	tags      []Tag
	// by sandbox, unused resources under the zero box; ordered by number, handed out from the front
	ready map[box][]*Resource
	left  int
}

// assign gives ready resources to waiting tickets: first those with an on-demand tag, then in turn. Each gets the best
// resource that has all its tags and was used in its sandbox or nowhere.
func (r *decider) assign() {
	if len(r.waiting) == 0 {
		return
	}
	stock := r.stockUp()
	if len(stock) == 0 {
		return
	}
	names, held := r.onDemandTags(), r.heldByProject()
	for _, first := range []bool{true, false} {
		if first && len(names) == 0 {
			continue
		}
		lines := r.waiting.lines(func(tags []string) bool { return isOnDemand(tags, names) == first })
		r.hand(match(lines, held, stock))
	}
}

// served is a ticket with its resource.
type served struct {
	*Ticket
	resource *Resource
}

// match takes resources from the stock for the tickets in the lines, and counts them in held.
func match(lines []*line, held map[croft.Project]int, stock []*kind) (all []served) {
	fit := map[*line][]*kind{}
	var wanted []*line
	for _, l := range lines {
		for _, k := range stock {
			if k.IsFor(l.project) && hasAll(k.tags, l.tags) {
				fit[l] = append(fit[l], k)
			}
		}
		if len(fit[l]) > 0 {
			wanted = append(wanted, l)
		}
	}
	left := func(l *line) bool { return slices.ContainsFunc(fit[l], func(k *kind) bool { return k.left > 0 }) }
	for l, t := range inTurn(wanted, held, left) {
		if res := take(t, fit[l]); res != nil {
			held[l.project]++
			all = append(all, served{t, res})
		}
	}
	return all
}

// hand makes the assignments.
func (r *decider) hand(all []served) {
	for _, s := range all {
		r.do(Action{Op: OpAssign, Pool: s.resource.Pool, Resource: s.resource.ID, Ticket: s.ID,
			Reason: "it is the best resource with " + cmp.Or(strings.Join(s.Tags, ", "), "any tags")})
	}
}

// stockUp groups ready resources by their tags.
func (r *decider) stockUp() (stock []*kind) {
	for _, p := range r.pools {
		if !p.serves() {
			continue
		}
		var of *kind // kind of the previous resource; mostly also that of the next one
		for _, res := range p.resources {
			if !res.usable() {
				continue
			}
			if of == nil || !of.equals(&p.Settings, res.Tags) {
				if of = find(stock, &p.Settings, res.Tags); of == nil {
					of = &kind{Settings: &p.Settings, tags: res.Tags, ready: map[box][]*Resource{}}
					stock = append(stock, of)
				}
			}
			of.ready[res.box()] = append(of.ready[res.box()], res)
			of.left++
		}
	}
	for _, k := range stock {
		for _, ready := range k.ready {
			slices.SortFunc(ready, func(a, b *Resource) int { return cmp.Compare(a.ID, b.ID) })
		}
	}
	return stock
}

// equals reports whether resources of a pool with these settings and tags belong to the kind.
func (k *kind) equals(s *Settings, tags []Tag) bool {
	return k.Project == s.Project && k.Shared == s.Shared && slices.Equal(k.tags, tags)
}

func find(stock []*kind, s *Settings, tags []Tag) *kind {
	for _, k := range stock {
		if k.equals(s, tags) {
			return k
		}
	}
	return nil
}

// take takes the best resource for a ticket; nil: none fits.
func take(t *Ticket, kinds []*kind) *Resource {
	var from *kind
	var best *Resource
	most := 0
	for _, k := range kinds {
		sum := score(k.tags, t.Tags)
		for _, sandbox := range []box{{}, t.box()} {
			ready := k.ready[sandbox]
			if len(ready) == 0 {
				continue
			}
			points := sum
			if sandbox != (box{}) {
				points += usedBonus
			}
			if best == nil || points > most || points == most && ready[0].ID < best.ID {
				from, best, most = k, ready[0], points
			}
		}
	}
	if best != nil {
		from.ready[best.box()] = from.ready[best.box()][1:]
		from.left--
	}
	return best
}
