package hvtest

import (
	"context"
	"testing"

	"croft"
	"croft/compute"
)

func (s Suite) notFound(t *testing.T) {
	b := s.bench(t)
	id := croft.NewInstanceID()
	b.gone(id)
	b.kind(b.hv.Start(b.ctx, id), croft.NotFound)
	b.kind(b.hv.Stop(b.ctx, id), croft.NotFound)
	b.must(b.hv.Remove(b.ctx, id))
}

func (s Suite) life(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.must(b.hv.Define(b.ctx, m))
	b.power(m.ID, compute.PowerOff)
	if b.get(m.ID).Crashed {
		t.Error("it is crashed before it ever ran")
	}
	b.must(b.hv.Start(b.ctx, m.ID))
	b.power(m.ID, compute.PowerOn)
	b.must(b.hv.Stop(b.ctx, m.ID))
	b.power(m.ID, compute.PowerOff)
	if d := b.get(m.ID); d.Crashed || len(d.Addresses) > 0 {
		t.Errorf("stopped, it is %+v", d)
	}
	b.must(b.hv.Remove(b.ctx, m.ID))
	b.gone(m.ID)
}

func (s Suite) repeated(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"define", func() error { return b.hv.Define(b.ctx, m) }},
		{"start", func() error { return b.hv.Start(b.ctx, m.ID) }},
		{"define while it runs", func() error { return b.hv.Define(b.ctx, m) }},
		{"stop", func() error { return b.hv.Stop(b.ctx, m.ID) }},
		{"remove", func() error { return b.hv.Remove(b.ctx, m.ID) }},
	} {
		for range 2 {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
		}
		if step.name == "define while it runs" {
			b.power(m.ID, compute.PowerOn)
		}
	}
}

func (s Suite) restart(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	m.Generation = 7
	m.Name = `a "name" with <marks> & more`
	b.must(b.hv.Define(b.ctx, m))
	b.must(b.hv.Start(b.ctx, m.ID))
	second := s.New
	if s.Restart != nil {
		second = func(t *testing.T) compute.Hypervisor { return s.Restart(t, b.hv) }
	}
	again := bench{T: t, ctx: b.ctx, hv: second(t)}
	again.power(m.ID, compute.PowerOn)
	d := again.get(m.ID)
	if d.ID != m.ID || d.Partition != m.Partition || d.Generation != 7 {
		t.Errorf("got %+v, want the marks of %+v", d, m)
	}
	if l, _ := again.listed(m.ID); l.Partition != m.Partition || l.Generation != 7 {
		t.Errorf("listed as %+v, want the marks of %+v", l, m)
	}
	again.must(again.hv.Remove(b.ctx, m.ID))
}

func (s Suite) redefine(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.must(b.hv.Define(b.ctx, m))
	m.Generation, m.MemoryMiB = 2, 48
	b.must(b.hv.Define(b.ctx, m))
	if got := b.get(m.ID).Generation; got != 2 {
		t.Errorf("shut off, its generation is %d, want 2", got)
	}
	b.must(b.hv.Start(b.ctx, m.ID))
	m.Generation = 3
	b.must(b.hv.Define(b.ctx, m))
	b.power(m.ID, compute.PowerOn)
	if got := b.get(m.ID).Generation; got != 3 {
		t.Errorf("running, its generation is %d, want 3", got)
	}
}

func (s Suite) otherPartition(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.must(b.hv.Define(b.ctx, m))
	other := m
	other.Partition = croft.NewPartitionID()
	b.kind(b.hv.Define(b.ctx, other), croft.Conflict)
	if got := b.get(m.ID).Partition; got != m.Partition {
		t.Errorf("it went over to partition %s", got)
	}
}

func (s Suite) invalid(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	m.ID = "not-a-uuid"
	b.kind(b.hv.Define(b.ctx, m), croft.Invalid)
}

func (s Suite) removeRunning(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.must(b.hv.Define(b.ctx, m))
	b.must(b.hv.Start(b.ctx, m.ID))
	b.must(b.hv.Remove(b.ctx, m.ID))
	b.gone(m.ID)
	b.must(b.hv.Define(b.ctx, m)) // no conflict with remains of the first
	b.power(m.ID, compute.PowerOff)
}

func (s Suite) stop(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.must(b.hv.Define(b.ctx, m))
	b.must(b.hv.Start(b.ctx, m.ID))
	b.must(b.hv.Stop(b.ctx, m.ID))
	if d := b.get(m.ID); d.Power != compute.PowerOff || d.Crashed {
		t.Errorf("stopped, it is %+v", d)
	}
}

func (s Suite) cutPower(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.kind(b.hv.CutPower(b.ctx, m.ID), croft.NotFound)
	b.must(b.hv.Define(b.ctx, m))
	b.must(b.hv.CutPower(b.ctx, m.ID)) // it is off
	b.must(b.hv.Start(b.ctx, m.ID))
	b.must(b.hv.CutPower(b.ctx, m.ID))
	b.power(m.ID, compute.PowerOff)
	b.must(b.hv.Start(b.ctx, m.ID))
	b.power(m.ID, compute.PowerOn)
}

func (s Suite) stopContext(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.must(b.hv.Define(b.ctx, m))
	b.must(b.hv.Start(b.ctx, m.ID))
	ctx, cancel := context.WithCancel(b.ctx)
	var stopped = make(chan error, 1)
	go func() { stopped <- b.hv.Stop(ctx, m.ID) }()
	cancel()
	err := <-stopped
	// Either the start came too late, or the power is off.
	if err == nil {
		b.power(m.ID, compute.PowerOff)
		return
	}
	b.kind(err, croft.Unavailable)
}

func (s Suite) crash(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	wakes := b.watch(m.ID)
	b.must(b.hv.Define(b.ctx, m))
	b.must(b.hv.Start(b.ctx, m.ID))
	s.Kill(t, b.hv, m.ID)
	b.until(wakes, "it died", m.ID, func(d compute.Domain) bool {
		return d.Power == compute.PowerOff && d.Crashed
	})
	b.must(b.hv.Start(b.ctx, m.ID))
	b.power(m.ID, compute.PowerOn)
	if b.get(m.ID).Crashed {
		t.Error("it runs and still counts as crashed")
	}
}

func (s Suite) pause(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.must(b.hv.Define(b.ctx, m))
	b.must(b.hv.Start(b.ctx, m.ID))
	s.Pause(t, b.hv, m.ID)
	b.power(m.ID, compute.PowerPaused)
	b.must(b.hv.Start(b.ctx, m.ID))
	b.power(m.ID, compute.PowerOn)
	s.Pause(t, b.hv, m.ID)
	b.must(b.hv.Stop(b.ctx, m.ID))
	b.power(m.ID, compute.PowerOff)
}

func (s Suite) foreign(t *testing.T) {
	b := s.bench(t)
	if s.Foreign == nil {
		return // the driver does not share its host
	}
	id := s.Foreign(t)
	b.gone(id)
	b.kind(b.hv.Start(b.ctx, id), croft.NotFound)
	b.kind(b.hv.Stop(b.ctx, id), croft.NotFound)
	b.must(b.hv.Remove(b.ctx, id))
	m := s.Machine(t)
	m.ID = id
	b.kind(b.hv.Define(b.ctx, m), croft.Conflict)
}

func (s Suite) marked(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.kind(b.hv.Mark(b.ctx, m.ID, compute.Ordered{Generation: 2}), croft.NotFound)
	b.must(b.hv.Define(b.ctx, m))
	b.must(b.hv.Mark(b.ctx, m.ID, compute.Ordered{Generation: 2}))
	b.must(b.hv.Start(b.ctx, m.ID))
	if got := b.get(m.ID); got.Generation != 2 || got.Partition != m.Partition {
		b.Errorf("it has the generation %d of %s, want 2 of %s", got.Generation, got.Partition, m.Partition)
	}
	b.must(b.hv.Mark(b.ctx, m.ID, compute.Ordered{Generation: 3}))
	if got := b.get(m.ID); got.Generation != 3 || got.Power != compute.PowerOn {
		b.Errorf("it has the generation %d and is %s, want 3 and on", got.Generation, got.Power)
	}
	project := compute.Ordered{Generation: 3, Project: "red", Open: []string{"tcp/80", "udp/53"}}
	b.must(b.hv.Mark(b.ctx, m.ID, project))
	if got := b.get(m.ID); !got.Ordered.Equal(project) || got.Power != compute.PowerOn {
		b.Errorf("it has the mark %+v and is %s, want %+v and on", got.Ordered, got.Power, project)
	}
}

// chosen defines a machine with the address of another, before and after that is removed. The machine keeps it while it
// runs, while it is off, and over a restart of the agent.
func (s Suite) chosen(t *testing.T) {
	b := s.bench(t)
	first, second := s.machine(b), s.machine(b)
	network := compute.NIC{MAC: first.ID.MAC(0).String(), Network: "default"}
	first.NICs = []compute.NIC{network}
	b.must(b.hv.Define(b.ctx, first))
	reserved := b.get(first.ID).Reserved
	if len(reserved) != 1 {
		t.Skipf("the driver has no network that gives addresses: %v", reserved)
	}
	network.MAC, network.Address = second.ID.MAC(0).String(), reserved[0].String()
	second.NICs = []compute.NIC{network}
	b.kind(b.hv.Define(b.ctx, second), croft.Conflict)
	b.gone(second.ID)
	b.must(b.hv.Remove(b.ctx, first.ID))
	for range 2 {
		b.must(b.hv.Define(b.ctx, second))
		if got := b.get(second.ID).Reserved; len(got) != 1 || got[0] != reserved[0] {
			t.Errorf("it has %v, and asks for %v", got, reserved)
		}
	}
	keeps := func(b bench) {
		t.Helper()
		if got := b.get(second.ID).Reserved; len(got) != 1 || got[0] != reserved[0] {
			t.Errorf("it has %v, and asks for %v", got, reserved)
		}
	}
	b.must(b.hv.Start(b.ctx, second.ID))
	keeps(b)
	again := s.New
	if s.Restart != nil {
		again = func(t *testing.T) compute.Hypervisor { return s.Restart(t, b.hv) }
	}
	after := bench{T: t, ctx: b.ctx, hv: again(t)}
	keeps(after)
	third := s.machine(b)
	third.NICs = []compute.NIC{{MAC: third.ID.MAC(0).String(), Network: "default", Address: network.Address}}
	after.kind(after.hv.Define(b.ctx, third), croft.Conflict)
	after.must(after.hv.CutPower(b.ctx, second.ID))
	keeps(after)
	after.kind(after.hv.Define(b.ctx, third), croft.Conflict)
	after.must(after.hv.Start(b.ctx, second.ID))
	keeps(after)
	after.must(after.hv.Remove(b.ctx, second.ID))
	b.hv = after.hv // of a simulated host, which knows of the removal

	network.Address = "192.0.2.7"
	other := s.machine(b)
	network.MAC = other.ID.MAC(0).String()
	other.NICs = []compute.NIC{network}
	b.kind(b.hv.Define(b.ctx, other), croft.Conflict)
}
