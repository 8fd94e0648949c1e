package pace

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

func TestALargeRequestCostsAsMuchAsManySmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewShared(10, 20)
		if ok, _ := l.Allow("lab", "ann", 1000); !ok {
			t.Error("a request that costs more than the burst is never possible")
		}
		if ok, wait := l.Allow("lab", "ann", 15); ok || wait != 1500*time.Millisecond {
			t.Errorf("the next one is %t, after %s; want it after 1.5s", ok, wait)
		}
		time.Sleep(1500 * time.Millisecond)
		if ok, _ := l.Allow("lab", "ann", 15); !ok {
			t.Error("it is refused after the wait")
		}
	})
}

func TestCallersOfAProjectShareABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewShared(10, 20)
		asked := func(project croft.Project, callers int) (n int) {
			for range 20 {
				for i := range callers {
					if ok, _ := l.Allow(project, fmt.Sprint(project, " ", i), 1); ok {
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

func TestProjectsOfATreeShareABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewShared(10, 20)
		n := 0
		for range 20 {
			for i := range 100 {
				name := croft.Project(fmt.Sprint("evil.s", i))
				if ok, _ := l.Allow(name, string(name), 1); ok {
					n++
				}
			}
		}
		if n != treeShare*projectShare*20 {
			t.Errorf("100 projects below one asked %d times at once, want %d", n, treeShare*projectShare*20)
		}
		if ok, _ := l.Allow("evilx", "ann", 20); !ok {
			t.Error("a project of another tree has to wait")
		}
	})
}
