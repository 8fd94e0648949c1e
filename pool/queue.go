package pool

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// queue is the tickets that wait: a line for each set of tags, by its key. What is
// decided by tags is decided for a line, however long it is.
type queue map[string]*line

// line is the tickets that wait for the same tags, by number.
type line struct {
	tags    []string
	tickets []*Ticket
}

// add puts a ticket at the end of its line; no number in that is higher.
func (q queue) add(t *Ticket) {
	key := tagKey(t.Tags)
	if q[key] == nil {
		q[key] = &line{tags: t.Tags}
	}
	q[key].tickets = append(q[key].tickets, t)
}

// remove takes a ticket out of its line.
func (q queue) remove(t *Ticket) {
	key := tagKey(t.Tags)
	in := q[key]
	if in == nil {
		return
	}
	i, found := slices.BinarySearchFunc(in.tickets, t.ID, func(t *Ticket,
		id TicketID) int {
		return cmp.Compare(t.ID, id)
	})
	switch {
	case !found:
		return
	case len(in.tickets) == 1:
		delete(q, key)
	case i == 0: // who is served is mostly the first, and the line may be long
		in.tickets[0] = nil
		in.tickets = in.tickets[1:]
	default:
		in.tickets = slices.Delete(in.tickets, i, i+1)
	}
}

// lines are those with tags for which pick says yes.
func (q queue) lines(pick func(tags []string) bool) (picked []*line) {
	for _, l := range q {
		if pick(l.tags) {
			picked = append(picked, l)
		}
	}
	return picked
}

// inTurn yields the tickets of some lines by their numbers, each with its line. What is left of a line is
// passed over once goesOn says no for it. The lines must stay as they are meanwhile.
func inTurn(lines []*line, goesOn func(*line) bool) iter.Seq2[*line, *Ticket] {
	type turn struct {
		*line
		left []*Ticket
	}
	return func(yield func(*line, *Ticket) bool) {
		var turns []turn // by the number of the first that is left
		for _, l := range lines {
			turns = append(turns, turn{l, l.tickets})
		}
		byFirst := func(a, b turn) int { return cmp.Compare(a.left[0].ID, b.left[0].ID) }
		slices.SortFunc(turns, byFirst)
		for len(turns) > 0 {
			now := turns[0]
			turns = turns[1:]
			for len(now.left) > 0 && (len(turns) == 0 || byFirst(now, turns[0]) < 0) {
				if !goesOn(now.line) {
					now.left = nil
					break
				}
				if !yield(now.line, now.left[0]) {
					return
				}
				now.left = now.left[1:]
			}
			if len(now.left) > 0 {
				at, _ := slices.BinarySearchFunc(turns, now, byFirst)
				turns = slices.Insert(turns, at, now)
			}
		}
	}
}

// tagKey is the same for the same tags.
func tagKey(names []string) string { return strings.Join(names, "\x00") }
