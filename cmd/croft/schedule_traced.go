package main

import (
	"context"
	"log/slog"
	"os"

	"croft/internal/span"
	"croft/internal/traces"
)

// traced does something as one trace, where somebody records. It belongs to the trace
// that TRACEPARENT names, as jobs of CI have it, or is one of its own.
func (c *client) traced(ctx context.Context, name string, do func(context.Context) error) error {
	traces, flush, err := c.settings.Traces.Start(ctx, "croft-schedule", traces.CommandFlush, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer flush()
	ctx, _ = span.Join(ctx, os.Getenv("TRACEPARENT"))
	ctx, end := span.Begin(ctx, traces, name)
	err = do(ctx)
	end(err)
	return err
}
