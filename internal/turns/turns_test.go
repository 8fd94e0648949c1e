package turns

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

func TestOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns[string]
		end, err := turns.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		for i := range 5 {
			go func() {
				end, err := turns.Take(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // guarded by the turn
				end()
			}()
			synctest.Wait()
		}
		other, err := turns.Take(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		if len(order) > 0 {
			t.Errorf("%v had a turn before the first had ended", order)
		}
		end()
		synctest.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
			t.Errorf("the turns came as %v", order)
		}
		if len(turns.lines) > 0 {
			t.Errorf("%d keys are remembered", len(turns.lines))
		}
	})
}

func TestWhoWaitsMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns[string]
		end, err := turns.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		go cancel(cause)
		if _, err := turns.Take(ctx, "a"); !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
		end()
		if end, err = turns.Take(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		end()
		if len(turns.lines) > 0 {
			t.Errorf("%d keys are remembered", len(turns.lines))
		}
	})
}
