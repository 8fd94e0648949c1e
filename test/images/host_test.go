package images

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
	"croft/compute/image"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unclaimed is a Placement without claims.
type unclaimed struct{}

func (unclaimed) EnsureProvider(context.Context, croft.Provider) error { return nil }
func (unclaimed) Claims(context.Context, croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	return nil, nil
}
func (unclaimed) Release(context.Context, croft.InstanceID, croft.Permit) error { return nil }

// host is an agent that runs until the test ends, with its files and servers.
type host struct {
	t     testing.TB
	store *etcdstore.Store
	id    croft.HostID
	name  string
	stop  func()
	state string // directory with images and instances, laid out as by croft compute
	agent *compute.Agent
}

func newHost(t testing.TB, builds int) *host {
	t.Helper()
	h := &host{t: t, store: etcdtest.Open(t, etcdtest.Server(t)), id: croft.NewHostID(), name: "h1", state: t.TempDir()}
	h.start(func(c *compute.Config) { c.MaxBuilds = builds })
	return h
}

// start starts the host's agent, as prepare changes it. stop ends it; otherwise it ends with the test.
func (h *host) start(prepare func(*compute.Config)) {
	t := h.t
	t.Helper()
	hv, err := sim.New(sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hv.Close() })
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	cache, err := image.New(image.Config{Dir: filepath.Join(h.state, "images"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	config := compute.Config{
		Host: croft.Host{ID: h.id, Name: h.name, VirtType: "sim"}, Partition: h.store.Partition(),
		Provider: croft.Provider{ID: h.id, Name: h.name}, Dir: filepath.Join(h.state, "instances"),
		NICs:   []compute.NIC{{Network: "default"}},
		Orders: h.store.Orders, Registry: h.store.Registry, Records: h.store.Records, Shared: h.store.Turn,
		Inventory:  unclaimed{},
		Hypervisor: hv, Images: cache,
		ResyncEvery: time.Hour, SweepEvery: time.Hour, Log: log,
	}
	prepare(&config)
	h.agent, err = compute.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		if err := h.agent.Run(ctx, func() { close(ready) }); err != nil {
			t.Error(err)
		}
	})
	h.stop = func() { cancel(); work.Wait() }
	t.Cleanup(h.stop)
	<-ready
}

// request writes the record and the order of an instance.
func (h *host) request(name, ref string) croft.Instance {
	h.t.Helper()
	inst, err := h.store.Instances.Create(h.t.Context(), croft.Instance{
		ID: croft.NewInstanceID(), Project: croft.DefaultProject, Name: name, Created: time.Now().UTC(),
		Spec: croft.Spec{Image: ref, Resources: croft.Resources{croft.VCPU: 1, croft.MemoryMB: 256, croft.DiskGB: 1}},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	for {
		assigned, err := h.store.Instances.Assign(h.t.Context(), inst, h.order(inst, croft.WantRunning))
		if errors.Is(err, croft.Unavailable) {
			continue // the host is not alive yet
		}
		if err != nil {
			h.t.Fatal(err)
		}
		return assigned
	}
}

func (h *host) order(inst croft.Instance, want croft.Want) croft.Order {
	return croft.Order{
		Partition: h.store.Partition(), Host: h.id, Instance: inst.ID, Generation: inst.Generation + 1, Want: want,
		Project: inst.Project, Name: inst.Name, Spec: inst.Spec, Issued: time.Now().UTC(),
	}
}

// destroy writes the instance's tombstone and waits until it is gone.
func (h *host) destroy(inst croft.Instance) {
	h.t.Helper()
	if _, err := h.store.Instances.Reorder(h.t.Context(), inst, h.order(inst, croft.WantGone)); err != nil {
		h.t.Fatal(err)
	}
	h.follow(inst, func(st *croft.Status) bool { return st == nil })
}

// await waits until the instance is observed in the state.
func (h *host) await(inst croft.Instance, want croft.State) {
	h.t.Helper()
	h.follow(inst, func(st *croft.Status) bool {
		if st == nil || want != croft.StateFailed && st.Observation != nil &&
			st.Observation.State == croft.StateFailed {
			h.t.Errorf("instance %s: %+v", inst.Name, st)
			return true
		}
		return st.Observation != nil && st.Observation.State == want
	})
}

func (h *host) follow(inst croft.Instance, until func(*croft.Status) bool) {
	h.t.Helper()
	if err := h.store.Instances.WatchInstance(h.t.Context(), inst.ID,
		func(st *croft.Status) bool { return !until(st) }); err != nil {
		h.t.Fatal(err)
	}
}

// files lists the regular files below a directory of the state.
func (h *host) files(dir string) []string {
	h.t.Helper()
	var found []string
	err := filepath.WalkDir(filepath.Join(h.state, dir), func(path string, e fs.DirEntry, err error) error {
		if err == nil && (e.Type().IsRegular() || dir == "instances" && path != filepath.Join(h.state, dir)) {
			rel, _ := filepath.Rel(h.state, path)
			found = append(found, rel)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	slices.Sort(found)
	return found
}
