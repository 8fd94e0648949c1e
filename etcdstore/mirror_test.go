package etcdstore_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
)

// mirrored runs a mirror of the fixture's store until the test ends.
func (f *fixture) mirrored(t *testing.T) (m *etcdstore.Mirror,
	await func(what string, seen func([]croft.Host, []croft.Status) bool)) {
	t.Helper()
	m = f.NewMirror()
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan struct{}, 1)
	var run sync.WaitGroup
	run.Go(func() {
		_ = m.Run(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	})
	t.Cleanup(func() { cancel(); run.Wait() })
	return m, func(what string, seen func([]croft.Host, []croft.Status) bool) {
		t.Helper()
		for {
			hosts, all, err := m.Look()
			if err != nil {
				t.Fatal(err)
			}
			if m.Ready() && seen(hosts, all) {
				return
			}
			select {
			case <-changed:
			case <-t.Context().Done():
				t.Fatalf("the mirror never showed %s: %+v %+v", what, hosts, all)
			}
		}
	}
}

func TestAMirrorShowsWhatChanges(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m, await := f.mirrored(t)
	await("the record", func(hosts []croft.Host, all []croft.Status) bool {
		return len(hosts) == 1 && hosts[0].Alive && len(all) == 1 && all[0].Order == nil
	})
	inst, err := f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning))
	if err != nil {
		t.Fatal(err)
	}
	await("the order", func(_ []croft.Host, all []croft.Status) bool {
		return all[0].Order != nil && all[0].Host != nil && all[0].Instance.State == croft.StateScheduled
	})
	if err := f.Orders.Observe(t.Context(), croft.Observation{Host: f.host, Instance: inst.ID, Generation: 1,
		State: croft.StateRunning}); err != nil {
		t.Fatal(err)
	}
	await("the observation", func(_ []croft.Host, all []croft.Status) bool {
		return all[0].Observation != nil && all[0].Observation.State == croft.StateRunning
	})
	_, all, err := m.Look()
	if spec := all[0].Instance.Spec; err != nil || spec.UserData != nil || spec.HostKey != "" ||
		all[0].Order.Spec.Image != "" {
		t.Errorf("it holds what nobody looks at: %+v, %v", spec, err)
	}
	if err := f.Registry.Drain(t.Context(), f.host); err != nil {
		t.Fatal(err)
	}
	await("the drained host", func(hosts []croft.Host, _ []croft.Status) bool { return hosts[0].Drained })
	o, err := f.Orders.Order(t.Context(), f.host, inst.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Orders.Forget(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	await("the end", func(_ []croft.Host, all []croft.Status) bool { return len(all) == 0 })
}

func TestAMirrorSaysWhatItCannotRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m, await := f.mirrored(t)
	await("the record", func(_ []croft.Host, all []croft.Status) bool { return len(all) == 1 })
	if err := etcdtest.Put(t.Context(), f.server.Endpoint(), f.Partition(), "hosts/"+string(f.host),
		"no host"); err != nil {
		t.Fatal(err)
	}
	for {
		if _, _, err := m.Look(); err != nil {
			if !strings.Contains(err.Error(), "decode") {
				t.Errorf("got %v", err)
			}
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("the mirror never said so")
		}
	}
}
