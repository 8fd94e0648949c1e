package system

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"croft"
	"croft/compute"
	"croft/hosts"
	"croft/schedule"
)

// The tests of this file give a UUID to a second instance while a process is delayed that knows the first one's claim.

// heldRelease is an agent that is delayed before it releases a claim.
type heldRelease struct {
	compute.Inventory
	hold func()
}

func (h *heldRelease) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	return h.Inventory.Release(context.WithoutCancel(ctx), id, func(ctx context.Context) ([]croft.HostID, error) {
		on, err := may(ctx)
		h.hold()
		return on, err
	})
}

// An agent is delayed between reading the record and releasing the claim; meanwhile the instance is buried and its
// UUID used again on another host.
func TestATombstoneLeavesTheClaimOfAReusedUUID(t *testing.T) {
	w := newWorld(t, 1, 2, 0)
	inst := w.throwaway(t.Context())
	a := w.machineOf(inst.Host)
	other := w.hosts[1-a.n]
	over := make(chan struct{})
	a.leave()
	a.inventory = &heldRelease{w.claims, sync.OnceFunc(func() {
		defer close(over)
		st := w.found(t, inst.ID) // schedule destroy --force, and the same --uuid again
		if err := w.claims.Release(t.Context(), inst.ID, croft.On()); err != nil {
			t.Error(err)
		}
		tombstone := croft.Order{Partition: w.store.Partition(), Host: a.id, Instance: inst.ID,
			Generation: st.Instance.Generation + 1, Want: croft.WantGone}
		if err := w.store.Instances.Bury(t.Context(), st.Instance, tombstone); err != nil {
			t.Error(err)
		}
		err := w.scheduler(0, func(s *schedule.Scheduler) error {
			q, err := schedule.ParseQuery("resources=VCPU:1,MEMORY_MB:1024,DISK_GB:10&in_tree=" + string(other.id))
			if err != nil {
				return err
			}
			_, err = s.Request(t.Context(), schedule.Request{ID: inst.ID, Query: q, Image: simulated, Name: "again"})
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})}
	a.boot(0)
	err := w.scheduler(0, func(s *schedule.Scheduler) error {
		_, err := s.Destroy(t.Context(), inst.Project, inst.Name, false)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	<-over
	w.await(t, "the tombstone is carried out", func() bool {
		_, err := w.store.Orders.Order(t.Context(), a.id, inst.ID)
		return errors.Is(err, croft.NotFound)
	})
	w.claimed(t, other.id)
	w.facts[inst.ID].name = "again"
	w.settle()
}

// assignHook is a scheduler that is delayed before it writes an order.
type assignHook struct {
	*schedulerSide
	before func()
}

func (h *assignHook) Assign(ctx context.Context, i croft.Instance, o croft.Order) (croft.Instance, error) {
	h.before()
	return h.schedulerSide.Assign(ctx, i, o)
}

// Like TestATombstoneLeavesTheClaimOfAReusedUUID, with the UUID used again on the same host: the tombstone is carried
// out after the new claim and before the new order.
func TestATombstoneLeavesTheNextClaimOnItsHost(t *testing.T) {
	w := newWorld(t, 1, 1, 0)
	inst := w.throwaway(t.Context())
	a := w.hosts[0]
	a.leave()
	var asking sync.WaitGroup
	defer asking.Wait()
	begun := make(chan struct{})
	a.inventory = &heldRelease{w.claims, sync.OnceFunc(func() {
		defer close(begun)
		st := w.found(t, inst.ID)
		if err := w.claims.Release(t.Context(), inst.ID, croft.On()); err != nil {
			t.Error(err)
		}
		tombstone, err := w.store.Orders.Order(t.Context(), a.id, inst.ID)
		if err == nil {
			err = w.store.Instances.Bury(t.Context(), st.Instance, tombstone)
		}
		if err != nil {
			t.Error(err)
		}
		claimed := make(chan struct{})
		reached := sync.OnceFunc(func() { close(claimed) })
		side := &assignHook{&schedulerSide{w: w, gate: w.gate(0), Records: w.store.Instances,
			Holds: w.store.Instances, View: w.store.Instances, Registry: w.store.Registry, Groups: w.store.Groups,
			Claims: w.claims}, func() {
			reached()
			w.await(t, "the tombstone is carried out", func() bool {
				_, err := w.store.Orders.Order(t.Context(), a.id, inst.ID)
				return errors.Is(err, croft.NotFound)
			})
		}}
		asking.Go(func() {
			defer reached()
			s, err := schedule.New(schedule.Config{Partition: w.store.Partition(), Records: side, Holds: side,
				View: side, Registry: side, Groups: side, Claims: side})
			if err == nil {
				_, err = s.Request(t.Context(), schedule.Request{ID: inst.ID, Query: query, Image: simulated,
					Name: "again"})
			}
			if err != nil {
				t.Error(err)
			}
		})
		<-claimed
	})}
	a.boot(0)
	// The agent registers as alive after its first pass; the hook delays the passes after the destruction.
	w.await(t, "the host takes orders", func() bool { return w.takesOrders(a.id) })
	err := w.scheduler(0, func(s *schedule.Scheduler) error {
		_, err := s.Destroy(t.Context(), inst.Project, inst.Name, false)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	asking.Wait()
	w.claimed(t, a.id)
	w.facts[inst.ID].name = "again"
	w.settle()
}

// takesOrders reports whether the host's agent is registered as alive.
func (w *world) takesOrders(id croft.HostID) bool {
	all, err := w.store.Registry.Hosts(w.t.Context())
	return err == nil && all[id].Alive
}

// A mover is delayed before it moves the claim; meanwhile the instance is buried and its UUID used again.
func TestAMoverLeavesTheClaimOfAReusedUUID(t *testing.T) {
	w := newWorld(t, 1, 3, 0)
	inst := w.throwaway(t.Context())
	store := w.open()
	side := &heldReclaim{operatorSide: &operatorSide{w: w, gate: w.gate(0), hostBook: store.Registry,
		instanceBook: store.Instances, claimBook: w.claims}}
	side.hold = sync.OnceFunc(func() {
		now := w.found(t, inst.ID).Instance
		if err := w.claims.Release(t.Context(), inst.ID, croft.On()); err != nil {
			t.Error(err)
		}
		tombstone := croft.Order{Partition: w.store.Partition(), Host: now.Host, Instance: now.ID,
			Generation: now.Generation + 1, Want: croft.WantGone}
		if err := w.store.Instances.Bury(t.Context(), now, tombstone); err != nil {
			t.Error(err)
		}
		third := slices.IndexFunc(w.hosts, func(m *machine) bool { return m.id != now.Host && m.id != now.Moving })
		err := w.scheduler(0, func(s *schedule.Scheduler) error {
			q, err := schedule.ParseQuery("resources=VCPU:1,MEMORY_MB:1024,DISK_GB:10&in_tree=" +
				string(w.hosts[third].id))
			if err != nil {
				return err
			}
			_, err = s.Request(t.Context(), schedule.Request{ID: inst.ID, Query: q, Image: simulated, Name: "again"})
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	o, err := hosts.New(hosts.Config{Partition: store.Partition(), Hosts: side, Members: store.Cluster,
		Instances: side, Orders: store.Orders, Claims: side})
	if err != nil {
		t.Fatal(err)
	}
	h, err := o.Drain(t.Context(), string(inst.Host))
	if err != nil {
		t.Fatal(err)
	}
	moved, err := o.MoveAll(t.Context(), h)
	t.Logf("the mover: %v %v", len(moved), err)
	w.claimed(t, w.found(t, inst.ID).Instance.Host)
	w.facts[inst.ID].name = "again"
	w.settle()
}
