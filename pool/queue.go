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

// inTurn yields the tickets of some lines by number, each with its line. It skips the rest of a line once goesOn
// returns false for it. The lines must not change meanwhile.
func inTurn(lines []*line, goesOn func(*line) bool) iter.Seq2[*line, *Ticket] {
	type turn struct {
		*line
		left []*Ticket
	}
	return func(yield func(*line, *Ticket) bool) {
		var turns []turn // ordered by the number of their first remaining ticket
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

// lineKey returns the key of a ticket's line.
func lineKey(t *Ticket) string { return string(t.Project) + "\x00" + strings.Join(t.Tags, "\x00") }
