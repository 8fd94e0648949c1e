package pool

import (
	"maps"
	"slices"
)

// changes returns what has to be written since the last call.
func (s *Ledger) changes() Batch {
	var b Batch
	c := &s.changed
	if c.head {
		head := s.head
		b.Head = &head
	}
	for _, name := range slices.Sorted(maps.Keys(c.pools)) {
		if p := s.pools[name]; p != nil {
			b.Pools = append(b.Pools, p.Record)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.resources)) {
		if r := s.resources[id]; r != nil {
			b.Resources = append(b.Resources, *r)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.tickets)) {
		if t := s.tickets[id]; t != nil {
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

// slack is how much history may have too much before it is cut, so that cutting it is
// done for many at once.
const slack = 256

// forget drops history beyond what is kept: tickets and resources that ended first.
func (s *Ledger) forget(keep int) {
	if over := len(s.past) - keep; over >= slack {
		for _, id := range s.past[:over] {
			delete(s.keys, s.tickets[id].key())
			delete(s.tickets, id)
		}
		s.changed.goneTickets = append(s.changed.goneTickets, s.past[:over]...)
		s.past = slices.Clone(s.past[over:])
	}
	if over := len(s.ended) - keep; over >= slack {
		for _, id := range s.ended[:over] {
			delete(s.resources, id)
		}
		s.changed.goneResources = append(s.changed.goneResources, s.ended[:over]...)
		s.ended = slices.Clone(s.ended[over:])
	}
}
