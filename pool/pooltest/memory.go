// Package pooltest holds what tests of pools share: a store in memory, hooks that run
// nothing, and the contract that every store keeps.
package pooltest

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"croft"
	"croft/pool"
)

// Memory is a pool.Store in memory, for any number of servers of one test. Values are
// kept as they would be written, so that what is not written is lost.
type Memory struct {
	mu        sync.Mutex
	head      pool.Head
	pools     map[pool.Name]string
	resources map[pool.ResourceID]string
	tickets   map[pool.TicketID]string

	leader  *pool.Server
	term    int // of the leader
	lose    context.CancelFunc
	turned  chan struct{} // closed when the leader changes
	fault   error         // of every commit
	written bool          // nevertheless
}

var _ pool.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{pools: map[pool.Name]string{}, resources: map[pool.ResourceID]string{}, tickets: map[pool.TicketID]string{}, turned: make(chan struct{})}
}

// Lead implements pool.Store.
func (m *Memory) Lead(ctx context.Context, me pool.Server, act func(context.Context, pool.Term) error) error {
	m.mu.Lock()
	for m.leader != nil {
		turned := m.turned
		m.mu.Unlock()
		select {
		case <-turned:
		case <-ctx.Done():
			return ctx.Err()
		}
		m.mu.Lock()
	}
	leading, lose := context.WithCancel(context.WithoutCancel(ctx))
	defer lose()
	m.term++
	term := &memoryTerm{m, m.term}
	m.lose = lose
	m.turn(&me)
	m.mu.Unlock()
	err := act(leading, term)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.term == term.number {
		m.turn(nil)
	}
	return err
}

func (m *Memory) turn(leader *pool.Server) {
	m.leader = leader
	close(m.turned)
	m.turned = make(chan struct{})
}

// Depose takes the lead from whoever has it, as when its lease runs out; another server,
// or the same, may have it at once.
func (m *Memory) Depose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leader != nil {
		m.lose()
		m.term++
		m.turn(nil)
	}
}

// Fail has every commit fail from now on, until it is called with nil. Where it is
// written nevertheless, only the answer is lost.
func (m *Memory) Fail(err error, written bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault, m.written = err, written
}

// WatchLeader implements pool.Store.
func (m *Memory) WatchLeader(ctx context.Context, changed func(*pool.Server)) error {
	for {
		m.mu.Lock()
		leader, turned := m.leader, m.turned
		m.mu.Unlock()
		changed(leader)
		select {
		case <-turned:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Snapshot is everything that is stored.
func (m *Memory) Snapshot() (from pool.Snapshot, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from.Head = m.head
	if from.Pools, err = decodeAll[pool.Name, pool.Record](m.pools); err != nil {
		return from, err
	}
	if from.Resources, err = decodeAll[pool.ResourceID, pool.Resource](m.resources); err != nil {
		return from, err
	}
	from.Tickets, err = decodeAll[pool.TicketID, pool.Ticket](m.tickets)
	return from, err
}

func decodeAll[K cmp.Ordered, V any](from map[K]string) (all []V, err error) {
	for _, key := range slices.Sorted(maps.Keys(from)) {
		var v V
		if err := json.Unmarshal([]byte(from[key]), &v); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

type memoryTerm struct {
	*Memory
	number int
}

// Load implements pool.Term.
func (t *memoryTerm) Load(context.Context) (pool.Snapshot, error) { return t.Snapshot() }

// Commit implements pool.Term.
func (t *memoryTerm) Commit(_ context.Context, b pool.Batch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term != t.number {
		return croft.Errorf(croft.Conflict, "another server acts")
	}
	if t.fault == nil || t.written {
		t.apply(b)
	}
	return t.fault
}

func (t *memoryTerm) apply(b pool.Batch) {
	if b.Head != nil {
		t.head = *b.Head
	}
	for _, p := range b.Pools {
		t.pools[p.Settings.Name] = encode(p)
	}
	for _, r := range b.Resources {
		t.resources[r.ID] = encode(r)
	}
	for _, ticket := range b.Tickets {
		t.tickets[ticket.ID] = encode(ticket)
	}
	for _, id := range b.GoneTickets {
		delete(t.tickets, id)
	}
	for _, id := range b.GoneResources {
		delete(t.resources, id)
	}
	for _, name := range b.GonePools {
		delete(t.pools, name)
	}
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs of package pool
	}
	return string(text)
}
