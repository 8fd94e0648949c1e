package hvtest

import (
	"context"
	"testing"
	"time"

	"croft"
	"croft/compute"
)

// Late is a driver whose calls can be held before they take effect.
type Late struct {
	compute.Hypervisor
	// Hold delays calls until Release; held signals each waiting call.
	Hold    func() (held <-chan struct{})
	Release func()
}

// verb is a named method of the hypervisor that acts on one machine.
type verb struct {
	name string
	call func(context.Context, compute.Hypervisor, compute.Machine) error
}

var (
	define = verb{"define", func(ctx context.Context, hv compute.Hypervisor, m compute.Machine) error {
		return hv.Define(ctx, m)
	}}
	change = verb{"define anew", func(ctx context.Context, hv compute.Hypervisor, m compute.Machine) error {
		m.Generation, m.MemoryMiB = 7, 48
		return hv.Define(ctx, m)
	}}
	mark = verb{"mark", func(ctx context.Context, hv compute.Hypervisor, m compute.Machine) error {
		return hv.Mark(ctx, m.ID, compute.Ordered{Generation: 5})
	}}
	remark = verb{"mark anew", func(ctx context.Context, hv compute.Hypervisor, m compute.Machine) error {
		return hv.Mark(ctx, m.ID, compute.Ordered{Generation: 6})
	}}
	start = verb{"start", func(ctx context.Context, hv compute.Hypervisor, m compute.Machine) error {
		return hv.Start(ctx, m.ID)
	}}
	stop = verb{"stop", func(ctx context.Context, hv compute.Hypervisor, m compute.Machine) error {
		return hv.Stop(ctx, m.ID)
	}}
	remove = verb{"remove", func(ctx context.Context, hv compute.Hypervisor, m compute.Machine) error {
		return hv.Remove(ctx, m.ID)
	}}
	look = verb{"get", func(ctx context.Context, hv compute.Hypervisor, m compute.Machine) error {
		_, err := hv.Get(ctx, m.ID)
		return err
	}}
)

// seen is a domain with a generation and a power.
func seen(generation int64, p compute.Power) compute.Domain {
	return compute.Domain{Ordered: compute.Ordered{Generation: generation}, Power: p}
}

// late checks that a caller may give up before its call is complete. The call still takes effect, and later calls about
// the same instance take effect after it, for all pairs of operations.
func (s Suite) late(t *testing.T) {
	for _, c := range []struct {
		before      []verb
		left, after verb
		want        compute.Domain // expected generation and power; no power: the instance is gone
	}{
		{nil, define, remove, compute.Domain{}},
		{nil, define, look, seen(1, compute.PowerOff)},
		{nil, define, start, seen(1, compute.PowerOn)},
		{nil, define, change, seen(7, compute.PowerOff)},
		{nil, define, mark, seen(5, compute.PowerOff)},
		{[]verb{define}, change, mark, seen(5, compute.PowerOff)},
		{[]verb{define}, mark, remark, seen(6, compute.PowerOff)},
		{[]verb{define}, mark, change, seen(7, compute.PowerOff)},
		{[]verb{define}, start, stop, seen(1, compute.PowerOff)},
		{[]verb{define}, start, remove, compute.Domain{}},
		{[]verb{define, start}, stop, start, seen(1, compute.PowerOn)},
		{[]verb{define, start}, stop, remove, compute.Domain{}},
		{[]verb{define, start}, remove, define, seen(1, compute.PowerOff)},
		{[]verb{define, start}, look, remove, compute.Domain{}},
	} {
		t.Run(c.left.name+", left, then "+c.after.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			t.Cleanup(cancel)
			l := s.Late(t)
			b := bench{T: t, ctx: ctx, hv: l.Hypervisor}
			m := s.machine(b)
			_, err := l.List(ctx) // connects
			b.must(err)
			for _, v := range c.before {
				b.must(v.call(ctx, l.Hypervisor, m))
			}
			b.overtake(l, m, c.left, c.after)
			if c.want.Power == "" {
				b.gone(m.ID)
				return
			}
			if got := b.get(m.ID); got.Generation != c.want.Generation || got.Power != c.want.Power {
				t.Errorf("it has the generation %d and is %s, want %d and %s", got.Generation, got.Power,
					c.want.Generation, c.want.Power)
			}
		})
	}
}

// overtake abandons the first call while it is in flight and makes the second, which must not overtake it.
func (b bench) overtake(l Late, m compute.Machine, first, second verb) {
	b.Helper()
	held := l.Hold()
	ctx, leave := context.WithCancel(b.ctx)
	left, ended := make(chan error, 1), make(chan error, 1)
	go func() { left <- first.call(ctx, l.Hypervisor, m) }()
	select {
	case <-held:
	case <-b.ctx.Done():
		b.Fatalf("%s never asked the hypervisor", first.name)
	}
	leave()
	b.kind(<-left, croft.Unavailable)
	go func() { ended <- second.call(b.ctx, l.Hypervisor, m) }()
	select {
	case <-held: // a driver that does not queue calls at once
	case <-time.After(50 * time.Millisecond):
	}
	l.Release()
	b.must(<-ended)
}
