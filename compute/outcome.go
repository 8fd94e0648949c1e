package compute

import (
	"context"
	"croft/internal/meter"
	"errors"
)

// errNotArrived is not a failure: the pass is repeated until the former host has nothing left.
var errNotArrived = errors.New("a host that the instance moved away from still has it")

// outcome returns the metrics' label for how an operation ended. Interrupted operations and those that wait
// for another host are not failures and are counted separately.
func outcome(ctx context.Context, err error) string {
	switch {
	case err != nil && ctx.Err() != nil:
		return "interrupted"
	case errors.Is(err, errNotArrived):
		return "waiting"
	}
	return meter.Result(err)
}
