package computetest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/compute"
)

// Cloud is a cloud under test: the interfaces that the host's agent uses, and those of other clients.
type Cloud struct {
	Partition croft.PartitionID
	Host      croft.HostID // the agent's host, unknown to the cloud
	Agent     Ports
	Others    Others
	Break     func() // breaks all connections between the agent and the rest
}

// Ports is everything that an agent needs from its cloud.
type Ports struct {
	compute.Orders
	compute.Registry
	compute.Records
	compute.Inventory
}

// Others are the interfaces of schedulers, operators and other agents.
type Others struct {
	Instances
	Orders
	Registry
	Claims
}

// Instances are the operations of schedulers and operators on instances.
type Instances interface {
	Create(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	Assign(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error)
	Reorder(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error)
	Bury(ctx context.Context, inst croft.Instance, o croft.Order) error
	Relocate(ctx context.Context, inst croft.Instance, tombstone, order croft.Order) (croft.Instance, error)
	Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error)
	WatchInstances(ctx context.Context, changed func()) error
}

// Orders are the operations of other hosts' agents on their orders.
type Orders interface {
	Order(ctx context.Context, host croft.HostID, id croft.InstanceID) (croft.Order, error)
	Forget(ctx context.Context, o croft.Order) error
}

// Registry are the operations of operators and other hosts' agents on hosts.
type Registry interface {
	PutHost(ctx context.Context, h croft.Host) error
	StayAlive(ctx context.Context, host croft.HostID) error
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
	ForgetHost(ctx context.Context, host croft.HostID) error
	BeginDeath(ctx context.Context, host croft.HostID) (croft.Death, error)
	DeclareDead(ctx context.Context, host croft.HostID, d croft.Death, how croft.FenceResult) (croft.Death, error)
}

// Claims are the operations of schedulers in Placement.
type Claims interface {
	Claim(ctx context.Context, id croft.InstanceID, owner croft.Owner, c croft.Candidate) error
}

// stage is a cloud under test, with helpers for tests.
type stage struct {
	Cloud
	t *testing.T
}

func (s *stage) ctx() context.Context { return s.t.Context() }

func (s *stage) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) want(err error, kind croft.Kind) {
	s.t.Helper()
	if croft.KindOf(err) != kind {
		s.t.Fatalf("got error %v of kind %q, want kind %q", err, croft.KindOf(err), kind)
	}
}

// live registers a host and keeps it alive until the test ends; it returns once the host is alive.
func (s *stage) live(host croft.HostID) {
	s.t.Helper()
	s.check(s.Others.PutHost(s.ctx(), croft.Host{ID: host, Name: "host-" + string(host)}))
	s.background(func(ctx context.Context) { _ = s.Others.StayAlive(ctx, host) })
	s.alive(host, true)
}

// background runs do until end is called or the test ends.
func (s *stage) background(do func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(s.ctx())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do(ctx)
	}()
	end = func() { cancel(); <-ended }
	s.t.Cleanup(end)
	return end
}

// alive waits until others see the host alive, or dead.
func (s *stage) alive(host croft.HostID, want bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx(), patience)
	defer cancel()
	var is atomic.Bool
	_ = s.Others.WatchInstances(ctx, func() { // may be called concurrently
		if hosts, err := s.Others.Hosts(ctx, host); err == nil && hosts[host].Alive == want {
			is.Store(true)
			cancel()
		}
	})
	if !is.Load() {
		s.t.Fatalf("the host's life is never %v", want)
	}
}

// request creates an instance with an order on the host, which must be alive.
func (s *stage) request() croft.Instance {
	s.t.Helper()
	return s.requestWith(croft.NewInstanceID())
}

// requestWith is like request, for an instance with the given UUID.
func (s *stage) requestWith(id croft.InstanceID) croft.Instance {
	s.t.Helper()
	inst := s.recordWith(id)
	inst, err := s.Others.Assign(s.ctx(), inst, s.order(inst, croft.WantRunning))
	s.check(err)
	return inst
}

// record writes the record of an instance in scheduling.
func (s *stage) record() croft.Instance {
	s.t.Helper()
	return s.recordWith(croft.NewInstanceID())
}

func (s *stage) recordWith(id croft.InstanceID) croft.Instance {
	s.t.Helper()
	inst, err := s.Others.Create(s.ctx(), croft.Instance{
		ID: id, Project: croft.DefaultProject, Name: "vm-" + string(id),
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Spec: croft.Spec{Resources: croft.Resources{croft.VCPU: 1, croft.MemoryMB: 64, croft.DiskGB: 1},
			Image: "/image",
			GuestSettings: croft.GuestSettings{Keys: []string{"ssh-ed25519 AAAA"}, UserData: []byte{0, 1, 2},
				Tags: map[string]string{"a": "b"}}, HostKey: "key"},
	})
	s.check(err)
	return inst
}

func (s *stage) order(inst croft.Instance, want croft.Want) croft.Order {
	return croft.Order{
		Partition: s.Partition, Host: s.Host, Instance: inst.ID, Generation: inst.Generation + 1, Want: want,
		Project: inst.Project, Name: inst.Name, Spec: inst.Spec, Issued: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
	}
}

// condemn writes the instance's tombstone.
func (s *stage) condemn(inst croft.Instance) croft.Instance {
	s.t.Helper()
	inst, err := s.Others.Reorder(s.ctx(), inst, s.order(inst, croft.WantGone))
	s.check(err)
	return inst
}

// claim gives an instance a claim on the host, whose provider must exist.
func (s *stage) claim(id croft.InstanceID) {
	s.t.Helper()
	s.check(s.Others.Claim(s.ctx(), id, croft.Owner{Project: croft.DefaultProject}, croft.Candidate{
		Allocations: map[croft.HostID]croft.Resources{s.Host: {croft.VCPU: 1}},
	}))
}

// offer creates the host's provider.
func (s *stage) offer() croft.Provider {
	s.t.Helper()
	p := compute.Offer{Traits: []croft.Trait{"CUSTOM_LAB"}}.Provider(croft.Host{ID: s.Host,
		Name: "host-" + string(s.Host), Location: "site/row"},
		s.Partition, compute.Facts{CPUs: 4, MemoryMiB: 4096, DiskGiB: 40, Arch: "amd64",
			Machines: croft.MachineTraits(croft.Archs()...)})
	s.check(s.Agent.EnsureProvider(s.ctx(), p))
	return p
}

// patience bounds how long a test waits.
const patience = 3 * time.Minute
