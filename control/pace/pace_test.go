package pace

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallersOfAProjectShareABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewShared(10, 20)
		asked := func(project string, callers int) (n int) {
			for range 20 {
				for i := range callers {
					if ok, _ := l.Allow(project, fmt.Sprint(project, i)); ok {
						n++
					}
				}
			}
			return n
		}
		if n := asked("flood", 50); n != projectShare*20 {
			t.Errorf("50 callers of a project asked %d times at once, want %d", n, projectShare*20)
		}
		if n := asked("quiet", 1); n != 20 {
			t.Errorf("a caller of another project asked %d times at once, want 20", n)
		}
		if n := asked("", 50); n != 50*20 {
			t.Errorf("callers without a project asked %d times at once, want %d", n, 50*20)
		}
		time.Sleep(time.Second)
		if n := asked("flood", 50); n != projectShare*10 {
			t.Errorf("50 callers of a project asked %d times a second later, want %d", n, projectShare*10)
		}
	})
}
