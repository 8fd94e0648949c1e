package pace_test

import (
	"testing"

	"croft"
	"croft/control/pace"
)

func TestEachProjectHasItsShare(t *testing.T) {
	s := &pace.Shares{Each: 3, All: 5, Newcomers: 2}
	begin := func(p croft.Project, want bool) (end func()) {
		t.Helper()
		end, ok := s.Begin(p)
		if ok != want {
			t.Errorf("%s begins: %v, want %v", p, ok, want)
		}
		return end
	}
	first := begin("greedy", true)
	begin("greedy", true)
	begin("greedy", true)
	begin("greedy", false)
	begin("shop", true) // the room of newcomers
	begin("shop", false)
	begin("lab", true)
	begin("dev", false)
	first()
	first() // again: nothing
	begin("greedy", false)
	begin("dev", true)
}
