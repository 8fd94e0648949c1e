package kv

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// Limits of the comparisons of a copy with etcd. Unauthenticated requests can cause them, for example with invented
// tokens: however many such requests there are, etcd is queried only a few times a second.
const (
	lookEvery   = 250 * time.Millisecond // between the starts of two comparisons
	lookTime    = 5 * time.Second        // a watch that has not reported a write by then is disconnected
	mostLooking = 512                    // number of callers that wait at the same time
)

// Tail records how up to date a copy of all keys below a prefix is. It makes readers wait until the copy has everything
// that was stored before they asked.
type Tail struct {
	what   string // the followed records, for error messages
	newest func(ctx context.Context) (int64, error)
	Conn   *Conn // that reads the copy
	prefix string

	mu      sync.Mutex
	reached int64         // the greatest revision of a key in the copy; -1: nothing has been read yet
	moved   chan struct{} // closed when reached grows
	next    *look         // has not started; callers may join it; nil: the next caller creates one
	begun   time.Time     // start of the last look
	waiting int
}

// look is one comparison of a copy with etcd, for all callers that came before it started.
type look struct {
	done chan struct{}
	err  error
}

// NewTail returns the tail of a copy of all keys below a prefix.
func (c *Conn) NewTail(what, prefix string) *Tail {
	t := newTail(what, func(ctx context.Context) (int64, error) {
		got, err := c.Etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
			clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
		if err != nil {
			return 0, c.Wrap(err, "look for the newest of %s", what)
		}
		return newestOf(got.Kvs), nil
	})
	t.Conn, t.prefix = c, prefix
	return t
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

// Listed records that the copy has all of these keys.
func (t *Tail) Listed(all []*mvccpb.KeyValue) { t.reach(newestOf(all)) }

// Seen records that the copy has a change.
func (t *Tail) Seen(stored *mvccpb.KeyValue) { t.reach(stored.ModRevision) }

// Follow is like Conn.FollowWhole, and records that the copy has what listed and seen got.
func (t *Tail) Follow(ctx context.Context, listed func([]*mvccpb.KeyValue),
	seen func(stored *mvccpb.KeyValue, present bool)) error {
	return t.Conn.FollowWhole(ctx, t.prefix, func(all []*mvccpb.KeyValue) {
		listed(all)
		t.Listed(all)
	}, func(stored *mvccpb.KeyValue, present bool) {
		seen(stored, present)
		t.Seen(stored)
	})
}

// FollowDecoded calls changed with all values, by key, and again after each change, until ctx ends. The values are
// always complete, even while they are read again. A value that cannot be decoded is treated as missing.
func FollowDecoded[T any](ctx context.Context, t *Tail, decode func(*mvccpb.KeyValue) (T, error),
	changed func(map[string]T)) error {
	all := map[string]T{}
	note := func(stored *mvccpb.KeyValue) {
		if v, err := decode(stored); err == nil {
			all[string(stored.Key)] = v
		}
	}
	return t.Follow(ctx, func(listed []*mvccpb.KeyValue) {
		clear(all)
		for _, stored := range listed {
			note(stored)
		}
		changed(all)
	}, func(stored *mvccpb.KeyValue, present bool) {
		if delete(all, string(stored.Key)); present {
			note(stored)
		}
		changed(all)
	})
}

func (t *Tail) reach(revision int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if revision > t.reached {
		t.reached = revision
		close(t.moved)
		t.moved = make(chan struct{})
	}
}

// CatchUp returns once the copy has all keys that were stored when it was called. Callers share comparisons with etcd,
// which start at most every lookEvery. Unavailable.
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
	if leads { // others wait for this look, so it continues if this caller's request ends
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

// look waits until a look is allowed, and then until the copy has everything that is stored.
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
			return croft.Errorf(croft.Unavailable, "this server's copy of %s is older than etcd's: try again", t.what)
		}
	}
}
