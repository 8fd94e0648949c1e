// Package pooltest holds the parts that tests of pools share: a store in memory, hooks that run nothing, and the
// contract of every store.
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

// Memory is a pool.Store in memory, for any number of servers of one test. Values are stored encoded, so that
// fields that are not encoded are lost.
type Memory struct {
	mu        sync.Mutex
	head      pool.Head
	pools     map[pool.Name]string
	resources map[pool.ResourceID]string
	tickets   map[pool.TicketID]string

	leader *pool.Server
	term   int // of the leader
	lose   context.CancelFunc
	turned chan struct{} // closed when the leader changes
	fault  error         // error of every commit
	part   float64       // share of a failing commit's writes that are made nevertheless
	cut    bool          // the newest commit was written only in part
}

var _ pool.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{pools: map[pool.Name]string{}, resources: map[pool.ResourceID]string{},
		tickets: map[pool.TicketID]string{}, turned: make(chan struct{})}
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

// Depose revokes the lead, as when its lease expires. Any server, even the same one, may lead at once.
func (m *Memory) Depose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leader != nil {
		m.lose()
		m.term++
		m.turn(nil)
	}
}

// Fail makes every commit fail with err until it is called with nil. The share part of the writes is made nevertheless,
// as if a batch took several transactions: 0: nothing; 1: everything, so that only the answer is lost.
func (m *Memory) Fail(err error, part float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault, m.part = err, part
}

// CommittedAtomically reports whether the newest commit was written completely or not at all.
func (m *Memory) CommittedAtomically() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.cut
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

// Snapshot returns everything stored.
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
	writes := t.writes(b)
	n := len(writes)
	if t.fault != nil {
		n = int(float64(n) * t.part)
	}
	for _, write := range writes[:n] {
		write()
	}
	if n > 0 {
		t.cut = n < len(writes)
	}
	return t.fault
}

// writes returns the writes of a batch, in order.
func (t *memoryTerm) writes(b pool.Batch) (all []func()) {
	if b.Head != nil {
		all = append(all, func() { t.head = *b.Head })
	}
	all = append(all, puts(t.pools, b.Pools, func(p pool.Record) pool.Name { return p.Settings.Name })...)
	ended, open := b.TicketsByEnd()
	all = append(all, puts(t.tickets, ended, func(t pool.Ticket) pool.TicketID { return t.ID })...)
	all = append(all, puts(t.resources, b.Resources, func(r pool.Resource) pool.ResourceID { return r.ID })...)
	all = append(all, puts(t.tickets, open, func(t pool.Ticket) pool.TicketID { return t.ID })...)
	all = append(all, deletes(t.tickets, b.GoneTickets)...)
	all = append(all, deletes(t.resources, b.GoneResources)...)
	return append(all, deletes(t.pools, b.GonePools)...)
}

func puts[K comparable, V any](into map[K]string, values []V, key func(V) K) (all []func()) {
	for _, v := range values {
		all = append(all, func() { into[key(v)] = encode(v) })
	}
	return all
}

func deletes[K comparable](from map[K]string, keys []K) (all []func()) {
	for _, k := range keys {
		all = append(all, func() { delete(from, k) })
	}
	return all
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // impossible: v is a plain struct of package pool
	}
	return string(text)
}
