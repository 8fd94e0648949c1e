package scheduletest

import (
	"context"
	"errors"

	"croft"
	"croft/schedule"
)

var _ schedule.Placer = (*Placer)(nil)

// Placer places in memory: its Memory and Placement must have no other writers.
type Placer struct {
	Memory    *Memory
	Placement *Placement
	// Fault, if set, is called before each call; an error is the answer.
	Fault func(croft.Order) error
}

// Place implements schedule.Placer.
func (p *Placer) Place(ctx context.Context, inst croft.Instance, o croft.Order, c croft.Candidate) (croft.Instance,
	error) {
	if p.Fault != nil {
		if err := p.Fault(o); err != nil {
			return inst, err
		}
	}
	created, err := p.Memory.Create(ctx, inst)
	if err != nil {
		return inst, err
	}
	if err := p.Placement.Claim(ctx, inst.ID, croft.Owner{Project: inst.Project}, c); err != nil {
		return inst, p.undone(ctx, created, croft.Errorf(croft.NoCapacity, "%w: %w", schedule.ErrFull, err))
	}
	placed, err := p.Memory.Assign(ctx, created, o)
	if errors.Is(err, croft.Unavailable) {
		err = croft.Errorf(croft.Unavailable, "%w: %w", schedule.ErrClosed, err)
	}
	if err != nil {
		p.Placement.mu.Lock()
		delete(p.Placement.claims, inst.ID)
		p.Placement.mu.Unlock()
		return inst, p.undone(ctx, created, err)
	}
	return placed, nil
}

// undone removes the record of an instance that was not placed.
func (p *Placer) undone(ctx context.Context, inst croft.Instance, why error) error {
	return errors.Join(why, p.Memory.Discard(ctx, inst))
}
