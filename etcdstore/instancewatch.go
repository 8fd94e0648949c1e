package etcdstore

import (
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// waiters are the callers of WatchInstance of one store. The first one watches the keys of its instance, which costs a
// command least. All others share one watch of all instances, so that a tenant's many requests that wait cost etcd no
// watch each.
type waiters struct {
	conn *conn

	mu     sync.Mutex
	alone  bool           // a caller has its own watches
	shared *instanceWatch // nil: no watch runs
}

// instanceWatch is one watch of all records and observations. It ends with its last waiter, or when it breaks.
type instanceWatch struct {
	end    context.CancelFunc
	begun  chan struct{} // closed once every later change is told
	broken chan struct{} // closed once no more changes are told
	err    error         // why it did not begin

	// under the mutex of waiters:
	waiting map[croft.InstanceID]map[*waiter]struct{}
}

// waiter waits for changes of one instance.
type waiter struct {
	of    *waiters
	watch *instanceWatch
	id    croft.InstanceID
	moved chan struct{} // has an element after a change
	last  int64         // revision of the last change; under the mutex of waiters
}

// errWatchBroke tells a waiter to read its instance again, and to join another watch.
var errWatchBroke = errors.New("the watch broke")

// takeAlone reports whether the caller may watch its own keys; it calls leaveAlone then.
func (w *waiters) takeAlone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.alone
	w.alone = true
	return first
}

func (w *waiters) leaveAlone() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alone = false
}

// join has the shared watch tell changes of an instance from now on: what is read after join returns is not older than
// the first change that is told. The caller ends it with leave.
func (w *waiters) join(ctx context.Context, id croft.InstanceID) (*waiter, error) {
	w.mu.Lock()
	watch := w.shared
	if watch == nil {
		watch = w.begin()
	}
	one := &waiter{of: w, watch: watch, id: id, moved: make(chan struct{}, 1)}
	if watch.waiting[id] == nil {
		watch.waiting[id] = map[*waiter]struct{}{}
	}
	watch.waiting[id][one] = struct{}{}
	w.mu.Unlock()
	select {
	case <-watch.begun:
		if watch.err == nil {
			return one, nil
		}
		one.leave()
		return nil, watch.err
	case <-ctx.Done():
		one.leave()
		return nil, ctx.Err()
	}
}

// begin starts the shared watch. The caller has the mutex.
func (w *waiters) begin() *instanceWatch {
	ctx, end := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	watch := &instanceWatch{end: end, begun: make(chan struct{}), broken: make(chan struct{}),
		waiting: map[croft.InstanceID]map[*waiter]struct{}{}}
	w.shared = watch
	w.conn.work.Go(func() { w.run(ctx, watch) })
	return watch
}

// run tells changes until the watch ends or breaks for any reason.
func (w *waiters) run(ctx context.Context, watch *instanceWatch) {
	defer close(watch.broken)
	defer w.retire(watch)
	defer w.conn.watching()()
	k := w.conn.keys
	got, err := w.conn.etcd.Get(ctx, homeKey, clientv3.WithCountOnly())
	if err != nil {
		watch.err = w.conn.wrap(err, "begin to watch instances")
		w.retire(watch) // before its waiters join another one
		close(watch.begun)
		return
	}
	answers := w.conn.etcd.Watch(ctx, k.instances(), clientv3.WithRange(clientv3.GetPrefixRangeEnd(k.allObserved())),
		clientv3.WithRev(got.Header.Revision+1))
	close(watch.begun)
	for answer := range answers {
		if answer.Err() != nil {
			return
		}
		for _, event := range answer.Events {
			w.tell(watch, croft.InstanceID(last(event.Kv.Key)), event.Kv.ModRevision)
		}
	}
}

// tell tells the waiters for an instance of a change. Keys of other kinds between the records and the observations name
// no instance that is waited for, or tell of a change too many, after which the waiter reads the same again.
func (w *waiters) tell(watch *instanceWatch, id croft.InstanceID, revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range watch.waiting[id] {
		one.last = revision
		select {
		case one.moved <- struct{}{}:
		default: // an earlier change was not looked at yet
		}
	}
}

// retire has the next waiter begin another watch.
func (w *waiters) retire(watch *instanceWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch.end()
	if w.shared == watch {
		w.shared = nil
	}
}

// leave ends the watch if nobody else waits.
func (one *waiter) leave() {
	one.of.mu.Lock()
	waiting := one.watch.waiting
	delete(waiting[one.id], one)
	if len(waiting[one.id]) == 0 {
		delete(waiting, one.id)
	}
	if len(waiting) > 0 {
		one.of.mu.Unlock()
		return
	}
	if one.of.shared == one.watch {
		one.of.shared = nil
	}
	one.of.mu.Unlock()
	one.watch.end()
}

// await returns once the instance changed at revision from or later.
func (one *waiter) await(ctx context.Context, from int64) error {
	for {
		one.of.mu.Lock()
		reached := one.last >= from
		one.of.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-one.moved:
		case <-one.watch.broken:
			return errWatchBroke
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
