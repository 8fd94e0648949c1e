package pool

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The time limit of a start applies to each step, not to all of them together.
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

// Each command gets its environment and its limit.
func TestWhatCommandsGet(t *testing.T) {
	s := Settings{Name: "p", Commands: Commands{"new", "delete", "livecheck", "release", "list"},
		Limits: Limits{1, 2, 3, 4, 5}}
	r := Resource{ID: 7, Name: "n", InPool: 3, Data: []byte("made\n"), Counters: map[string]int{"port": 2}}
	env := []string{"RESALLOC_ID=7", "RESALLOC_NAME=n", "RESALLOC_POOL_ID=p", "RESALLOC_ID_IN_POOL=3",
		"RESALLOC_RESOURCE_DATA=bWFkZQo=", "RESALLOC_NAMED_COUNTER_port=2"}
	for kind, want := range map[HookKind]Hook{
		HookNew: {Command: "new", Limit: 1, Output: OutputData}, HookDelete: {Command: "delete", Limit: 2},
		HookLivecheck: {Command: "livecheck", Limit: 3}, HookRelease: {Command: "release", Limit: 4},
	} {
		if got := s.hook(r, kind); got.Kind != kind || got.Resource != 7 || got.Command != want.Command ||
			got.Limit != want.Limit || got.Output != want.Output || !slices.Equal(got.Env, env) {
			t.Errorf("%s: got %+v", kind, got)
		}
	}
	for _, c := range []struct {
		r    Resource
		want []string
	}{
		{Resource{}, []string{"RESALLOC_ID=0", "RESALLOC_NAME=None", "RESALLOC_POOL_ID=p", "RESALLOC_ID_IN_POOL=None"}},
		{Resource{ID: 1, Data: []byte{}}, []string{"RESALLOC_ID=1", "RESALLOC_NAME=None", "RESALLOC_POOL_ID=p",
			"RESALLOC_ID_IN_POOL=0", "RESALLOC_RESOURCE_DATA="}},
	} {
		if got := s.env(c.r); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
