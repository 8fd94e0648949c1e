package kv

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// The bounds of looks for what a copy lacks. Requests that nobody vouches for may ask, such as those with tokens that
// were made up: however many there are, etcd is asked a few times a second.
const (
	lookEvery   = 250 * time.Millisecond // between the starts of two looks
	lookTime    = 5 * time.Second        // a watch that has not told of a write by then is cut off
	mostLooking = 512                    // callers that wait at once
)

// Tail knows how far a copy has come that follows all keys below a prefix, and has readers wait until it has what was
// stored before they asked.
type Tail struct {
	what   string // that is followed, for people
	newest func(ctx context.Context) (int64, error)

	mu      sync.Mutex
	reached int64         // the greatest revision of a key that the copy has; -1: it was not read yet
	moved   chan struct{} // closed when reached grows
	next    *look         // has not begun; callers may join it; nil: the next caller makes one
	begun   time.Time     // the last look
	waiting int
}

// look is one comparison of a copy with what is stored, for all callers that came before it.
type look struct {
	done chan struct{}
	err  error
}

// NewTail returns the tail of a copy of all keys below a prefix.
func (c *Conn) NewTail(what, prefix string) *Tail {
	return newTail(what, func(ctx context.Context) (int64, error) {
		got, err := c.Etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
			clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
		if err != nil {
			return 0, c.Wrap(err, "look for the newest of %s", what)
		}
		return newestOf(got.Kvs), nil
	})
}

func newTail(what string, newest func(ctx context.Context) (int64, error)) *Tail {
	return &Tail{what: what, newest: newest, reached: -1, moved: make(chan struct{})}
}

func newestOf(all []*mvccpb.KeyValue) (revision int64) {
	for _, stored := range all {
		revision = max(revision, stored.ModRevision)
	}
	return revision
}

// Listed notes that the copy has all of these keys.
func (t *Tail) Listed(all []*mvccpb.KeyValue) { t.reach(newestOf(all)) }

// Seen notes that the copy has a change.
func (t *Tail) Seen(stored *mvccpb.KeyValue) { t.reach(stored.ModRevision) }

func (t *Tail) reach(revision int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if revision > t.reached {
		t.reached = revision
		close(t.moved)
		t.moved = make(chan struct{})
	}
}

// CatchUp returns once the copy has all keys that were stored when it was called. Callers share looks at etcd, which
// begin at most every lookEvery. Unavailable.
func (t *Tail) CatchUp(ctx context.Context) error {
	t.mu.Lock()
	if t.waiting >= mostLooking {
		t.mu.Unlock()
		return croft.Errorf(croft.Unavailable, "too many requests wait for %s to be read: try again", t.what)
	}
	t.waiting++
	l, leads := t.next, t.next == nil
	if leads {
		l = &look{done: make(chan struct{})}
		t.next = l
	}
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waiting--
	}()
	if leads { // others wait for this look, so it goes on if the request of this caller ends
		l.err = t.look(context.WithoutCancel(ctx))
		close(l.done)
		return l.err
	}
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look waits for its time, and then until the copy has what is stored.
func (t *Tail) look(ctx context.Context) error {
	t.mu.Lock()
	pause := time.Until(t.begun.Add(lookEvery))
	t.mu.Unlock()
	time.Sleep(pause)
	t.mu.Lock()
	t.next, t.begun = nil, time.Now()
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	stored, err := t.newest(ctx)
	if err != nil {
		return err
	}
	for {
		t.mu.Lock()
		reached, moved := t.reached, t.moved
		t.mu.Unlock()
		if reached >= stored {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return croft.Errorf(croft.Unavailable, "what this server knows of %s is behind what is stored: try again", t.what)
		}
	}
}
