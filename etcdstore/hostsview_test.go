package etcdstore_test

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
)

// hostsView is a running view with controls for tests.
type hostsView struct {
	*etcdstore.HostsView
	stop  func()                              // disconnects it from changes
	await func(what string, done func() bool) // checks done after each change
}

// viewed runs a view of the fixture's hosts and returns once it has the first host.
func (f *fixture) viewed(t *testing.T) *hostsView {
	t.Helper()
	v := &hostsView{HostsView: f.NewHostsView()}
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan struct{}, 1)
	var run sync.WaitGroup
	run.Go(func() {
		_ = v.RunTelling(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	})
	v.stop = func() { cancel(); run.Wait() }
	t.Cleanup(v.stop)
	v.await = func(what string, done func() bool) {
		t.Helper()
		for !done() {
			select {
			case <-changed:
			case <-t.Context().Done():
				t.Fatalf("the view never showed %s", what)
			}
		}
	}
	v.await("the host", func() bool { return v.Has(f.host) })
	return v
}

func TestAHostsViewReadsHostsThatTakeOrdersFromMemory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	v := f.viewed(t)
	want, err := f.Registry.Hosts(t.Context(), f.host)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // any request to etcd fails
	got, err := v.Hosts(ended, f.host)
	if err != nil {
		t.Fatalf("it asked etcd: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("it differs from etcd's (-etcd +memory):\n%s", diff)
	}
	if _, err := v.Hosts(ended, f.host, croft.NewHostID()); err == nil {
		t.Error("a host that it does not know was not looked for in etcd")
	}
	if all, err := v.Hosts(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("all hosts are %v, %v", all, err)
	}
}

// An outdated view costs a refusal by Assign, or a read from etcd. It never causes an order for a host that refuses
// orders, or a host to be skipped.
func TestAHostsViewThatIsBehind(t *testing.T) {
	t.Parallel()
	t.Run("reads hosts that took no orders", func(t *testing.T) {
		f, other := newFixture(t), croft.NewHostID()
		if err := f.Registry.PutHost(t.Context(), croft.Host{ID: other, Name: "h2"}); err != nil {
			t.Fatal(err)
		}
		v := f.viewed(t)
		if err := f.Registry.Drain(t.Context(), f.host); err != nil {
			t.Fatal(err)
		}
		v.await("the drain", func() bool { return !v.Has(f.host) })
		v.stop()
		f.live(t, other)
		if err := f.Registry.Enable(t.Context(), f.host); err != nil {
			t.Fatal(err)
		}
		hosts, err := v.Hosts(t.Context(), f.host, other)
		if err != nil || hosts[f.host].Drained || !hosts[f.host].Alive || !hosts[other].Alive {
			t.Errorf("got %+v, %v", hosts, err)
		}
	})
	t.Run("orders nothing on a host that is drained by now", func(t *testing.T) {
		f := newFixture(t)
		v := f.viewed(t)
		v.stop()
		if err := f.Registry.Drain(t.Context(), f.host); err != nil {
			t.Fatal(err)
		}
		if hosts, err := v.Hosts(t.Context(), f.host); err != nil || hosts[f.host].Drained {
			t.Fatalf("the view is not behind: %+v, %v", hosts, err)
		}
		_, err := f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning))
		etcdtest.WantKind(t, err, croft.Unavailable)
	})
}
