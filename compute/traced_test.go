package compute_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"croft"
)

// traces records the agent's spans, if the cloud has a recorder.
func (c *cloud) traces() trace.TracerProvider {
	if c.recorder == nil {
		return nil
	}
	return sdk.NewTracerProvider(sdk.WithSyncer(c.recorder))
}

const scheduled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// recorded returns a cloud whose orders belong to a trace.
func recorded(t *testing.T) *cloud {
	t.Helper()
	c := newCloud(t)
	c.recorder, c.trace = tracetest.NewInMemoryExporter(), scheduled
	return c
}

// orders returns the ended spans of orders. The agent must have ended.
func (c *cloud) orders() tracetest.SpanStubs {
	c.stop()
	return slices.DeleteFunc(c.recorder.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name != "carry out" })
}

func TestAnOrderIsOneSpanOfItsTrace(t *testing.T) {
	t.Parallel()
	c := recorded(t)
	c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	inst = c.reorder(inst, croft.WantGone)
	c.await(inst, "")
	orders := c.orders()
	if len(orders) != 2 {
		t.Fatalf("there are %d spans of orders, want one for each of two", len(orders))
	}
	for _, s := range orders {
		if s.Parent.SpanID().String() != "b7ad6b7169203331" || !s.Parent.IsRemote() ||
			s.SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%s is below %v", s.Name, s.Parent)
		}
		if s.Status.Code == codes.Error {
			t.Errorf("it is an error: %s", s.Status.Description)
		}
	}
}

func TestAnOrderThatFailsIsAnErrorInItsTrace(t *testing.T) {
	t.Parallel()
	c := recorded(t)
	c.images.Fault = func(context.Context, string) error { return croft.Errorf(croft.NotFound, "no such image") }
	c.start()
	c.await(c.request("web"), croft.StateFailed)
	for _, s := range c.orders() {
		if s.Status.Code != codes.Error || s.Status.Description != "no such image" || len(s.Events) != 1 {
			t.Errorf("got %+v %+v", s.Status, s.Events)
		}
	}
	for _, s := range c.recorder.GetSpans() {
		if want := s.Name == "carry out" || s.Name == "build" ||
			s.Name == "image fetch"; want != (s.Status.Code == codes.Error) {
			t.Errorf("%s: %+v, want an error: %v", s.Name, s.Status, want)
		}
	}
}

func TestAnOrderThatIsInterruptedEndsItsSpan(t *testing.T) {
	t.Parallel()
	c := recorded(t)
	fetching := make(chan struct{})
	c.images.Fault = func(ctx context.Context, _ string) error {
		close(fetching)
		<-ctx.Done()
		return ctx.Err()
	}
	c.start()
	inst := c.request("web")
	<-fetching
	inst = c.reorder(inst, croft.WantGone)
	c.await(inst, "")
	orders := c.orders()
	if len(orders) != 2 {
		t.Fatalf("there are %d spans of orders, want two", len(orders))
	}
	for _, s := range c.recorder.GetSpans() {
		if s.Status.Code == codes.Error {
			t.Errorf("%s is an error, though it was only given up: %s", s.Name, s.Status.Description)
		}
	}
}

func TestWhatNobodyFollowsIsNotRecorded(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]struct {
		trace  string
		issued time.Time
	}{
		"an order of no trace":                      {"", time.Now()},
		"one whose trace is not to be recorded":     {scheduled[:len(scheduled)-1] + "0", time.Now()},
		"what is done about an order of long ago":   {scheduled, time.Now().Add(-2 * time.Hour)},
		"an order whose trace is none that we read": {"not-a-trace", time.Now()},
	} {
		t.Run(name, func(t *testing.T) {
			c := recorded(t)
			c.start()
			inst := c.request("first") // its order is recorded
			c.await(inst, croft.StateRunning)
			c.trace = order.trace
			next := c.order(inst, croft.WantStopped)
			next.Issued = order.issued.UTC()
			inst, err := c.store.Instances.Reorder(t.Context(), inst, next)
			if err != nil {
				t.Fatal(err)
			}
			c.await(inst, croft.StateStopped)
			if got := c.orders(); len(got) != 1 {
				t.Errorf("there are %d spans of orders, want that of the first alone", len(got))
			}
		})
	}
}
