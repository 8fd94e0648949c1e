package local_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/local"
	"croft/cluster/local/localtest"
	"croft/compute/hypervisor/sim"
	"croft/etcdstore/etcdserver"
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

// places is the number of members with one VCPU that fit on a host.
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

// scheduler returns a scheduler of the cloud that reads through v.
func (w *world) scheduler(t *testing.T, v localtest.Link) *schedule.Scheduler {
	t.Helper()
	written := localtest.Writes{Records: w.Store.Instances, Holds: w.Store.Instances, Over: v}
	s, err := schedule.New(schedule.Config{Partition: w.Store.Partition(), Records: written, Holds: written, View: v,
		Registry: v, Groups: w.Store.Groups, Claims: w.Claims,
		Aggregates: w.Store.Aggregates, Distances: w.Store.Distances, Crush: w.Store.Policies})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *world) view() localtest.Link { return localtest.NewLink(w.Store.Instances, w.Store.Registry) }

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

// driver returns a driver that prefixes images; the prefix controls how simulated hosts handle them.
func (w *world) driver(t *testing.T, v localtest.Link, prefix *atomic.Pointer[string]) *local.Driver {
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

func here() cluster.SiteAccess {
	return cluster.SiteAccess{Site: cluster.Site{Name: cluster.LocalSite, Type: cluster.Local, Enabled: true}}
}

func TestContract(t *testing.T) {
	w := theWorld
	stick := w.stuck.Store
	if testing.Short() {
		stick = nil // a host retries only after half a minute
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
			Image:          cluster.SiteImage{Name: "tiny", URL: "tiny.qcow2"},
			Freeze:         func(on bool) { use(&slow)(on) },
			Fail:           func(on bool) { use(&broken)(on) },
			Fill:           func(full bool) { localtest.Fill(t, w.scheduler(t, w.view()), full) },
			Cut:            v.Away.Store,
			Hang:           v.Hangs.Store,
			Stick:          stick,
			Lose: func(b cluster.Build, m cluster.Member) {
				localtest.Lose(t, w.scheduler(t, w.view()), b.Project, m.RemoteID)
			},
			Occupy: func(b cluster.Build) func() bool {
				q, err := schedule.ParseQuery("VCPU:1,MEMORY_MB:256,DISK_GB:1")
				if err != nil {
					t.Fatal(err)
				}
				return localtest.Occupy(t, w.scheduler(t, w.view()), schedule.Request{Project: b.Project,
					Name: b.Name + "-master", Query: q, Image: "tiny"})
			},
		}
	})
}
