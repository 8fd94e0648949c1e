package instances

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counted runs inOrder over calls that take some time, the first calls longest. It returns the results that were passed
// on, and the largest number of calls that ran at once.
func counted(ctx context.Context, n, limit int, each func(i int) bool) (got []int, most int64) {
	var now, top atomic.Int64
	inOrder(ctx, n, limit, func(i int) int {
		if running := now.Add(1); running > top.Load() {
			top.Store(running)
		}
		defer now.Add(-1)
		time.Sleep(time.Duration(limit-i%limit) * time.Second)
		return i
	}, func(i int) bool {
		got = append(got, i)
		return each(i)
	})
	return got, top.Load()
}

func TestInOrder(t *testing.T) {
	always := func(int) bool { return true }
	synctest.Test(t, func(t *testing.T) {
		if got, most := counted(t.Context(), 1000, 8, always); !slices.IsSorted(got) || len(got) != 1000 || most > 8 {
			t.Errorf("%d results, sorted %v, %d at once; want 1000 in order and 8 at most", len(got),
				slices.IsSorted(got), most)
		}
		// A million calls end with the one that stops them, and the ones that run at the same time.
		if got, _ := counted(t.Context(), 1_000_000, 8,
			func(i int) bool { return i < 20 }); len(got) < 21 || len(got) > 21+8 {
			t.Errorf("%d results, want those up to the 21st and those under way", len(got))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if got, _ := counted(ctx, 1_000_000, 8, always); len(got) > 1000 || time.Since(began) > 2*time.Minute {
			t.Errorf("%d results in %v after ctx ended in a minute", len(got), time.Since(began))
		}
		if got, most := counted(t.Context(), 0, 8, always); len(got) > 0 || most > 0 {
			t.Errorf("nothing to do: %v, %d at once", got, most)
		}
	})
}
