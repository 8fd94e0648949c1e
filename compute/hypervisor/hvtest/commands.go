package hvtest

import (
	"errors"
	"testing"

	"croft"
	"croft/compute"
)

// commands asks for the agents of guests that have none: no guest of the suite has one.
func (s Suite) commands(t *testing.T) {
	b := s.bench(t)
	agents, has := b.hv.(compute.GuestAgents)
	if !has {
		t.Skip("the driver reaches no agents")
	}
	m := s.machine(b)
	_, err := agents.GuestAgent(b.ctx, m.ID)
	b.kind(err, croft.NotFound)
	b.must(b.hv.Define(b.ctx, m))
	_, err = agents.GuestAgent(b.ctx, m.ID)
	b.kind(err, croft.Conflict)
	b.must(b.hv.Start(b.ctx, m.ID))
	if _, err = agents.GuestAgent(b.ctx, m.ID); !errors.Is(err, compute.ErrNoAgent) {
		t.Errorf("a guest without an agent: %v", err)
	}
}
