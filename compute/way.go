package compute

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"croft"
	"croft/internal/span"
)

// way is an order on its way, as the trace that it belongs to sees it: one span from
// the first step until the guest is as the order wants it, or cannot be just now.
type way struct {
	generation int64
	span       trace.Span
	end        func(error)
	address    func(error) // ends the wait for the guest's address; nil where nobody waits
}

// followed is how long after it was issued an order is part of its trace. What is done
// later, such as starting a guest that crashed, nobody waits for.
const followed = time.Hour

// onItsWay returns ctx with the order's span in it, if the order belongs to a trace.
func (a *Agent) onItsWay(ctx context.Context, o croft.Order, m *memory) context.Context {
	if m.way != nil && m.way.generation != o.Generation {
		m.arrive(nil) // another order came first
	}
	if m.way == nil {
		ordered, ok := span.Join(ctx, o.Trace)
		if !ok || time.Since(o.Issued) > followed {
			return ctx
		}
		own, end := span.Begin(ordered, a.Traces, "carry out",
			attribute.String("croft.instance", string(o.Instance)), attribute.String("croft.host", string(o.Host)),
			attribute.String("croft.want", string(o.Want)), attribute.Int64("croft.generation", o.Generation))
		m.way = &way{generation: o.Generation, span: trace.SpanFromContext(own), end: end}
	}
	return trace.ContextWithSpan(ctx, m.way.span)
}

// expectAddress begins to wait for the address of a guest that has just been started.
// That is part of the order, and of none of its steps.
func (m *memory) expectAddress(ctx context.Context) {
	if m.way != nil && m.way.address == nil {
		_, m.way.address = span.Start(trace.ContextWithSpan(ctx, m.way.span), "address")
	}
}

// arrive ends the order's span, with what became of it.
func (m *memory) arrive(err error) {
	if m.way == nil {
		return
	}
	if m.way.address != nil {
		m.way.address(err)
	}
	m.way.end(err)
	m.way = nil
}

// arriveAll ends what is under way when the agent does. No worker runs any more.
func (a *Agent) arriveAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.memory {
		m.arrive(nil)
	}
}
