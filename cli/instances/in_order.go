package instances

import (
	"context"

	"golang.org/x/sync/errgroup"
)

const (
	// atOnce is the number of in-flight requests of a command.
	atOnce = 64
	// waitsAtOnce is the number of instances watched at a time: the others follow when earlier ones have arrived,
	// or are checked when the time is over.
	waitsAtOnce = 512
)

// inOrder calls do for 0 to n-1, at most limit at once, and passes the results in order to each. Once each
// returns false, or ctx has ended, it starts no more calls, and returns when the running ones have ended and
// their results were passed on.
func inOrder[T any](ctx context.Context, n, limit int, do func(i int) T, each func(T) (more bool)) {
	var underWay []chan T // oldest first
	more := true
	for next := 0; ; {
		for more && ctx.Err() == nil && next < n && len(underWay) < limit {
			result, i := make(chan T, 1), next
			go func() { result <- do(i) }()
			underWay = append(underWay, result)
			next++
		}
		if len(underWay) == 0 {
			return
		}
		if !each(<-underWay[0]) {
			more = false
		}
		underWay = underWay[1:]
	}
}

// forEach calls do for 0 to n-1, at most limit at once, and returns their errors.
func forEach(n, limit int, do func(i int) error) []error {
	errs := make([]error, n)
	var work errgroup.Group
	work.SetLimit(limit)
	for i := range n {
		work.Go(func() error {
			errs[i] = do(i)
			return nil
		})
	}
	_ = work.Wait() // the errors are in errs
	return errs
}
