package compute

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"croft"
)

const traced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// slowNet is a hypervisor whose guests get their addresses some time after they start.
type slowNet struct{ logHypervisor }

func (h slowNet) Start(ctx context.Context, id croft.InstanceID) error {
	err := h.logHypervisor.Start(ctx, id)
	if h.domain != nil {
		h.domain.Addresses = nil
	}
	return err
}

// followedHost is a host whose orders belong to a trace.
type followedHost struct {
	*logbook
	agent    *Agent
	recorder *tracetest.InMemoryExporter
}

func newFollowed(t *testing.T, j job) followedHost {
	t.Helper()
	j.order.Trace = traced
	l := j.logbook(t)
	a, recorder := j.agent(l), tracetest.NewInMemoryExporter()
	a.Traces = sdk.NewTracerProvider(sdk.WithSyncer(recorder))
	return followedHost{l, a, recorder}
}

// spans returns the ended spans with this name.
func (f followedHost) spans(name string) tracetest.SpanStubs {
	return slices.DeleteFunc(f.recorder.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name != name })
}

// ended fails the test unless the spans of this many orders have ended.
func (f followedHost) ended(t *testing.T, when string, orders int) {
	t.Helper()
	if got := f.spans("carry out"); len(got) != orders {
		t.Errorf("%s the spans of %d orders have ended, want %d", when, len(got), orders)
	}
}

// An order's span lasts until the guest has its address, and names the order.
func TestTheSpanOfAnOrderLastsUntilTheGuestHasItsAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(t, job{order: run()})
		f.agent.Hypervisor = slowNet{logHypervisor{logbook: f.logbook}}
		f.slow = time.Second
		_ = one(t, f.agent, f.logbook)
		_ = one(t, f.agent, f.logbook)
		f.ended(t, "while it boots", 0)
		f.domain.Addresses = f.domain.Reserved
		_ = one(t, f.agent, f.logbook)
		_ = one(t, f.agent, f.logbook)
		f.ended(t, "once it runs", 1)
		order, address, boot := f.spans("carry out"), f.spans("address"), f.spans("boot")
		if len(address) != 1 || len(boot) != 1 || address[0].Parent.SpanID() != order[0].SpanContext.SpanID() ||
			address[0].StartTime.Before(boot[0].EndTime) {
			t.Errorf("the spans of the address %+v and of the boot %+v", address, boot)
		}
		var about []string
		for _, kv := range order[0].Attributes {
			about = append(about, string(kv.Key)+" "+kv.Value.String())
		}
		want := []string{"croft.instance " + string(guest), "croft.host " + string(here), "croft.want running",
			"croft.generation 4"}
		if !slices.Equal(about, want) || order[0].Parent.SpanID().String() != "b7ad6b7169203331" {
			t.Errorf("it says %q, below %v", about, order[0].Parent)
		}
		f.order.Generation = 5
		_ = one(t, f.agent, f.logbook)
		f.ended(t, "after another order", 2)
	})
}

func TestTheSpanOfAnOrderEndsWithIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		job  job
		then func(followedHost) // after the first pass
		want []codes.Code       // of the orders' spans
	}{
		{"a later order replaces it", job{order: run()}, func(f followedHost) {
			f.order.Generation, f.order.Want = 5, croft.WantStopped
		}, []codes.Code{codes.Unset, codes.Unset}},
		{"it vanishes with its guest", job{order: run()}, func(f followedHost) {
			f.logbook.order, f.domain = nil, nil
		}, []codes.Code{codes.Unset}},
		{"the agent ends", job{order: run()}, func(f followedHost) { f.agent.instances.arriveAll() },
			[]codes.Code{codes.Unset}},
		{"it is carried out", job{order: bury(), domain: on()}, nil, []codes.Code{codes.Unset}},
		{"it fails, and again", job{order: bury(), domain: on(), with: func(l *logbook) {
			l.fail = failing(errPlanned, "release [h]")
		}}, nil, []codes.Code{codes.Error, codes.Error}},
		{"an hour after it was issued it is followed", job{order: halt(), domain: on(), with: func(l *logbook) {
			l.order.Issued = time.Now().Add(-time.Hour)
		}}, nil, []codes.Code{codes.Unset}},
		{"later it is not", job{order: halt(), domain: on(), with: func(l *logbook) {
			l.order.Issued = time.Now().Add(-time.Hour - time.Nanosecond)
		}}, nil, nil},
		{"without a trace it is not", job{order: halt(), domain: on(), with: func(l *logbook) { l.order.Trace = "" }},
			nil, nil},
		{"nothing to do is no span", job{order: halt(), domain: off()}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFollowed(t, c.job)
				f.agent.Hypervisor = slowNet{logHypervisor{logbook: f.logbook}}
				_ = one(t, f.agent, f.logbook)
				if c.then != nil {
					f.ended(t, "before that", 0)
					c.then(f)
				}
				_ = one(t, f.agent, f.logbook)
				var got []codes.Code
				for _, s := range f.spans("carry out") {
					got = append(got, s.Status.Code)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("ended: %v, want %v", got, c.want)
				}
			})
		})
	}
}

// A guest without an order is reported once.
func TestAGuestThatIsLeftAloneIsSaidToBeOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := job{domain: on(), with: func(l *logbook) { l.order = nil }}.logbook(t)
		a := l.agent()
		var said bytes.Buffer
		a.Log = slog.New(slog.NewTextHandler(&said, nil))
		for range 3 {
			_ = one(t, a, l)
		}
		if strings.Count(said.String(), `msg="left alone"`) != 1 {
			t.Errorf("it says %s", said.String())
		}
	})
}

// When an order is deleted, its state in memory is deleted too.
func TestAnOrderThatVanishesIsNoOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		job  job
		fail func(string) error
	}{
		{"after it failed for good", job{order: run()}, failing(croft.Errorf(croft.Invalid, "never"), "fetch")},
		{"after its guest ended", job{order: run(), domain: poweredOff()}, nil},
		{"while its guest runs", job{order: run(), domain: on()}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := c.job.logbook(t)
				a := c.job.agent(l)
				l.fail = c.fail
				_ = one(t, a, l)
				l.fail, l.order = nil, nil
				if got := one(t, a, l); len(got) > 0 {
					t.Errorf("without it: %q", got)
				}
				if _, remembered := a.instances.all[guest]; remembered != (l.domain != nil) {
					t.Errorf("it is remembered: %v", remembered)
				}
			})
		})
	}
}

// The end of a guest for an earlier order does not apply to this order.
func TestAnEarlierEndIsNotThisOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := job{order: run(), domain: &Domain{Power: PowerOff, Ordered: Ordered{Generation: 4}, Started: 4}}
		l := j.logbook(t)
		l.seen = &croft.Observation{State: croft.StateStopped, Ended: croft.EndGuest, Generation: 3}
		if got := one(t, j.agent(l), l); !slices.Equal(got, []string{"start", isRunning}) {
			t.Errorf("done: %q", got)
		}
	})
}

// After a write of unknown outcome, the next observation is written, whatever it contains.
func TestAnObservationAfterAFailedWriteIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := job{order: run(), domain: &Domain{Power: PowerOn, Ordered: Ordered{Generation: 4}, Started: 4}}.logbook(t)
		a := l.agent()
		l.domain.Reserved = append(l.domain.Reserved, reserved)
		const boots = "observe booting at 192.0.2.7"
		for i, c := range []struct {
			addressed bool
			fail      func(string) error
			want      []string
		}{
			{false, nil, []string{boots}}, {true, failing(errPlanned, isRunning), []string{isRunning}},
			{true, nil, []string{isRunning}},
		} {
			l.domain.Addresses, l.fail = nil, c.fail
			if c.addressed {
				l.domain.Addresses = l.domain.Reserved
			}
			if got := one(t, a, l); !slices.Equal(got, c.want) {
				t.Errorf("%d: done: %q, want %q", i, got, c.want)
			}
		}
		p := &pass{agent: a, id: guest, memory: a.instances.remember(guest), want: l.order}
		stopped, failed := croft.Observation{State: croft.StateStopped}, croft.Observation{State: croft.StateFailed}
		p.observe(t.Context(), stopped)
		l.fail = failing(errPlanned, "observe failed")
		p.observe(t.Context(), failed)
		l.fail, l.steps = nil, nil
		p.observe(t.Context(), stopped)
		p.observe(t.Context(), stopped)
		l.want(t, "observe stopped")
	})
}
