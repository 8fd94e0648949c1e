package turns

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestOneKeyCannotTakeAllTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := Fair[string]{Total: 3, PerKey: 2}
		take := func(key string) (taken chan func()) {
			taken = make(chan func(), 1)
			go func() {
				end, err := f.Take(t.Context(), key)
				if err != nil {
					t.Error(err)
				}
				taken <- end
			}()
			synctest.Wait()
			return taken
		}
		granted := func(taken chan func()) bool { return len(taken) == 1 }
		first, second, third := take("a"), take("a"), take("a")
		if !granted(first) || !granted(second) || granted(third) {
			t.Error("a key has not exactly two turns")
		}
		other, late := take("b"), take("b")
		if !granted(other) || granted(late) {
			t.Error("another key has not exactly the third turn")
		}
		(<-first)()
		synctest.Wait()
		if !granted(third) || granted(late) {
			t.Error("the oldest request is not the next")
		}
		gone, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		cancel(cause)
		if _, err := f.Take(gone, "c"); !errors.Is(err, cause) {
			t.Errorf("whoever does not wait any more gets %v", err)
		}
		for _, taken := range []chan func(){second, third, other, late} {
			(<-taken)()
			synctest.Wait()
		}
		if end, err := f.Take(gone, "c"); err != nil {
			t.Errorf("a free turn is refused with %v", err)
		} else {
			end()
		}
		if f.sum != 0 || len(f.used) != 0 || len(f.waiting) != 0 {
			t.Errorf("left: %d turns, %v, %d waiting", f.sum, f.used, len(f.waiting))
		}
	})
}
