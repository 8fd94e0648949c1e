package span_test

import (
	"context"
	"errors"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	"croft/internal/span"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestNothingIsDoneWhereNobodyRecords(t *testing.T) {
	ctx := t.Context()
	cost := testing.AllocsPerRun(1000, func() {
		_, end := span.Start(ctx, "work")
		end(nil)
	})
	if cost != 0 {
		t.Errorf("a span that nobody records takes %v allocations", cost)
	}
	if got := span.Parent(ctx); got != "" {
		t.Errorf("another process is told of the span %q", got)
	}
}

// A process that records nothing passes on the trace that it received.
func TestATraceGoesOnThroughAProcessThatDoesNotRecord(t *testing.T) {
	ctx, _ := span.Join(t.Context(), parent)
	ctx, end := span.Begin(ctx, noop.NewTracerProvider(), "work")
	defer end(nil)
	if got := span.Parent(ctx); got != parent {
		t.Errorf("got %q, want %q", got, parent)
	}
}

func TestSpansAreBelowOneAnother(t *testing.T) {
	recorder := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(recorder))
	ctx, ok := span.Join(t.Context(), parent)
	if _, wrong := span.Join(t.Context(), "00-zz-1"); !ok || wrong {
		t.Errorf("a traceparent is taken: %v; what is none: %v", ok, wrong)
	}
	ctx, end := span.Begin(ctx, provider, "outer", attribute.String("a", "b"))
	cause := errors.New("no")
	if err := span.Do(ctx, "inner", func(context.Context) error { return cause }); err != cause {
		t.Errorf("Do returns %v", err)
	}
	_ = span.Do(ctx, "given up", func(context.Context) error { return context.Canceled })
	told := span.Parent(ctx)
	end(nil)
	got := recorder.GetSpans()
	inner, given, outer := got[0], got[1], got[2]
	if outer.Parent.SpanID().String() != "b7ad6b7169203331" || inner.Parent.SpanID() != outer.SpanContext.SpanID() {
		t.Errorf("the parents are %v and %v", outer.Parent, inner.Parent)
	}
	if inner.Status != (sdk.Status{Code: codes.Error, Description: "no"}) || given.Status.Code != codes.Unset ||
		outer.Status.Code != codes.Unset {
		t.Errorf("they ended with %v, %v and %v", inner.Status, given.Status, outer.Status)
	}
	if want := "00-0af7651916cd43dd8448eb211c80319c-" + outer.SpanContext.SpanID().String() + "-01"; told != want {
		t.Errorf("another process is told %q, want %q", told, want)
	}
}
