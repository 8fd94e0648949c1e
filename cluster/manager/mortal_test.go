package manager_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/manager"
)

// mortal is a manager that may be killed between any two of its actions. Its holds last until their leases end, and its
// requests may still take effect.
type mortal struct {
	h      *history
	chance int // probability of death at each step, in thousandths; guarded by the history
	dead   atomic.Bool
	die    func()
}

// live runs a manager until it is killed, or ctx ends.
func (h *history) live(ctx context.Context, chance int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &mortal{h: h, chance: chance, die: cancel}
	d := mortalDriver{Driver: h.sites, m: m}
	one, err := manager.New(manager.Config{Backends: cluster.Backends{Partition: partition,
		Records: mortalRecords{h.store, m}, Catalogue: h.store,
		Drivers: map[cluster.SiteType]cluster.Driver{cluster.Sim: d}, Vault: h.keys,
		Log: h.log}, Sweep: 5 * time.Minute})
	h.fatal(err)
	if err := one.Run(ctx); err != nil {
		h.Error(err)
	}
	for _, id := range h.heldBy(m) {
		time.Sleep(rand.N(3 * time.Second))
		h.expire(id)
	}
}

var errDead = croft.Errorf(croft.Unavailable, "this manager is dead")

// step may kill the manager.
func (m *mortal) step() error {
	if m.h.dice(1000) < m.chance {
		m.dead.Store(true)
		m.die()
	}
	if m.dead.Load() {
		return errDead
	}
	return nil
}

// mortalRecords is the store for a mortal. Some answers are lost.
type mortalRecords struct {
	cluster.Records
	m *mortal
}

func (r mortalRecords) Get(ctx context.Context, id croft.ClusterID) (cluster.Cluster, error) {
	if r.m.dead.Load() {
		return cluster.Cluster{}, errDead
	}
	return r.Records.Get(ctx, id)
}

func (r mortalRecords) Update(ctx context.Context, c cluster.Cluster, by *cluster.Holder) (cluster.Cluster, error) {
	if err := r.m.step(); err != nil {
		return c, err
	}
	before, err := r.Records.Get(ctx, c.ID)
	if err != nil {
		return c, err
	}
	written, err := r.Records.Update(ctx, c, by)
	if err == nil {
		r.m.h.stable(before, written)
	}
	if dead := r.m.step(); dead != nil {
		return c, dead
	}
	if err == nil && r.m.chance > 0 && r.m.h.dice(50) == 0 {
		return c, croft.Errorf(croft.Unavailable, "the answer of the store was lost")
	}
	return written, err
}

func (r mortalRecords) Hold(ctx context.Context, id croft.ClusterID) (*cluster.Holder, error) {
	if r.m.dead.Load() {
		return nil, errDead
	}
	r.m.h.mu.Lock()
	defer r.m.h.mu.Unlock()
	h, err := r.Records.Hold(ctx, id)
	if err == nil {
		r.m.h.owners[id] = r.m
	}
	return h, err
}

func (r mortalRecords) Release(ctx context.Context, h *cluster.Holder) error {
	if r.m.dead.Load() {
		return errDead
	}
	r.m.h.mu.Lock()
	defer r.m.h.mu.Unlock()
	if r.m.h.owners[h.Cluster] == r.m {
		delete(r.m.h.owners, h.Cluster)
	}
	return r.Records.Release(ctx, h)
}

func (r mortalRecords) Forget(ctx context.Context, id croft.ClusterID) error {
	err := r.Records.Forget(ctx, id)
	r.m.h.mu.Lock()
	defer r.m.h.mu.Unlock()
	delete(r.m.h.owners, id)
	return err
}

func (r mortalRecords) Note(ctx context.Context, c cluster.Cluster, e cluster.Event) error {
	if err := r.m.step(); err != nil {
		return err
	}
	return r.Records.Note(ctx, c, e)
}

// mortalDriver is the driver for a mortal.
type mortalDriver struct {
	cluster.Driver
	m *mortal
}

func (d mortalDriver) Launch(ctx context.Context, at cluster.SiteAccess, b cluster.Build) (remote cluster.Remote,
	err error) {
	err = d.act(b, true, func() error { remote, err = d.Driver.Launch(ctx, at, b); return err })
	return remote, err
}

func (d mortalDriver) Resize(ctx context.Context, at cluster.SiteAccess, b cluster.Build) error {
	return d.act(b, true, func() error { return d.Driver.Resize(ctx, at, b) })
}

// Destroy is also called by sweeps, which hold nothing.
func (d mortalDriver) Destroy(ctx context.Context, at cluster.SiteAccess, b cluster.Build) error {
	return d.act(b, false, func() error { return d.Driver.Destroy(ctx, at, b) })
}

func (d mortalDriver) act(b cluster.Build, held bool, act func() error) error {
	if err := d.m.step(); err != nil {
		return err
	}
	if held {
		d.m.h.checkOwner(b.Cluster, d.m)
	}
	err := act()
	if dead := d.m.step(); dead != nil {
		return dead
	}
	return err
}

// history is a bench with the state of a random history.
type history struct {
	*bench
	mu      sync.Mutex
	r       *rand.Rand
	owners  map[croft.ClusterID]*mortal
	expired map[croft.ClusterID]time.Time
}

// dice returns a random number below n.
func (h *history) dice(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.r.IntN(n)
}

func (h *history) heldBy(m *mortal) (all []croft.ClusterID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, owner := range h.owners {
		if owner == m {
			all = append(all, id)
		}
	}
	return all
}

// expire ends the lease of a hold.
func (h *history) expire(id croft.ClusterID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owners, id)
	h.expired[id] = time.Now()
	h.store.Expire(id)
}

// checkOwner checks that no manager acts on a cluster that another one holds. A lease that ends between the write
// before an act and the act itself is no error.
func (h *history) checkOwner(id croft.ClusterID, m *mortal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owners[id] != m && !m.dead.Load() && !h.expired[id].Equal(time.Now()) {
		h.Errorf("a manager acts on cluster %s, which it does not hold", id)
	}
}

// stable checks that the immutable fields of a cluster have not changed.
func (h *history) stable(before, after cluster.Cluster) {
	if before.Remote.ID == "" || before.Remote.ID != after.Remote.ID {
		return
	}
	if before.MasterIP != "" && after.MasterIP != "" && before.MasterIP != after.MasterIP {
		h.Errorf("the master IP was %s and is %s", before.MasterIP, after.MasterIP)
	}
	for _, was := range before.Members {
		for _, is := range after.Members {
			if was.ID == is.ID && (was.Role != is.Role || was.Index != is.Index ||
				was.RemoteID != "" && was.RemoteID != is.RemoteID && was.State == cluster.MemberReady) {
				h.Errorf("member %+v has become %+v", was, is)
			}
		}
	}
}
