package crowd

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
	"croft/placement"
	"croft/placementclient"
	"croft/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cloud is etcd, Placement and hosts.
type cloud struct {
	*testing.T
	etcd     *etcdserver.Server
	store    *etcdstore.Store // used by the test and the agents
	endpoint string           // of Placement
	claims   *placementclient.Client
	hosts    []croft.HostID
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{T: t, etcd: etcdtest.Server(t)}
	c.store = etcdtest.Open(t, c.etcd)
	server, err := placement.New(placement.Config{Store: c.store.Placement(0), Log: slog.New(slog.DiscardHandler),
		Token: "admin"})
	c.check(err)
	c.run(server.Run)
	listener := httptest.NewServer(server.Handler())
	t.Cleanup(listener.Close)
	c.endpoint = listener.URL
	c.claims = c.client()
	return c
}

func (c *cloud) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// run runs do until the test ends.
func (c *cloud) run(do func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = do(ctx) // its effects are checked, not its error
	}()
	c.Cleanup(func() { cancel(); <-ended })
}

func (c *cloud) client() *placementclient.Client {
	c.Helper()
	client, err := placementclient.New(placementclient.Config{Endpoint: c.endpoint,
		Auth: placementclient.StaticToken("admin")})
	c.check(err)
	c.Cleanup(client.Close)
	return client
}

// addHost runs an agent with capacity for the given number of instances.
func (c *cloud) addHost(name string, places int64) {
	c.Helper()
	hv, err := sim.New(sim.Config{})
	c.check(err)
	c.Cleanup(func() { _ = hv.Close() })
	inv := func(total int64) croft.Inventory {
		return croft.Inventory{Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}
	}
	id := croft.NewHostID()
	agent, err := compute.New(compute.Config{
		Host: croft.Host{ID: id, Name: name, VirtType: "sim"}, Partition: c.store.Partition(), Dir: c.TempDir(),
		Log: slog.New(slog.DiscardHandler),
		Provider: croft.Provider{ID: id, Name: name, Inventories: map[croft.ResourceClass]croft.Inventory{
			croft.VCPU: inv(places), croft.MemoryMB: inv(256 * places), croft.DiskGB: inv(places),
		}},
		Orders: c.store.Orders, Registry: c.store.Registry, Records: c.store.Records, Shared: c.store.Turn,
		Inventory: c.claims, Hypervisor: hv,
		Images: sim.Images{},
		NICs:   []compute.NIC{{Network: "default"}},
	})
	c.check(err)
	ready := make(chan struct{})
	c.run(func(ctx context.Context) error { return agent.Run(ctx, func() { close(ready) }) })
	<-ready
	c.hosts = append(c.hosts, id)
	c.awaitLife(id)
}

// awaitLife returns once a host takes orders.
func (c *cloud) awaitLife(id croft.HostID) {
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	_ = c.store.Instances.WatchInstances(ctx, func() {
		if hosts, err := c.store.Registry.Hosts(ctx, id); err == nil && hosts[id].Alive {
			cancel()
		}
	})
	if c.Context().Err() != nil {
		c.Fatalf("host %s never came to life", id)
	}
}

// schedulers returns n schedulers, each with separate connections, as in a separate process.
func (c *cloud) schedulers(n int) []*schedule.Scheduler {
	c.Helper()
	all := make([]*schedule.Scheduler, n)
	for i := range all {
		store := etcdtest.Open(c.T, c.etcd)
		s, err := schedule.New(schedule.Config{Partition: store.Partition(), Records: store.Instances,
			Holds: store.Instances, View: store.Instances, Registry: store.Registry, Groups: store.Groups,
			Aggregates: store.Aggregates, Crush: store.Policies,
			Claims: c.client()})
		c.check(err)
		all[i] = s
	}
	return all
}

func (c *cloud) request(name string, affinities ...croft.Affinity) schedule.Request {
	c.Helper()
	q, err := schedule.ParseQuery("VCPU:1,MEMORY_MB:256,DISK_GB:1")
	c.check(err)
	return schedule.Request{Name: name, Query: q, Image: "file:///image",
		InstanceSettings: croft.InstanceSettings{Affinities: affinities}}
}

// destroy destroys an instance and returns once all its records and claims are gone.
func destroy(ctx context.Context, s *schedule.Scheduler, inst croft.Instance) error {
	ctx, cancel := context.WithTimeout(ctx, patient.Longest)
	defer cancel()
	if _, err := s.Destroy(ctx, inst.Project, string(inst.ID), false); err != nil {
		return err
	}
	return s.Wait(ctx, inst, schedule.Gone, nil)
}

// wantOnly fails if there are records or claims of other instances.
func (c *cloud) wantOnly(instances ...croft.InstanceID) {
	c.Helper()
	want := map[croft.InstanceID]int{}
	for _, id := range instances {
		want[id] = 2 // a record and a claim
	}
	all, err := c.store.Instances.List(c.Context(), "")
	c.check(err)
	for _, st := range all {
		want[st.Instance.ID]--
	}
	for _, host := range c.hosts {
		claims, err := c.claims.Claims(c.Context(), host)
		c.check(err)
		for id := range claims {
			want[id]--
		}
	}
	for id, n := range want {
		if n != 0 {
			c.Errorf("instance %s: %d of record and claim are missing, or too many if below zero", id, n)
		}
	}
}

// soaking returns n in long random runs, otherwise few.
func soaking(few, n int) int {
	if soak() {
		return n
	}
	return few
}

func name(parts ...any) string { return fmt.Sprintf("vm-%v-%v", parts...) }
