package accesstest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"croft"
	"croft/tenant/access"
)

var (
	_ access.Tokens    = (*Memory)(nil)
	_ access.TokenFeed = (*Memory)(nil)
)

// Memory is a store of tokens in memory. The zero value is not usable: call NewMemory.
type Memory struct {
	mu      sync.Mutex
	tokens  map[access.TokenID]access.Token
	watches map[*watch]bool
}

// watch is the state of one call of Watch.
type watch struct {
	broken bool
	news   []access.TokenID
	wake   chan struct{} // holds a value if there are changes or the watch was broken
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{tokens: map[access.TokenID]access.Token{}, watches: map[*watch]bool{}}
}

// Create implements access.Tokens.
func (m *Memory) Create(ctx context.Context, t access.Token) error {
	if err := cmp.Or(ctx.Err(), t.Check()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.tokens[t.ID]; taken {
		return croft.Errorf(croft.Conflict, "there is a token %s already", t.ID)
	}
	m.tokens[t.ID] = t
	m.tell(t.ID)
	return nil
}

// Find implements access.Tokens.
func (m *Memory) Find(ctx context.Context, scope access.Scope, id access.TokenID) (access.Token, error) {
	if err := ctx.Err(); err != nil {
		return access.Token{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.find(scope, id)
}

func (m *Memory) find(scope access.Scope, id access.TokenID) (access.Token, error) {
	t, ok := m.tokens[id]
	if !ok || !scope.Sees(t.Project) {
		return access.Token{}, croft.Errorf(croft.NotFound, "there is no token %q", id)
	}
	return t, nil
}

// List implements access.Tokens.
func (m *Memory) List(ctx context.Context, scope access.Scope) ([]access.Token, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []access.Token
	for _, t := range m.tokens {
		if scope.Sees(t.Project) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b access.Token) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// Revoke implements access.Tokens.
func (m *Memory) Revoke(ctx context.Context, scope access.Scope, id access.TokenID) (access.Token, error) {
	if err := ctx.Err(); err != nil {
		return access.Token{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.find(scope, id)
	if err == nil {
		delete(m.tokens, id)
		m.tell(id)
	}
	return t, err
}

// tell adds a changed token to each watch.
func (m *Memory) tell(id access.TokenID) {
	for w := range m.watches {
		if !w.broken {
			w.news = append(w.news, id)
			w.poke()
		}
	}
}

func (w *watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Watch implements access.TokenFeed.
func (m *Memory) Watch(ctx context.Context, all func([]access.Token),
	changed func(access.TokenID, *access.Token)) error {
	w := &watch{wake: make(chan struct{}, 1)}
	m.mu.Lock()
	m.watches[w] = true
	now := slices.Collect(maps.Values(m.tokens))
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watches, w)
	}()
	all(now)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		m.pass(w, all, changed)
	}
}

// pass reports the changes to a watch, or everything if it was broken.
func (m *Memory) pass(w *watch, all func([]access.Token), changed func(access.TokenID, *access.Token)) {
	m.mu.Lock()
	news, broken := w.news, w.broken
	w.news, w.broken = nil, false
	known := maps.Clone(m.tokens)
	m.mu.Unlock()
	if broken {
		all(slices.Collect(maps.Values(known)))
		return
	}
	for _, id := range news {
		if t, ok := known[id]; ok {
			changed(id, &t)
		} else {
			changed(id, nil)
		}
	}
}

// Break makes all watches miss the changes of do, as if the history had been compacted.
func (m *Memory) Break(do func()) {
	m.mu.Lock()
	for w := range m.watches {
		w.broken, w.news = true, nil
	}
	m.mu.Unlock()
	do()
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watches {
		w.poke()
	}
}
