package etcdstore

import (
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// waiters are the callers of WatchInstance of one store. The first caller watches the keys of its instance, which is
// cheapest for a command. All others share one watch of all instances, so that many waiting requests of a tenant do not
// each need a watch of etcd.
type waiters struct {
	conn *conn

	mu     sync.Mutex
	alone  bool           // one caller has its own watches
	shared *instanceWatch // nil: no shared watch is running
}

// instanceWatch is one watch of all records and observations. It ends with its last waiter, or when it breaks.
type instanceWatch struct {
	end    context.CancelFunc
	begun  chan struct{} // closed once the watch reports every later change
	broken chan struct{} // closed once the watch reports no more changes
	err    error         // why it did not start

	// protected by the mutex of waiters:
	waiting map[croft.InstanceID]map[*waiter]struct{}
}

// waiter waits for changes of one instance.
type waiter struct {
	of    *waiters
	watch *instanceWatch
	id    croft.InstanceID
	moved chan struct{} // contains an element after a change
	last  int64         // revision of the last change; protected by the mutex of waiters
}

// errWatchBroke makes a waiter read its instance again, and join another watch.
var errWatchBroke = errors.New("the watch broke")

// takeAlone reports whether the caller may watch its own keys; if so, it must call leaveAlone afterwards.
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

// join adds a waiter for changes of an instance to the shared watch: data that is read after join returns is not older
// than the first change that the waiter gets. The caller must call leave at the end.
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

// begin starts the shared watch. The caller holds the mutex.
func (w *waiters) begin() *instanceWatch {
	ctx, end := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	watch := &instanceWatch{end: end, begun: make(chan struct{}), broken: make(chan struct{}),
		waiting: map[croft.InstanceID]map[*waiter]struct{}{}}
	w.shared = watch
	w.conn.work.Go(func() { w.run(ctx, watch) })
	return watch
}

// run reports changes until the watch ends or breaks for any reason.
func (w *waiters) run(ctx context.Context, watch *instanceWatch) {
	defer close(watch.broken)
	defer w.retire(watch)
	defer w.conn.watching()()
	k := w.conn.keys
	got, err := w.conn.etcd.Get(ctx, homeKey, clientv3.WithCountOnly())
	if err != nil {
		watch.err = w.conn.wrap(err, "start the watch of instances")
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

// tell reports a change of an instance to its waiters. The watch also covers other kinds of keys between the records
// and the observations. Their last part is either not the ID of an awaited instance, or causes a superfluous change,
// after which the waiter reads the same state again.
func (w *waiters) tell(watch *instanceWatch, id croft.InstanceID, revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range watch.waiting[id] {
		one.last = revision
		select {
		case one.moved <- struct{}{}:
		default: // the waiter has not yet handled an earlier change
		}
	}
}

// retire makes the next waiter start another watch.
func (w *waiters) retire(watch *instanceWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch.end()
	if w.shared == watch {
		w.shared = nil
	}
}

// leave removes the waiter, and ends the watch if no other waiter remains.
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
