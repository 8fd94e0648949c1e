package keyed

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestWakesWhileRunningBecomeOneMoreRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		g := Workers[string]{Do: func(context.Context, string) { runs++; time.Sleep(time.Second) }}
		g.Wake(t.Context(), "a")
		synctest.Wait()
		for range 10 {
			g.Wake(t.Context(), "a")
		}
		g.Wait()
		if runs != 2 {
			t.Errorf("got %d runs, want 2", runs)
		}
	})
}

func TestKeysRunAtOnceAndOneKeyNeverTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := map[int]int{}, 0
		g := Workers[int]{Do: func(_ context.Context, k int) {
			mu.Lock()
			running[k]++
			if running[k] > 1 {
				t.Errorf("key %d runs twice at once", k)
			}
			most = max(most, len(running))
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			if running[k]--; running[k] == 0 {
				delete(running, k)
			}
		}}
		for range 3 {
			for k := range 5 {
				g.Wake(t.Context(), k)
			}
		}
		g.Wait()
		if most != 5 {
			t.Errorf("at most %d keys ran at once, want 5", most)
		}
	})
}

func TestInterruptEndsTheRunningCallAndRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends []error
		g := Workers[string]{Do: func(ctx context.Context, _ string) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			ends = append(ends, ctx.Err())
		}}
		g.Wake(t.Context(), "a")
		synctest.Wait()
		g.Interrupt(t.Context(), "a")
		g.Wait()
		if len(ends) != 2 || ends[0] == nil || ends[1] != nil {
			t.Errorf("got ends %v, want the first interrupted and the second whole", ends)
		}
	})
}

func TestNothingStartsAfterTheContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := Workers[string]{Do: func(context.Context, string) { t.Error("it ran") }}
	g.Wake(ctx, "a")
	g.Interrupt(ctx, "a")
	g.Wait()
}
