package local_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/local"
	"croft/etcdstore/etcdserver"
	"croft/hypervisor/sim"
	"croft/internal/testing/patient"
	"croft/schedule"
	"croft/test/simcloud"
)

// world is a cloud with three hosts, which all tests share.
type world struct {
	*simcloud.Cloud
	stuck atomic.Bool // removals fail
}

var theWorld *world

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "croft-local")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		theWorld = open(dir)
		local.SetLeftBehind(time.Second)
		code := m.Run()
		theWorld.Close()
		if err := goleak.Find(); err != nil && code == 0 {
			println(err.Error())
			return 1
		}
		return code
	}())
}

// places is how many members of one VCPU a host has room for.
const places = 6

func open(dir string) *world {
	ctx := context.Background()
	c, err := simcloud.New(ctx, dir, etcdserver.Config{})
	if err != nil {
		panic(err)
	}
	w := &world{Cloud: c}
	c.Fault = func(op string, _ croft.InstanceID) error {
		if op == sim.OpRemove && w.stuck.Load() {
			return errors.New("the device is busy")
		}
		return nil
	}
	for _, name := range []string{"one", "two", "three"} {
		if err := c.AddHost(ctx, name, places); err != nil {
			panic(err)
		}
	}
	return w
}

// view is a View that can be cut off.
type view struct {
	schedule.View
	schedule.Registry
	away, hangs *atomic.Bool
	left        *atomic.Int64 // calls until the cloud answers no more; nil: it always does
}

func (v view) reach(ctx context.Context) error {
	switch {
	case v.hangs.Load():
		<-ctx.Done()
		return ctx.Err()
	case v.away.Load(), v.left != nil && v.left.Add(-1) < 0:
		return croft.Errorf(croft.Unavailable, "etcd does not answer")
	}
	return nil
}

func (v view) Find(ctx context.Context, p croft.Project, idOrName string) (croft.Status, error) {
	if err := v.reach(ctx); err != nil {
		return croft.Status{}, err
	}
	return v.View.Find(ctx, p, idOrName)
}

func (v view) List(ctx context.Context, p croft.Project) ([]croft.Status, error) {
	if err := v.reach(ctx); err != nil {
		return nil, err
	}
	return v.View.List(ctx, p)
}

func (v view) Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	if err := v.reach(ctx); err != nil {
		return nil, err
	}
	return v.Registry.Hosts(ctx, ids...)
}

// writes are the writes of a process that can be cut off: the answer to the first of them that is too many is lost, and
// the later ones do nothing.
type writes struct {
	schedule.Records
	schedule.Holds
	v view
}

func (w writes) write(do func() (croft.Instance, error)) (inst croft.Instance, err error) {
	lost := w.v.left != nil && w.v.left.Load() == 0
	if err := w.v.reach(context.Background()); err != nil && !lost {
		return inst, err
	}
	if inst, err = do(); lost {
		return croft.Instance{}, croft.Errorf(croft.Unavailable, "the answer is lost")
	}
	return inst, err
}

func (w writes) Create(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	return w.write(func() (croft.Instance, error) { return w.Records.Create(ctx, inst) })
}

func (w writes) Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	return w.write(func() (croft.Instance, error) { return w.Records.Fence(ctx, inst) })
}

func (w writes) Discard(ctx context.Context, inst croft.Instance) error {
	_, err := w.write(func() (croft.Instance, error) { return inst, w.Records.Discard(ctx, inst) })
	return err
}

func (w writes) Hold(ctx context.Context, inst croft.Instance, host croft.HostID) (croft.Instance, error) {
	return w.write(func() (croft.Instance, error) { return w.Holds.Hold(ctx, inst, host) })
}

func (w writes) Use(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	return w.write(func() (croft.Instance, error) { return w.Holds.Use(ctx, inst, o) })
}

// scheduler makes a scheduler of the cloud, which sees it through v.
func (w *world) scheduler(t *testing.T, v view) *schedule.Scheduler {
	t.Helper()
	written := writes{w.Store.Instances, w.Store.Instances, v}
	s, err := schedule.New(schedule.Config{Partition: w.Store.Partition(), Records: written, Holds: written, View: v,
		Registry: v, Groups: w.Store.Groups, Claims: w.Claims,
		Aggregates: w.Store.Aggregates, Distances: w.Store.Distances, Crush: w.Store.Policies})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *world) view() view {
	return view{w.Store.Instances, w.Store.Registry, new(atomic.Bool), new(atomic.Bool), nil}
}

// empty waits until no instance is left.
func (w *world) empty(t *testing.T) {
	t.Helper()
	patient.Until(t, "the cloud is empty", func() bool {
		left, err := w.Left(t.Context())
		return err == nil && len(left) == 0
	})
}

const text = `
master: {resources: "VCPU:1,MEMORY_MB:256,DISK_GB:1", image: tiny}
slave: {resources: "VCPU:1,MEMORY_MB:256,DISK_GB:1", image: tiny, user_data: "#!/bin/sh\necho ${master_ip}"}
`

// driver makes a driver whose images have a prefix, by which simulated hosts treat them.
func (w *world) driver(t *testing.T, v view, prefix *atomic.Pointer[string]) *local.Driver {
	t.Helper()
	d, err := local.New(local.Config{Scheduler: w.scheduler(t, v), Keys: w.Store.SSHKeys,
		ResolveImage: func(name string) (string, error) {
			if strings.HasPrefix(name, "/") {
				return "", croft.Errorf(croft.Invalid, "files of hosts are for operators")
			}
			return "https://images.example/" + *prefix.Load() + name, nil
		},
		Console: func(_ context.Context, st croft.Status) (string, error) {
			return "the console of " + st.Instance.Name, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func here() cluster.Access {
	return cluster.Access{Site: cluster.Site{Name: cluster.LocalSite, Type: cluster.Local, Enabled: true}}
}

func TestContract(t *testing.T) {
	w := theWorld
	stick := w.stuck.Store
	if testing.Short() {
		stick = nil // a host tries again after half a minute
	}
	clustertest.RunDriver(t, func(t *testing.T) clustertest.Harness {
		w.empty(t)
		v := w.view()
		var prefix atomic.Pointer[string]
		none, slow, broken := "", "slow-", "broken-"
		prefix.Store(&none)
		use := func(p *string) func(bool) {
			return func(on bool) {
				if !on {
					p = &none
				}
				prefix.Store(p)
			}
		}
		return clustertest.Harness{
			Driver:         func(t *testing.T) cluster.Driver { return w.driver(t, v, &prefix) },
			At:             here(),
			Partition:      w.Store.Partition(),
			Implementation: cluster.Implementation{ID: cluster.NewImplementationID(), Template: text},
			Bad:            cluster.Implementation{Template: "master: {}\nslaves: {}\n"},
			Image:          cluster.Image{Name: "tiny", URL: "tiny.qcow2"},
			Freeze:         func(on bool) { use(&slow)(on) },
			Fail:           func(on bool) { use(&broken)(on) },
			Fill:           func(full bool) { w.fill(t, full) },
			Cut:            v.away.Store,
			Hang:           v.hangs.Store,
			Stick:          stick,
			Lose: func(b cluster.Build, m cluster.Member) {
				s := w.scheduler(t, w.view())
				if _, err := s.Destroy(context.WithoutCancel(t.Context()), b.Project, m.RemoteID, true); err != nil {
					t.Error(err)
				}
			},
			Occupy: func(b cluster.Build) func() bool {
				w.occupy(t, b.Project, b.Name+"-master")
				return func() bool {
					st, err := w.Store.Instances.Find(t.Context(), b.Project, b.Name+"-master")
					return err == nil && st.Instance.State == croft.StateScheduled
				}
			},
		}
	})
}

// occupy creates an instance, and removes it in the end.
func (w *world) occupy(t *testing.T, p croft.Project, name string) {
	t.Helper()
	s := w.scheduler(t, w.view())
	q, err := schedule.ParseQuery("VCPU:1,MEMORY_MB:256,DISK_GB:1")
	if err == nil {
		_, err = s.Request(t.Context(), schedule.Request{Project: p, Name: name, Query: q, Image: "tiny"})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := s.Destroy(context.WithoutCancel(t.Context()), p, name, false)
		if err != nil && croft.KindOf(err) != croft.NotFound {
			t.Error(err)
		}
	})
}

var filling sync.Mutex

// fill takes all room of the cloud, or gives it back.
func (w *world) fill(t *testing.T, full bool) {
	filling.Lock()
	defer filling.Unlock()
	ctx := context.WithoutCancel(t.Context())
	s := w.scheduler(t, w.view())
	if full {
		q, err := schedule.ParseQuery("VCPU:6,MEMORY_MB:1536,DISK_GB:6")
		for range 3 {
			if err == nil {
				_, err = s.Request(ctx, schedule.Request{Project: "filler", Query: q, Image: "tiny"})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	all, err := s.View.List(ctx, "filler")
	for _, st := range all {
		if err == nil {
			_, err = s.Destroy(ctx, "filler", string(st.Instance.ID), false)
		}
	}
	if err != nil && croft.KindOf(err) != croft.NotFound {
		t.Error(err)
	}
}
