package instances

import (
	"context"

	"golang.org/x/sync/errgroup"
)

const (
	// atOnce is how many of the requests of a command are under way at a time.
	atOnce = 64
	// waitsAtOnce is how many instances are watched at a time: the others come after
	// those that have arrived, or are looked at when the time is over.
	waitsAtOnce = 512
)

// inOrder calls do for 0 to n-1, at most limit of them at once, and hands the results in
// their order to each. Once each returns false, or ctx has ended, it begins no more, and
// returns when those that are under way have ended and their results are handed on.
func inOrder[T any](ctx context.Context, n, limit int, do func(i int) T, each func(T) (more bool)) {
	var underWay []chan T // the oldest first
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

// forEach calls do for 0 to n-1, at most limit of them at once, and returns their errors.
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
	_ = work.Wait() // each has its error in errs
	return errs
}
