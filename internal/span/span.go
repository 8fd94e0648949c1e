// Package span records OpenTelemetry spans. It makes a span only if a caller, here or in another process, started a
// recorded trace; so rooms need no tracer of their own, and without a trace nothing is done or kept.
package span

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name under which all spans of ours are.
const scope = "croft"

// Start begins a span below that of ctx. end has to be called, with what the work came
// to; that somebody gave it up is no error of it.
func Start(ctx context.Context, name string, about ...attribute.KeyValue) (_ context.Context, end func(error)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, func(error) {}
	}
	return Begin(ctx, parent.TracerProvider(), name, about...)
}

// Begin begins a span where it is known who records: the first of a process. It is below
// that of ctx, which may be one that Join took from elsewhere.
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

// Do is Start around one piece of work.
func Do(ctx context.Context, name string, work func(context.Context) error, about ...attribute.KeyValue) error {
	ctx, end := Start(ctx, name, about...)
	err := work(ctx)
	end(err)
	return err
}

// Parent is the span of ctx for another process, as W3C's traceparent; empty where
// nothing is recorded.
func Parent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Join makes the span that another process named the parent of those that are begun
// with ctx. False: it named none, or what it named is no traceparent.
func Join(ctx context.Context, parent string) (context.Context, bool) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent})
	return ctx, trace.SpanContextFromContext(ctx).IsRemote()
}
