package load_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/bench/cluster/load"
)

// run sends requests; each is answered after answer, and its instance runs after twice that time.
func run(t *testing.T, c load.Config, answer func(n int) time.Duration, fails func(n int) error) *load.Run {
	t.Helper()
	var r *load.Run
	var asked atomic.Int64
	c.Ask = func(_ context.Context, id croft.InstanceID) error {
		mine := int(asked.Add(1)) - 1
		took := answer(mine)
		time.Sleep(took)
		if fails != nil && fails(mine) != nil {
			return fails(mine)
		}
		time.AfterFunc(took, func() { r.Running(id) })
		return nil
	}
	r = load.New(c)
	if err := r.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestARateIsKeptAndDelaysCountFromWhenARequestWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := time.Millisecond
		r := run(t, load.Config{Rate: 100, AtOnce: 1, For: time.Second, Grace: time.Minute}, func(n int) time.Duration {
			if n == 10 {
				return 95 * ms // nine others become due meanwhile
			}
			return ms
		}, nil)
		got := r.Result()
		if got.Requests != 100 || got.Ran != 100 || len(got.Errors) > 0 {
			t.Errorf("got %+v", got)
		}
		if got.Answer.P50 != 1 || got.Answer.Max != 95 || got.Running.Max != 190 {
			t.Errorf("got %+v", got)
		}
		if got.Answer.P99 != 86 { // the next one, due 10 ms later, was made after that
			t.Errorf("the 99th of 100 took %v ms", got.Answer.P99)
		}
	})
}

func TestWithoutARateTheNextFollowsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, load.Config{AtOnce: 4, For: time.Second, Grace: time.Minute},
			func(int) time.Duration { return 100 * time.Millisecond }, nil)
		got := r.Result()
		if got.Requests != 40 || got.Answer.Max != 100 || math.Abs(got.Rate-40/1.1) > 0.01 {
			t.Errorf("got %+v", got)
		}
		seconds := r.Seconds()
		if len(seconds) != 2 || seconds[0].Ran != 32 || seconds[1].Ran != 8 || seconds[0].P99 != 200 {
			t.Errorf("got %+v", seconds)
		}
	})
}

func TestFailuresAreCountedByKindAndNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := croft.Errorf(croft.NoCapacity, "full")
		began := time.Now()
		r := run(t, load.Config{Rate: 10, AtOnce: 4, For: time.Second, Grace: time.Hour},
			func(int) time.Duration { return time.Millisecond },
			func(n int) error {
				if n%2 == 1 {
					return full
				}
				return nil
			})
		got := r.Result()
		if got.Ran != 5 || got.Errors[string(croft.NoCapacity)] != 5 || time.Since(began) > time.Second {
			t.Errorf("after %v: %+v", time.Since(began), got)
		}
	})
}

func TestWhatNeverRunsEndsWithTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := load.New(load.Config{Rate: 1, AtOnce: 1, For: 2 * time.Second, Grace: 5 * time.Second,
			Ask: func(context.Context, croft.InstanceID) error { return nil }})
		began := time.Now()
		if err := r.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("it took %v", took)
		}
		if got := r.Result(); got.Ran != 0 || got.Requests != 2 {
			t.Errorf("got %+v", got)
		}
	})
}
