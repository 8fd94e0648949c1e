package sighting_test

import (
	"testing"
	"testing/synctest"
	"time"

	"croft/internal/sighting"
)

func TestAThingIsSeenFromItsFirstSightOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f sighting.First[string]
		for _, step := range []struct {
			after time.Duration
			thing string
			want  bool
		}{
			{0, "a", false}, {10 * time.Second, "a", false}, {0, "b", false}, {10 * time.Second, "a", true},
			{0, "b", false}, {time.Second, "b", false}, {5 * time.Second, "b", true},
			{time.Hour, "a", false}, // it was forgotten
		} {
			time.Sleep(step.after)
			if got := f.Longer(step.thing, 15*time.Second); got != step.want {
				t.Errorf("after another %s: %s was seen for longer: %t", step.after, step.thing, got)
			}
		}
	})
}
