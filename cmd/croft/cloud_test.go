package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/hypervisor/sim"
	"croft/node/settings"
	"croft/placement"
	"croft/placementclient"
)

// testCloud is a whole cloud in the test's process: a real etcd, a real Placement
// and agents, whose guests alone are simulated.
type testCloud struct {
	dir       string
	etcd      *etcdstore.Embedded
	store     *etcdstore.Store
	placement *httptest.Server
	claims    *placementclient.Client
	hosts     map[string]*testHost
	end       []func()
}

// testHost is one agent, which can be stopped and started again.
type testHost struct {
	id     croft.HostID
	places int64
	hv     *sim.Hypervisor
	agent  *compute.Agent // the newest
	stop   func()         // nil while it does not run
}

// newTestCloud runs etcd and Placement in dir. Close it.
func newTestCloud(ctx context.Context, dir string) (c *testCloud, err error) {
	return newTestCloudOf(ctx, dir, etcdstore.EmbeddedConfig{})
}

// newTestCloudOf does so with an etcd of this kind.
func newTestCloudOf(ctx context.Context, dir string, kind etcdstore.EmbeddedConfig) (c *testCloud, err error) {
	c = &testCloud{dir: dir, hosts: map[string]*testHost{}}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	kind.Dir, kind.Listen, kind.Unsynced = filepath.Join(dir, "etcd"), "127.0.0.1:0", true
	c.etcd, err = etcdstore.StartEmbedded(ctx, kind)
	if err != nil {
		return c, err
	}
	c.end = append(c.end, c.etcd.Close)
	config := etcdstore.Config{Endpoints: []string{c.etcd.Endpoint()}, DialTimeout: 30 * time.Second, Mint: true}
	if kind.Cert != "" {
		config.Embedded = c.etcd // which asks this process for nothing
	}
	c.store, err = etcdstore.Open(ctx, config)
	if err != nil {
		return c, err
	}
	c.end = append(c.end, func() { _ = c.store.Close() })
	server, err := placement.New(placement.Config{Store: c.store.Placement(0), Log: slog.New(slog.DiscardHandler), Token: "admin"})
	if err != nil {
		return c, err
	}
	c.run(ctx, server.Run)
	c.placement = httptest.NewServer(server.Handler())
	c.end = append(c.end, c.placement.Close)
	c.claims, err = placementclient.New(placementclient.Config{Endpoint: c.placement.URL, Auth: placementclient.Token("admin")})
	return c, err
}

// run runs something until the cloud is closed.
func (c *testCloud) run(ctx context.Context, do func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { _ = do(ctx) }) // tells by what it does, not by how it ends
	stop = sync.OnceFunc(func() { cancel(); work.Wait() })
	c.end = append(c.end, stop)
	return stop
}

// close ends everything, the last first.
func (c *testCloud) close() {
	for _, end := range slices.Backward(c.end) {
		end()
	}
}

// addHost starts an agent with room for so many instances of one VCPU, 256
// MEMORY_MB and 1 DISK_GB.
func (c *testCloud) addHost(ctx context.Context, name string, places int64) error {
	dir := filepath.Join(c.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	hv, err := sim.New(sim.Config{Fault: func(ctx context.Context, op string, id croft.InstanceID) error {
		return c.guestFault(ctx, dir, op, id)
	}})
	if err != nil {
		return err
	}
	c.end = append(c.end, func() { _ = hv.Close() })
	c.hosts[name] = &testHost{id: croft.NewHostID(), places: places, hv: hv}
	return c.startHost(ctx, name)
}

// startHost starts a host's agent and returns once it takes orders.
func (c *testCloud) startHost(ctx context.Context, name string) error {
	h := c.hosts[name]
	inv := func(total int64) croft.Inventory {
		return croft.Inventory{Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}
	}
	api := httptest.NewUnstartedServer(nil)
	me := croft.Host{ID: h.id, Name: name, VirtType: "sim", API: "http://" + api.Listener.Addr().String(), Token: "secret"}
	agent, err := compute.New(compute.Config{
		Host: me, Partition: c.store.Partition(), Dir: filepath.Join(c.dir, name), Log: slog.New(slog.DiscardHandler),
		Provider: croft.Provider{ID: h.id, Name: name, Inventories: map[croft.ResourceClass]croft.Inventory{
			croft.VCPU: inv(h.places), croft.MemoryMB: inv(256 * h.places), croft.DiskGB: inv(h.places),
		}},
		Orders: c.store, Registry: c.store, Records: c.store, Inventory: c.claims, Hypervisor: h.hv, Images: sim.Images{Fault: imageFault},
		NICs: []compute.NIC{{Network: "default"}},
	})
	if err != nil {
		return err
	}
	var none settings.Settings
	tells, err := newSelf(ctx, &none, "croft-test", slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	tells.ofStore(c.store)
	tells.counts(agent, h.hv)
	tells.checks.Add("agent", agent.Ready)
	mux := http.NewServeMux()
	mux.Handle("/", (&compute.API{Agent: agent, Token: me.Token}).Handler())
	tells.serves(mux, api.Listener.Addr().String())
	api.Config.Handler = mux
	api.Start()
	h.agent = agent
	ready := make(chan struct{})
	stop := c.run(ctx, func(ctx context.Context) error { return agent.Run(ctx, func() { close(ready) }) })
	h.stop = func() { stop(); api.CloseClientConnections(); api.Close() }
	c.end = append(c.end, h.stop)
	<-ready
	return c.awaitLife(ctx, h.id, true)
}

// stopHost ends a host's agent and returns once the cloud knows.
func (c *testCloud) stopHost(ctx context.Context, name string) error {
	c.hosts[name].stop()
	return c.awaitLife(ctx, c.hosts[name].id, false)
}

// awaitLife returns once a host is alive, or is not.
func (c *testCloud) awaitLife(ctx context.Context, id croft.HostID, want bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := c.store.WatchInstances(ctx, func() {
		if hosts, err := c.store.Hosts(ctx, id); err == nil && hosts[id].Alive == want {
			cancel()
		}
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// report has a guest tell its host how its set-up ended, once there is the guest.
func (c *testCloud) report(ctx context.Context, name string, told croft.CloudInit) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var done atomic.Bool
	err := c.store.WatchInstances(ctx, func() {
		st, err := c.store.Find(ctx, croft.DefaultProject, name)
		if err != nil || st.Observation == nil || st.Observation.State != croft.StateRunning {
			return
		}
		for _, h := range c.hosts {
			if h.id == st.Instance.Host && h.agent.Reports().CloudInit(ctx, st.Instance.ID, told) == nil {
				done.Store(true)
				cancel()
			}
		}
	})
	if done.Load() {
		return nil
	}
	return fmt.Errorf("the guest of %s cannot report: %w", name, err)
}

// imageFault makes images that are called so broken, and slow ones endless.
// busyImages are those that were asked for once, in vain.
var busyImages sync.Map

func imageFault(ctx context.Context, ref string) error {
	switch {
	case strings.Contains(ref, "busy"):
		if _, asked := busyImages.LoadOrStore(ref, true); !asked {
			return croft.Errorf(croft.Unavailable, "image %s: the host is busy", ref)
		}
	case strings.Contains(ref, "broken"):
		return croft.Errorf(croft.Invalid, "image %s: the checksum is wrong", ref)
	case strings.Contains(ref, "slow"):
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// guestFault has guests of images that are called so say a word and die as they start.
func (c *testCloud) guestFault(ctx context.Context, dir, op string, id croft.InstanceID) error {
	if op != sim.OpStart {
		return nil
	}
	inst, err := c.store.Instance(ctx, id)
	if err != nil || !strings.Contains(inst.Spec.Image, "dies") {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, string(id), "console.log"), []byte("kernel panic\n"), 0o600); err != nil {
		return err
	}
	return errors.New("the guest died as it started")
}

// left lists what is left of any instance: records, orders, claims, domains.
func (c *testCloud) left(ctx context.Context) ([]string, error) {
	var found []string
	all, err := c.store.List(ctx, "")
	for _, st := range all {
		found = append(found, "record of "+st.Instance.Name)
	}
	for name, h := range c.hosts {
		claims, listed := c.claims.Claims(ctx, h.id)
		err = errors.Join(err, listed)
		for id := range claims {
			found = append(found, fmt.Sprintf("claim of %s on %s", id, name))
		}
		domains, listed := h.hv.List(ctx)
		err = errors.Join(err, listed)
		for _, d := range domains {
			found = append(found, fmt.Sprintf("domain of %s on %s", d.ID, name))
		}
	}
	return found, err
}

// cloudFor runs a cloud with one host until the test ends.
func cloudFor(t *testing.T, places int64) *testCloud {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // it ends with close
	c, err := newTestCloud(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	if err := c.addHost(ctx, "host1", places); err != nil {
		t.Fatal(err)
	}
	return c
}

// args are a command's arguments with this cloud's addresses.
func (c *testCloud) args(args ...string) []string {
	return append(args, "--etcd", c.etcd.Endpoint(), "--placement", c.placement.URL)
}
