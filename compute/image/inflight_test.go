package image

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

func TestProgressIsToldFiveTimesASecondAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &inflightFetch{done: make(chan struct{}), err: errors.New("cut")}
		f.total.Store(1000)
		go func() {
			for range 100 { // for one second
				time.Sleep(10 * time.Millisecond)
				f.have.Add(9)
			}
			time.Sleep(10 * time.Second) // no data arrives
			f.have.Add(50)
			close(f.done)
		}()
		var told []int64
		var when []time.Time
		_, err := f.wait(t.Context(), func(p croft.Progress) {
			told, when = append(told, p.Done), append(when, time.Now())
		})
		if err != f.err {
			t.Errorf("got %v, want the error of the fetch", err)
		}
		if len(told) < 5 || !slices.IsSorted(told) || told[len(told)-1] != 950 {
			t.Errorf("told %v: want five counts a second and at last 950", told)
		}
		for i := 1; i < len(when)-1; i++ { // the last call is not rate-limited
			if gap := when[i].Sub(when[i-1]); gap < progressEvery {
				t.Errorf("told %v: %v between two calls", told, gap)
			}
		}
	})
}

func TestProgressIsToldWhenTheCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &inflightFetch{done: make(chan struct{})}
		f.have.Store(7)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var last croft.Progress
		_, err := f.wait(ctx, func(p croft.Progress) { last = p })
		if !errors.Is(err, context.DeadlineExceeded) || last.Done != 7 {
			t.Errorf("got %v, last %+v", err, last)
		}
	})
}

func TestAFetchWaitsForTheEndOfAnAbandonedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inflight{all: map[string]*inflightFetch{}}
		ref := Reference{Path: "/x"}
		old := &inflightFetch{done: make(chan struct{})} // without waiters: it is ending
		f.all[ref.String()] = old
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := f.join(ctx, ref); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v: it joined a fetch that is ending, or began another beside it", err)
		}
	})
}
