package compute

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

// heard records the states that an agent observed, in order.
type heard struct {
	Orders
	mu     sync.Mutex
	states []croft.State
}

func (h *heard) Observe(_ context.Context, o croft.Observation) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states = append(h.states, o.State)
	return nil
}

func TestOnlyStatesThatLastAreTold(t *testing.T) {
	t.Parallel()
	const moment, while = passingTime / 10, passingTime * 2
	for name, c := range map[string]struct {
		takes       time.Duration // of each of three transient states
		interrupted bool
		want        []croft.State
	}{
		"what is over at once is not told": {moment, false, []croft.State{croft.StateRunning}},
		"what lasts is, one after the other": {while, false, []croft.State{
			croft.StateFetching, croft.StateDefining, croft.StateBooting, croft.StateRunning,
		}},
		"of several in a row that do not last, the one that is on when the time is over": {passingTime * 2 / 5, false,
			[]croft.State{
				croft.StateBooting, croft.StateRunning,
			}},
		"a pass that is interrupted takes its last state with it": {moment, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &heard{}
				a := &Agent{Config: Config{Orders: h, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}}
				p := &pass{agent: a, id: croft.NewInstanceID(), memory: &memory{}, want: &croft.Order{}}
				for _, state := range []croft.State{croft.StateFetching, croft.StateDefining, croft.StateBooting} {
					p.observePassing(t.Context(), croft.Observation{State: state})
					time.Sleep(c.takes)
				}
				if !c.interrupted {
					p.observe(t.Context(), croft.Observation{State: croft.StateRunning})
				}
				p.memory.endPassing()
				time.Sleep(time.Hour)
				synctest.Wait()
				if !slices.Equal(h.states, c.want) {
					t.Errorf("told %v, want %v", h.states, c.want)
				}
			})
		})
	}
}
