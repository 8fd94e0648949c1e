package delay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestForWaitsNoLongerThanItsContext(t *testing.T) {
	for _, c := range []struct {
		name              string
		wait, ends, takes time.Duration
		want              error
	}{
		{"the time passes", time.Minute, time.Hour, time.Minute, nil},
		{"the context ends first", time.Hour, time.Minute, time.Minute, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.ends)
				defer cancel()
				began := time.Now()
				if err := For(ctx, c.wait); !errors.Is(err, c.want) || time.Since(began) != c.takes {
					t.Errorf("got %v after %v, want %v after %v", err, time.Since(began), c.want, c.takes)
				}
			})
		})
	}
}

func TestEveryCallsUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		last, calls := time.Now(), 0
		Every(ctx, time.Minute, func(context.Context) {
			if waited := time.Since(last); waited < time.Minute || waited > time.Minute+6*time.Second {
				t.Errorf("waited %v, want a minute and up to a tenth of one", waited)
			}
			if last, calls = time.Now(), calls+1; calls == 20 {
				cancel()
			}
		})
		if calls != 20 {
			t.Errorf("called %d times, want 20", calls)
		}
	})
}
