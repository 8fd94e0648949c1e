package resize_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/hosts"
	"croft/hosts/audit"
	"croft/internal/testing/patient"
	"croft/schedule/resize"
	"croft/test/simcloud"
)

// shrunk runs a test in clouds whose host has the stopped instances web and other, and a volume, and then became
// smaller than their use: with croft's Placement, and with one that answers as OpenStack's.
func shrunk(t *testing.T, do func(w *world, web croft.Instance)) {
	t.Parallel()
	for name, prepare := range map[string]func(*simcloud.Cloud) error{
		"with croft's Placement":     func(*simcloud.Cloud) error { return nil },
		"with OpenStack's Placement": (*simcloud.Cloud).LikeOpenStack,
	} {
		t.Run(name, func(t *testing.T) {
			w := startWith(t, prepare)
			web := w.request("web", true)
			w.request("other", true)
			w.must(w.awaitVolume("data"))
			w.must(w.sim.Resize(context.WithoutCancel(w.ctx), "host1", 1))
			do(w, web)
		})
	}
}

// awaitVolume creates a volume of 1 GiB.
func (w *world) awaitVolume(name string) error {
	_, err := w.over.Volumes.Create(w.ctx, croft.DefaultProject, name, 1, "")
	return err
}

// clean checks that an audit finds nothing but that the host became smaller than its use.
func (w *world) clean() {
	w.Helper()
	report, err := w.over.Auditor.Audit(w.ctx)
	w.must(err)
	for _, d := range report.Differences {
		if d.Kind != audit.HostProblem {
			w.Errorf("the audit finds %s of %s: %s", d.Kind, d.Name, d.Cause)
		}
	}
}

func TestARefusedSizeOnAHostSmallerThanItsUseLeavesNothing(t *testing.T) {
	shrunk(t, func(w *world, web croft.Instance) {
		for range 2 { // the second request is not kept away by the first
			_, err := w.resize("web", croft.Resources{croft.DiskGB: 2})
			etcdtest.WantKind(t, err, croft.NoCapacity)
			_, err = w.over.Volumes.Grow(w.ctx, croft.DefaultProject, "data", 2)
			etcdtest.WantKind(t, err, croft.NoCapacity)
		}
		w.has(web, size(1, 256, 1))
		v, err := w.over.Volumes.Find(w.ctx, croft.DefaultProject, "data")
		if w.must(err); v.SizeGB != 1 || v.ClaimedGB != 1 {
			w.Errorf("the volume has %d GiB, and claims %d", v.SizeGB, v.ClaimedGB)
		}
		w.clean()
		_, err = w.over.Volumes.Remove(w.ctx, croft.DefaultProject, "data")
		w.must(err)
	})
}

func TestARefusedSizeWhoseProcessDiesLeavesNothing(t *testing.T) {
	shrunk(t, func(w *world, web croft.Instance) {
		for step := 1; ; step++ {
			for _, after := range []bool{false, true} {
				m := &mortal{Records: w.sim.Store.Instances, Claims: w.sim.Claims, left: step, after: after}
				dying := resize.Manager{Partition: w.sim.Store.Partition(), Records: m, Claims: m,
					Volumes: w.over.Volumes, Log: slog.New(slog.DiscardHandler)}
				_, err := dying.Resize(w.ctx, croft.DefaultProject, "web", size(2, 256, 2))
				if m.left > 0 {
					etcdtest.WantKind(t, err, croft.NoCapacity)
					return // it had fewer writes
				}
				now, err := w.sim.Store.Instances.Instance(w.ctx, web.ID)
				if w.must(err); now.Resizing != nil {
					w.must(w.over.Sizes.EndResize(w.ctx, now))
				}
				w.has(web, size(1, 256, 1))
				w.clean()
			}
		}
	})
}

func TestAnInstanceBecomesSmallerOnAHostSmallerThanItsUse(t *testing.T) {
	shrunk(t, func(w *world, web croft.Instance) {
		_, err := w.resize("web", croft.Resources{croft.MemoryMB: 128})
		w.must(err)
		now, err := w.sim.Store.Instances.Instance(w.ctx, web.ID)
		if w.must(err); now.Resizing != nil || now.Spec.Resources[croft.MemoryMB] != 128 {
			w.Errorf("it has %s, and the request %+v", now.Spec.Resources, now.Resizing)
		}
	})
}

// drained drains the host.
func (w *world) drained() hosts.Host {
	w.Helper()
	h, err := w.over.Fleet.Drain(w.ctx, "host1")
	w.must(err)
	return h
}

func TestAHostSmallerThanItsUseIsEmptied(t *testing.T) {
	shrunk(t, func(w *world, web croft.Instance) {
		// nobody has room yet
		moved, err := w.over.Fleet.MoveAll(w.ctx, w.drained())
		w.must(err)
		for _, m := range moved {
			if m.Stays == "" {
				w.Errorf("%s moves to %s", m.Instance.Name, m.To.Name)
			}
		}
		w.clean()

		w.must(w.sim.AddHost(context.WithoutCancel(w.ctx), "host2", 4))
		moved, err = w.over.Fleet.MoveAll(w.ctx, w.drained())
		if w.must(err); len(moved) != 2 {
			w.Fatalf("moved %+v", moved)
		}
		for _, m := range moved {
			if m.Stays != "" {
				w.Errorf("%s stays: %s", m.Instance.Name, m.Stays)
			}
		}
		if err := hosts.AwaitMoved(w.ctx, w.sim.Store.Instances, w.sim.Hosts["host1"].ID, moved); err != nil {
			w.Error(err)
		}
		// The claim ends a moment after the records of the guest.
		patient.Until(w.T, "the host has no claims of instances that have left it", func() bool {
			claims, err := w.sim.Claims.Claims(w.ctx, w.sim.Hosts["host1"].ID)
			return err == nil && len(claims) == 1 // the volume's
		})
		w.clean()
	})
}

// A move whose target has no room once it is claimed leaves no trace.
func TestAMoveThatIsRefusedOnAHostSmallerThanItsUseLeavesNothing(t *testing.T) {
	shrunk(t, func(w *world, web croft.Instance) {
		st, err := w.over.Scheduler.View.FindByID(w.ctx, web.ID)
		w.must(err)
		interrupted, err := w.sim.Store.Instances.SetMoving(w.ctx, st.Instance, croft.NewHostID())
		w.must(err)
		st.Instance = interrupted
		if err := w.over.Fleet.EndMove(w.ctx, st); err != nil {
			w.Error(err)
		}
		w.clean()
		st, err = w.over.Scheduler.View.FindByID(w.ctx, web.ID)
		w.must(err)
		if _, err := w.over.Fleet.Move(w.ctx, st, ""); !errors.Is(err, croft.NoCapacity) {
			w.Errorf("got %v, want no capacity", err)
		}
		w.clean()
	})
}
