package apply

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/grid/plan"
	"croft/grid/unit"
)

func TestAwaitSaysWhatTheLastAnswerWas(t *testing.T) {
	t.Parallel()
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
			"wait: not within 1m: the check had not ended after 30s"},
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

// silent dials nodes that do not answer.
type silent struct{}

func (silent) Dial(ctx context.Context, _ unit.Node) (Connection, error) {
	<-ctx.Done()
	return nil, croft.Errorf(croft.Unavailable, "no answer")
}

func TestANodeThatIsOutHoldsNothingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Config{Dialer: silent{}, Locker: Shell{}, Runtimes: func(string, unit.Node) (Runtime, error) {
			return worldRuntime{}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		begun := time.Now()
		nodes := []unit.Node{{Name: "a", State: "out"}, {Name: "b", State: "left"}}
		found := g.Observe(t.Context(), plan.Desired{}, nodes)
		took := time.Since(begun)
		if took != outTime || found[0].Error != "no answer" || found[1].Error != "no answer" {
			t.Errorf("after %s it found %+v", took, found)
		}
	})
}
