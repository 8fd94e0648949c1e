package apply

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

func TestAwaitSaysWhatTheLastAnswerWas(t *testing.T) {
	hangs := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	asked := 0
	for name, c := range map[string]struct {
		seconds int
		ask     func(ctx context.Context) (string, error)
		want    string
	}{
		"no answer came": {20, hangs, "wait: not within 20s: the check had not ended after 20s"},
		"a check that hangs again and again": {0, hangs,
			"wait: not within 1m0s: the check had not ended after 30s"},
		"an answer, and then a check that is cut off": {20, func(ctx context.Context) (string, error) {
			if asked++; asked == 1 {
				return "not yet", nil
			}
			return hangs(ctx)
		}, "wait: not within 20s: not yet"},
		"a final answer": {20, func(context.Context) (string, error) {
			return "", final{croft.Errorf(croft.Unavailable, "it ended")}
		}, "wait: it ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				err := await(t.Context(), c.seconds, "wait", c.ask)
				if !errors.Is(err, croft.Unavailable) || err.Error() != c.want {
					t.Errorf("got %v after %s, want %s", err, time.Since(begun), c.want)
				}
			})
		})
	}
}
