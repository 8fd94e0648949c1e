package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
)

// openWatches tracks the open watches of a store.
type openWatches struct {
	mu   sync.Mutex
	ends map[int]context.CancelFunc
	n    int // number of watches started so far
	most int
}

// watch starts a watch at etcd and counts it until it ends.
func (o *openWatches) watch(ctx context.Context, own clientv3.Watcher, key string,
	options ...clientv3.OpOption) clientv3.WatchChan {
	o.mu.Lock()
	defer o.mu.Unlock()
	ctx, end := context.WithCancel(ctx)
	at := o.n
	o.n++
	o.ends[at] = end
	o.most = max(o.most, len(o.ends))
	context.AfterFunc(ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.ends, at)
	})
	return own.Watch(ctx, key, options...)
}

// cut breaks all watches.
func (o *openWatches) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, end := range o.ends {
		end()
	}
}

func (o *openWatches) open() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ends)
}

// Many requests of a tenant wait for instances. Together they cost etcd one watch, each gets every change of its
// instance, including changes around a broken watch, and the watch ends with the last request.
func TestManyWhoWaitForInstancesShareOneWatch(t *testing.T) {
	t.Parallel()
	const many, changes = 60, 5
	f := newFixture(t)
	s := etcdtest.Open(t, f.server)
	watches := &openWatches{ends: map[int]context.CancelFunc{}}
	s.WatchThrough(watches.watch)
	instances := make([]croft.Instance, 12)
	for i := range instances {
		inst := etcdtest.Must(f.Instances.Create(t.Context(), etcdtest.NewInstance(fmt.Sprint("w", i))))(t)
		order := f.order(1, croft.WantRunning)
		order.Instance = inst.ID
		instances[i] = etcdtest.Must(f.Instances.Assign(t.Context(), inst, order))(t)
	}
	var all, begun sync.WaitGroup
	begun.Add(many)
	for n := range many {
		inst := instances[n%len(instances)]
		all.Go(func() {
			first := true
			err := s.Instances.WatchInstance(t.Context(), inst.ID, func(st *croft.Status) bool {
				if first {
					first = false
					begun.Done()
				}
				return st.Observation == nil || st.Observation.Generation < changes
			})
			if err != nil {
				t.Errorf("waiter %d: %v", n, err)
			}
		})
	}
	begun.Wait()
	for n := range int64(changes) {
		if n == changes/2 {
			watches.cut()
		}
		for _, inst := range instances {
			seen := croft.Observation{Host: f.host, Instance: inst.ID, Generation: n + 1, State: croft.StateRunning}
			if err := f.Orders.Observe(t.Context(), seen); err != nil {
				t.Fatal(err)
			}
		}
	}
	all.Wait()
	if watches.most > many/2 { // watches of the first request, which has its own, may still be ending
		t.Errorf("%d waiters had %d watches at once", many, watches.most)
	}
	patient.Until(t, "the watches end", func() bool { return watches.open() == 0 })
}

// A change between the read of a waiter and its wait is not missed, whenever the shared watch started.
func TestAWaiterThatJoinsAWatchMissesNoChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := etcdtest.Open(t, f.server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var others sync.WaitGroup
	for range 2 { // one with its own watches, one that starts the shared watch
		begun := make(chan struct{})
		others.Go(func() {
			err := s.Instances.WatchInstance(ctx, f.inst.ID, func(*croft.Status) bool {
				select {
				case <-begun:
				default:
					close(begun)
				}
				return true
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("another waiter: %v", err)
			}
		})
		<-begun
	}
	inst := f.inst
	for range 30 {
		seen := false
		err := s.Instances.WatchInstance(t.Context(), inst.ID, func(st *croft.Status) bool {
			if st.Instance.Revision > inst.Revision {
				seen = true
				return false
			}
			inst.Revision = st.Instance.Revision
			next := etcdtest.Must(f.Instances.Fence(t.Context(), st.Instance))(t) // after the read, before the wait
			return next.Revision > inst.Revision
		})
		if err != nil || !seen {
			t.Fatalf("a change was not seen: %v", err)
		}
		inst = etcdtest.Must(f.Instances.Find(t.Context(), croft.DefaultProject, string(inst.ID)))(t).Instance
	}
	ended, end := context.WithCancel(t.Context())
	err := s.Instances.WatchInstance(ended, inst.ID, func(*croft.Status) bool { end(); return true })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a waiter whose request ended: %v", err)
	}
	cancel()
	others.Wait()
}
