package pool

import (
	"maps"
	"slices"
)

// changes returns what must be written since the last call.
func (l *Ledger) changes() Batch {
	var b Batch
	c := &l.changed
	if c.head {
		head := l.head
		b.Head = &head
	}
	for _, name := range slices.Sorted(maps.Keys(c.pools)) {
		if p := l.pools[name]; p != nil {
			b.Pools = append(b.Pools, p.Record)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.resources)) {
		if r := l.resources[id]; r != nil {
			b.Resources = append(b.Resources, *r)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.tickets)) {
		if t := l.tickets[id]; t != nil {
			b.Tickets = append(b.Tickets, *t)
		}
	}
	b.GonePools, b.GoneResources, b.GoneTickets = c.gonePools, c.goneResources, c.goneTickets
	c.head, c.gonePools, c.goneResources, c.goneTickets = false, nil, nil, nil
	clear(c.pools)
	clear(c.resources)
	clear(c.tickets)
	return b
}

// slack is the excess of history at which it is cut, so that cutting removes many entries at once.
const slack = 256

// forget drops history beyond keep entries: the tickets and resources that ended first.
func (l *Ledger) forget(keep int) {
	if over := len(l.past) - keep; over >= slack {
		for _, id := range l.past[:over] {
			delete(l.keys, l.tickets[id].key())
			delete(l.tickets, id)
		}
		l.changed.goneTickets = append(l.changed.goneTickets, l.past[:over]...)
		l.past = slices.Clone(l.past[over:])
	}
	if over := len(l.ended) - keep; over >= slack {
		for _, id := range l.ended[:over] {
			delete(l.resources, id)
		}
		l.changed.goneResources = append(l.changed.goneResources, l.ended[:over]...)
		l.ended = slices.Clone(l.ended[over:])
	}
}
