package vm

import (
	"testing"

	"croft"
)

func TestWhatIsSeenOfAnInstanceThatStarts(t *testing.T) {
	calls := 0
	f := &progress{farther: func() { calls++ }, step: -1}
	for _, c := range []struct {
		state   croft.State
		bytes   int64
		farther bool
	}{
		{croft.StatePending, 0, true}, {croft.StatePending, 0, false},
		{croft.StateFetching, 0, true}, {croft.StateFetching, 5, true}, {croft.StateFetching, 5, false},
		{croft.StateFailed, 0, false}, {croft.StateFetching, 3, false}, {croft.StateFetching, 9, true},
		{croft.StateBooting, 0, true}, {croft.StateFailed, 0, false}, {croft.StateBooting, 0, false},
		{croft.StateRunning, 0, true},
	} {
		before := calls
		st := croft.Status{Observation: &croft.Observation{State: c.state}}
		if c.bytes > 0 {
			st.Observation.Progress = &croft.Progress{Done: c.bytes}
		}
		if f.see(st); (calls > before) != c.farther {
			t.Errorf("%s with %d bytes is farther: %v", c.state, c.bytes, calls > before)
		}
	}
}
