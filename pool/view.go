package pool

import (
	"reflect"
	"sync"
)

// view is the written state, for readers. It lags behind the ledger by the round being written, so that readers never
// see state that a crash could undo.
type view struct {
	mu        sync.RWMutex
	head      Head
	pools     map[Name]Record
	counts    map[Name]*Counts
	resources map[ResourceID]Resource
	tickets   map[TicketID]Ticket
	waiters   map[TicketID]chan struct{} // closed when the ticket changed
	changed   chan struct{}              // closed when anything changed
	closed    bool                       // this server lost the lead
}

func newView(from Snapshot) *view {
	v := &view{
		pools: map[Name]Record{}, counts: map[Name]*Counts{}, resources: map[ResourceID]Resource{},
		tickets: map[TicketID]Ticket{},
		waiters: map[TicketID]chan struct{}{}, changed: make(chan struct{}),
	}
	v.apply(Batch{Head: &from.Head, Pools: from.Pools, Resources: from.Resources, Tickets: from.Tickets})
	return v
}

// apply applies a written batch, and wakes its waiters.
func (v *view) apply(b Batch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if b.Head != nil {
		v.head = *b.Head
	}
	for _, p := range b.Pools {
		before, known := v.pools[p.Settings.Name]
		v.pools[p.Settings.Name] = p
		if known && !reflect.DeepEqual(before.Settings, p.Settings) {
			v.recount(p.Settings.Name)
		}
	}
	for _, r := range b.Resources {
		v.count(r.ID, -1)
		v.resources[r.ID] = r
		v.count(r.ID, +1)
	}
	for _, t := range b.Tickets {
		v.tickets[t.ID] = t
		v.wake(t.ID)
	}
	for _, name := range b.GonePools {
		delete(v.pools, name)
		delete(v.counts, name)
	}
	for _, id := range b.GoneResources {
		delete(v.resources, id)
	}
	for _, id := range b.GoneTickets {
		delete(v.tickets, id)
		v.wake(id)
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

// count adds a resource to the counts of its pool, or subtracts it.
func (v *view) count(id ResourceID, sign int) {
	r, known := v.resources[id]
	if !known || !r.Live() {
		return
	}
	c := v.counts[r.Pool]
	if c == nil {
		c = &Counts{}
		v.counts[r.Pool] = c
	}
	set := v.pools[r.Pool].Settings
	c.add(&set, &r, sign)
}

// recount counts the resources of a pool whose settings changed.
func (v *view) recount(name Name) {
	delete(v.counts, name)
	for id, r := range v.resources {
		if r.Pool == name {
			v.count(id, +1)
		}
	}
}

func (v *view) wake(id TicketID) {
	if c, waits := v.waiters[id]; waits {
		close(c)
		delete(v.waiters, id)
	}
}

// close wakes all waiters: this server lost the lead.
func (v *view) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for id := range v.waiters {
		v.wake(id)
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

// ticket returns a ticket, and a channel that is closed when it changes; nil: the ticket is unknown, or the view
// is closed.
func (v *view) ticket(id TicketID) (*Ticket, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, known := v.tickets[id]
	if !known || v.closed {
		return nil, nil
	}
	c := v.waiters[id]
	if c == nil {
		c = make(chan struct{})
		v.waiters[id] = c
	}
	return &t, c
}

// status joins a ticket with its resource, and says what it waits for.
func (v *view) status(t Ticket) TicketStatus {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.statusLocked(t)
}

func (v *view) statusLocked(t Ticket) TicketStatus {
	st := TicketStatus{Ticket: t}
	if r, known := v.resources[t.Resource]; known {
		st.Has = &r
	}
	if t.Waiting() {
		st.Waits, st.Never = v.why(&t)
	}
	return st
}
