package placement_test

import (
	"context"
	"slices"
	"sync"

	"croft/placement/ledger"
)

// memory is a Store without persistence, for tests that do not concern etcd.
type memory struct {
	mu       sync.Mutex
	revision int64
	entries  map[ledger.Key]ledger.Entry
	changes  [][]ledger.Entry // by revision, from 2 on; like etcd it is at 1 when empty
	grown    chan struct{}
}

var _ ledger.Store = (*memory)(nil)

func newMemory() *memory {
	return &memory{revision: 1, entries: map[ledger.Key]ledger.Entry{}, grown: make(chan struct{})}
}

// copy returns a store with the contents of m.
func (m *memory) copy() *memory {
	out := newMemory()
	m.mu.Lock()
	defer m.mu.Unlock()
	out.revision, out.changes = m.revision, slices.Clip(m.changes)
	for k, e := range m.entries {
		out.entries[k] = e
	}
	return out
}

func (m *memory) now() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision
}

func (m *memory) Limit() int { return 1000 }

func (m *memory) Load(context.Context) (ledger.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := ledger.Snapshot{Revision: m.revision}
	for _, e := range m.entries {
		out.Entries = append(out.Entries, e)
	}
	return out, nil
}

func (m *memory) Watch(ctx context.Context, after int64, changed func(int64, []ledger.Entry)) error {
	for {
		m.mu.Lock()
		news, grown := slices.Clone(m.changes[min(int(after)-1, len(m.changes)):]), m.grown
		m.mu.Unlock()
		for _, entries := range news {
			after++
			changed(after, slices.Clone(entries))
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *memory) Commit(_ context.Context, t ledger.Txn) (ledger.Outcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := ledger.Outcome{Revision: m.revision, Before: m.revision}
	for _, c := range t.If {
		e := m.entries[c.Key]
		if c.Created && e.Created != c.Revision || !c.Created && e.Modified != c.Revision {
			return out, nil
		}
	}
	out.Done = true
	if len(t.Then) == 0 {
		return out, nil
	}
	m.revision++
	out.Revision = m.revision
	var entries []ledger.Entry
	for _, w := range t.Then {
		e := ledger.Entry{Key: w.Key, Value: w.Value, Created: m.entries[w.Key].Created, Modified: m.revision,
			Deleted: w.Delete}
		if e.Created == 0 {
			e.Created = m.revision
		}
		if w.Delete {
			delete(m.entries, w.Key)
		} else {
			m.entries[w.Key] = e
		}
		entries = append(entries, e)
	}
	m.changes = append(m.changes, entries)
	close(m.grown)
	m.grown = make(chan struct{})
	return out, nil
}
