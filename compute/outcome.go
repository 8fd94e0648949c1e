package compute

import (
	"context"
	"croft/internal/meter"
	"errors"
)

// errNotArrived is no failure: the next pass finds it over, or not yet.
var errNotArrived = errors.New("a host that the instance moved away from still has it")

// outcome is how something ended. What was interrupted, or waits for another host, is
// nobody's fault and counts apart.
func outcome(ctx context.Context, err error) string {
	switch {
	case err != nil && ctx.Err() != nil:
		return "interrupted"
	case errors.Is(err, errNotArrived):
		return "waiting"
	}
	return meter.Result(err)
}
