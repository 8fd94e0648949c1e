package pool

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"croft"
)

// queue holds the waiting tickets: one line for each project and set of tags, under the line's key. Decisions by tags
// are made once per line, however long it is.
type queue map[string]*line

// line holds the tickets of a project that wait for the same tags, by number.
type line struct {
	project croft.Project
	tags    []string
	tickets []*Ticket
}

// add appends a ticket to its line; its number is the highest there.
func (q queue) add(t *Ticket) {
	key := lineKey(t)
	if q[key] == nil {
		q[key] = &line{project: t.Project, tags: t.Tags}
	}
	q[key].tickets = append(q[key].tickets, t)
}

// remove takes a ticket out of its line.
func (q queue) remove(t *Ticket) {
	key := lineKey(t)
	in := q[key]
	if in == nil {
		return
	}
	i, found := slices.BinarySearchFunc(in.tickets, t.ID, func(t *Ticket, id TicketID) int {
		return cmp.Compare(t.ID, id)
	})
	switch {
	case !found:
		return
	case len(in.tickets) == 1:
		delete(q, key)
	case i == 0: // usually the first ticket is served, and the line may be long
		in.tickets[0] = nil
		in.tickets = in.tickets[1:]
	default:
		in.tickets = slices.Delete(in.tickets, i, i+1)
	}
}

// lines returns the lines whose tags pick accepts.
func (q queue) lines(pick func(tags []string) bool) (picked []*line) {
	for _, l := range q {
		if pick(l.tags) {
			picked = append(picked, l)
		}
	}
	return picked
}

// inTurn yields the tickets of some lines, each with its line: the next one is of the project that holds the fewest
// resources, and of these tickets the one with the lowest number. So no project waits for all tickets that another one
// opened before. The caller counts in held what it gives to a ticket. inTurn skips the rest of a line once goesOn
// returns false for it. The lines must not change meanwhile.
func inTurn(lines []*line, held map[croft.Project]int, goesOn func(*line) bool) iter.Seq2[*line, *Ticket] {
	return func(yield func(*line, *Ticket) bool) {
		var waiting []*turns
		for _, l := range lines {
			i := slices.IndexFunc(waiting, func(w *turns) bool { return w.project == l.project })
			if i < 0 {
				i = len(waiting)
				waiting = append(waiting, &turns{project: l.project})
			}
			waiting[i].lines = append(waiting[i].lines, turn{l, l.tickets})
		}
		for _, w := range waiting {
			slices.SortFunc(w.lines, byFirst)
		}
		for len(waiting) > 0 {
			next := slices.MinFunc(waiting, func(a, b *turns) int {
				return cmp.Or(cmp.Compare(held[a.project], held[b.project]), byFirst(a.lines[0], b.lines[0]))
			})
			first := next.lines[0]
			if !goesOn(first.line) {
				next.drop()
			} else if !yield(first.line, first.left[0]) {
				return
			} else {
				next.advance()
			}
			if len(next.lines) == 0 {
				waiting = slices.DeleteFunc(waiting, func(w *turns) bool { return w == next })
			}
		}
	}
}

// turn is a line with the tickets that inTurn has not yielded.
type turn struct {
	*line
	left []*Ticket
}

func byFirst(a, b turn) int { return cmp.Compare(a.left[0].ID, b.left[0].ID) }

// turns holds the lines of a project, ordered by the number of their first remaining ticket.
type turns struct {
	project croft.Project
	lines   []turn
}

// drop skips the rest of the first line.
func (w *turns) drop() { w.lines = w.lines[1:] }

// advance removes the first ticket, and restores the order.
func (w *turns) advance() {
	first := w.lines[0]
	if first.left = first.left[1:]; len(first.left) == 0 {
		w.drop()
		return
	}
	if len(w.lines) == 1 || byFirst(first, w.lines[1]) < 0 {
		w.lines[0] = first
		return
	}
	rest := w.lines[1:]
	at, _ := slices.BinarySearchFunc(rest, first, byFirst)
	w.lines = slices.Insert(rest, at, first)
}

// heldByProject counts the resources of shared pools that tickets of each project have.
func (r *decider) heldByProject() map[croft.Project]int {
	held := map[croft.Project]int{}
	for _, p := range r.pools {
		if !p.Settings.Shared {
			continue
		}
		for _, res := range p.resources {
			if t := r.tickets[res.Ticket]; t != nil {
				held[t.Project]++
			}
		}
	}
	return held
}

// lineKey returns the key of a ticket's line.
func lineKey(t *Ticket) string { return string(t.Project) + "\x00" + strings.Join(t.Tags, "\x00") }
