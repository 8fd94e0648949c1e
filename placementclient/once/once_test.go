package once_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"croft/placementclient/once"
)

func TestOfManyOneDoesIt(t *testing.T) {
	o, calls := once.New(), atomic.Int64{}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := o.Do(t.Context(), func(context.Context) error { calls.Add(1); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if calls.Load() != 1 {
		t.Errorf("it was done %d times", calls.Load())
	}
}

func TestAFailureIsItsCallersAlone(t *testing.T) {
	o, fault := once.New(), errors.New("fault")
	if err := o.Do(t.Context(), func(context.Context) error { return fault }); !errors.Is(err, fault) {
		t.Errorf("got %v", err)
	}
	if err := o.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Errorf("the next one: %v", err)
	}
	if err := o.Do(t.Context(), func(context.Context) error { return fault }); err != nil {
		t.Errorf("after the success: %v", err)
	}
}

func TestNobodyWaitsLongerThanHeWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, end := once.New(), make(chan struct{})
		ended := make(chan error, 1)
		go func() { ended <- o.Do(t.Context(), func(context.Context) error { <-end; return nil }) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := o.Do(ctx, func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(end)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
