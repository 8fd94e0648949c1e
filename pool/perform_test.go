package pool

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A start has its time limit for each step, not for all of them together.
func TestAStartEndsWhenItGetsNoFarther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, farther, stop := untilStill(t.Context(), time.Minute)
		defer stop()
		for range 10 {
			time.Sleep(59 * time.Second)
			farther()
		}
		if ctx.Err() != nil {
			t.Fatal("it ended although it got farther")
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), errStill) {
			t.Errorf("a minute later it is %v", context.Cause(ctx))
		}
	})
}
