package compute

import (
	"context"
	"croft/internal/meter"
	"errors"
)

// errNotArrived is not a failure: the pass is repeated until it is over.
var errNotArrived = errors.New("a host that the instance moved away from still has it")

// outcome returns the metrics' label for how something ended. What was interrupted, or waits for another
// host, is not a failure and counts separately.
func outcome(ctx context.Context, err error) string {
	switch {
	case err != nil && ctx.Err() != nil:
		return "interrupted"
	case errors.Is(err, errNotArrived):
		return "waiting"
	}
	return meter.Result(err)
}
