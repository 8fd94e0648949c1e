// Package span records OpenTelemetry spans. It makes a span only if a caller, here or in another process, started a
// recorded trace. So other packages need no tracer, and without a trace nothing is done or kept.
package span

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is the instrumentation scope of all spans of croft.
const scope = "croft"

// Start starts a span below the span of ctx. end must be called with the result of the work; cancellation is
// not recorded as an error.
func Start(ctx context.Context, name string, about ...attribute.KeyValue) (_ context.Context, end func(error)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, func(error) {}
	}
	return Begin(ctx, parent.TracerProvider(), name, about...)
}

// Begin starts the first span of a process, with the provider that records it. Its parent is the span of ctx,
// which may come from Join.
func Begin(ctx context.Context, provider trace.TracerProvider, name string,
	about ...attribute.KeyValue) (_ context.Context, end func(error)) {
	ctx, s := provider.Tracer(scope).Start(ctx, name, trace.WithAttributes(about...))
	return ctx, func(err error) {
		if err != nil && !errors.Is(err, context.Canceled) {
			s.RecordError(err)
			s.SetStatus(codes.Error, err.Error())
		}
		s.End()
	}
}

// Do runs work in a span; see Start.
func Do(ctx context.Context, name string, work func(context.Context) error, about ...attribute.KeyValue) error {
	ctx, end := Start(ctx, name, about...)
	err := work(ctx)
	end(err)
	return err
}

// Parent returns the span of ctx for another process, as a W3C traceparent; empty: nothing is recorded.
func Parent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Join makes another process's span the parent of spans started with ctx. False: parent is empty or not a traceparent.
func Join(ctx context.Context, parent string) (context.Context, bool) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent})
	return ctx, trace.SpanContextFromContext(ctx).IsRemote()
}
