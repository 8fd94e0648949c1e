package gate_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/internal/testing/freeport"
	"croft/internal/testing/patient"
	"croft/internal/testing/wire"
	"croft/trust/gate/gatetest"
)

// served makes a host alive through the gate.
func served(t *testing.T, c *cloud, agent interface {
	Serve(context.Context, croft.Agent, <-chan struct{}, func(*croft.Agent) bool) error
	PutHost(context.Context, croft.Host) error
}, host croft.HostID) {
	t.Helper()
	if err := c.Registry.PutHost(t.Context(), croft.Host{ID: host, Name: "h"}); err != nil {
		t.Fatal(err)
	}
	known, ended := make(chan struct{}), make(chan struct{})
	close(known)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		_ = agent.Serve(ctx, croft.Agent{Host: host, Place: "here"}, known, func(*croft.Agent) bool { return true })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	c.await(t, host, true)
}

// await returns how long it took until a host was alive, or not alive.
func (c *cloud) await(t *testing.T, host croft.HostID, want bool) time.Duration {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithCancel(patient.Context(t))
	defer cancel()
	reached := make(chan struct{}, 1)
	_ = c.Instances.WatchInstances(ctx, func() {
		if hosts, err := c.Registry.Hosts(ctx, host); err == nil && hosts[host].Alive == want {
			select {
			case reached <- struct{}{}:
			default:
			}
			cancel()
		}
	})
	select {
	case <-reached:
	default:
		t.Fatalf("the host's life is never %v", want)
	}
	return time.Since(begun)
}

func TestAHostWhoseNetworkIsCutIsSilentWithinSeconds(t *testing.T) {
	t.Parallel()
	c, host := newCloud(t), croft.NewHostID()
	w := wire.New(t, c.front.Address)
	served(t, c, c.front.Client(t, host, w.Address()), host)
	w.Hold() // nothing is forwarded, and neither end is notified
	if took := c.await(t, host, false); took < 5*time.Second || took > 15*time.Second {
		t.Errorf("it is silent after %s, want about as long as a lease in etcd lasts", took)
	}
	w.Flow()
	w.Drop()
	c.await(t, host, true)
}

func TestAHostWhoseAgentIsKilledIsSilentAtOnce(t *testing.T) {
	t.Parallel()
	c, host := newCloud(t), croft.NewHostID()
	w := wire.New(t, c.front.Address)
	served(t, c, c.front.Client(t, host, w.Address()), host)
	w.Cut() // as the kernel does for a process that ended
	if took := c.await(t, host, false); took > 5*time.Second {
		t.Errorf("it is silent after %s", took)
	}
	w.Mend()
	c.await(t, host, true)
}

func TestAForgottenHostLosesItsStreams(t *testing.T) {
	t.Parallel()
	c, host := newCloud(t), croft.NewHostID()
	served(t, c, c.front.Client(t, host), host)
	c.front.Forget(host)
	if took := c.await(t, host, false); took > 10*time.Second {
		t.Errorf("it lives on for %s", took)
	}
}

func TestAHostGoesOnWithAnotherGate(t *testing.T) {
	t.Parallel()
	c, host := newCloud(t), croft.NewHostID()
	w, nobody := wire.New(t, c.front.Address), freeport.For(t, "127.0.0.1")
	agent := c.front.Client(t, host, nobody, w.Address(), c.front.Address)
	if err := agent.Usable(t.Context()); err != nil {
		t.Errorf("where the first one does not listen: %v", err)
	}
	served(t, c, agent, host)
	w.Cut()
	if err := agent.Usable(t.Context()); err != nil {
		if err := agent.Usable(t.Context()); err != nil { // the first request notices the broken connection
			t.Errorf("where the second one is lost: %v", err)
		}
	}
	c.await(t, host, true)
}

func TestAHostLearnsOfOtherControlProcesses(t *testing.T) {
	t.Parallel()
	c, host := newCloud(t), croft.NewHostID()
	w := wire.New(t, c.front.Address)
	agent := c.front.Client(t, host, w.Address())
	gates, err := agent.Gates(t.Context())
	if err != nil || len(gates) != 1 || gates[0] != c.front.Address {
		t.Fatalf("got %q, %v, want %s", gates, err, c.front.Address)
	}
	served(t, c, agent, host)
	agent.SetEndpoints([]string{"https://" + freeport.For(t, "127.0.0.1"), "https://" + gates[0]})
	w.Cut() // and never restored
	c.await(t, host, false)
	c.await(t, host, true)
}

func TestAHostLivesOnThroughARestartOfTheControlProcess(t *testing.T) {
	t.Parallel()
	c, host := newCloud(t), croft.NewHostID()
	served(t, c, c.front.Client(t, host), host)
	c.front.Restart(t)
	c.await(t, host, true)
}

// seats is a registry that counts present and past holders.
type seats struct {
	compute.Registry
	open, all atomic.Int64
}

func (s *seats) Serve(ctx context.Context, me croft.Agent, known <-chan struct{},
	seated func(*croft.Agent) bool) error {
	s.open.Add(1)
	s.all.Add(1)
	defer s.open.Add(-1)
	return s.Registry.Serve(ctx, me, known, seated)
}

func TestAHostIsNotSilentWhileItsCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	c, host := newCloud(t), croft.NewHostID()
	config, registry := c.config(), &seats{Registry: c.Registry}
	config.Registry = registry
	front := gatetest.Start(t, c.Partition(), config)
	served(t, c, front.Client(t, host), host)
	ctx, cancel := context.WithCancel(t.Context())
	var looks, silent atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Instances.WatchInstances(ctx, func() {
			hosts, err := c.Registry.Hosts(ctx, host)
			switch {
			case err != nil:
			case hosts[host].Alive:
				looks.Add(1)
			default:
				silent.Add(1)
			}
		})
	}()
	defer func() { cancel(); <-ended }()
	for round := int64(2); round < 4; round++ {
		front.Renew(t, host)
		until(t, "it has a seat over a new connection, and that one alone",
			func() bool { return registry.all.Load() == round && registry.open.Load() == 1 })
	}
	if looks.Load() == 0 || silent.Load() != 0 {
		t.Errorf("of %d looks %d saw it silent", looks.Load()+silent.Load(), silent.Load())
	}
}

func TestACertificateOfAnotherCloudOpensNothing(t *testing.T) {
	c := newCloud(t)
	other := gatetest.Start(t, croft.NewPartitionID(), c.config())
	stranger := other.Client(t, croft.NewHostID(), c.front.Address)
	if err := stranger.Usable(t.Context()); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("got %v, want that it is let in nowhere", err)
	}
}

// counted counts the watches of orders.
type counted struct {
	compute.Orders
	open atomic.Int64
}

func (c *counted) WatchOrders(ctx context.Context, host croft.HostID, wake func(croft.InstanceID)) error {
	c.open.Add(1)
	defer c.open.Add(-1)
	return c.Orders.WatchOrders(ctx, host, wake)
}

func TestAHostThatIsCutOffLeavesNoStream(t *testing.T) {
	t.Parallel()
	c, host := newCloud(t), croft.NewHostID()
	config, orders := c.config(), &counted{Orders: c.Orders}
	config.Orders = orders
	front := gatetest.Start(t, c.Partition(), config)
	w := wire.New(t, front.Address)
	agent := front.Client(t, host, w.Address())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = agent.WatchOrders(ctx, host, func(croft.InstanceID) {})
	}()
	defer func() { cancel(); <-ended }()
	until(t, "it watches", func() bool { return orders.open.Load() == 1 })
	w.Hold() // neither end is notified
	until(t, "its watch has ended", func() bool { return orders.open.Load() == 0 })
	w.Flow()
	w.Drop()
	until(t, "it watches again", func() bool { return orders.open.Load() == 1 })
}

// until polls a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	late, look := patient.Context(t).Done(), time.NewTicker(20*time.Millisecond)
	defer look.Stop()
	for !is() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("it never came to that %s", what)
		}
	}
}
