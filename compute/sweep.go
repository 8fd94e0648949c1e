package compute

import (
	"context"
	"errors"

	"croft"
)

// sweep mends what crashes of others left behind. A scheduler that died between
// its intent and its order left a record in scheduling: its claim is given back
// and the record discarded. A claim on this host without any record, seen in two
// sweeps, is released.
func (a *Agent) sweep(ctx context.Context) {
	if err := a.sweepRecords(ctx); err != nil {
		a.logUnless(ctx, err, "sweep records")
		return
	}
	if err := a.sweepClaims(ctx); err != nil {
		a.logUnless(ctx, err, "sweep claims")
	}
}

func (a *Agent) sweepRecords(ctx context.Context) error {
	abandoned, err := a.Records.Abandoned(ctx)
	if err != nil {
		return err
	}
	for _, inst := range abandoned {
		// The claim first: while the record stands, somebody knows of the claim.
		if err := a.Inventory.Release(ctx, inst.ID); err != nil {
			return err
		}
		err := a.Records.Discard(ctx, inst)
		if errors.Is(err, croft.Conflict) {
			continue // its scheduler lives after all, or another host swept it
		}
		if err != nil {
			return err
		}
		a.Log.Info("a request whose scheduler died was undone", "instance", inst.ID, "host", a.Host.ID)
	}
	return nil
}

func (a *Agent) sweepClaims(ctx context.Context) error {
	claims, err := a.Inventory.Claims(ctx, a.Host.ID)
	if errors.Is(err, croft.NotFound) {
		return nil // the provider is not there yet
	}
	if err != nil {
		return err
	}
	suspects := map[croft.InstanceID]bool{}
	for id := range claims {
		inst, err := a.Records.Instance(ctx, id)
		switch {
		case err == nil:
			if inst.Host != "" && inst.Host != a.Host.ID {
				a.Log.Error("an instance of another host claims from this one", "instance", id, "host", a.Host.ID, "other", inst.Host)
			}
		case !errors.Is(err, croft.NotFound):
			return err
		case !a.suspects[id]:
			suspects[id] = true
		default:
			if err := a.Inventory.Release(ctx, id); err != nil {
				return err
			}
			a.Log.Info("a claim without an instance was released", "instance", id, "host", a.Host.ID)
		}
	}
	a.suspects = suspects // only the sweep touches it
	return nil
}
