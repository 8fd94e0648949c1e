package compute

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"croft"
	"croft/hosts/audit"
)

// sweep compares the records with the existing state, repairs differences if that harms no guest, and reports the
// others: for this host and, when it is this agent's turn, for records and claims that belong to no host. It acts only
// on differences that two consecutive sweeps found.
func (a *Agent) sweep(ctx context.Context) {
	if !a.locked.Load() {
		return
	}
	err := a.caretaker.TakeTurn(ctx)
	if err != nil {
		err = fmt.Errorf("records: %w", err)
	} else {
		err = a.sweepHost(ctx)
	}
	a.metrics.sweeps.WithLabelValues(outcome(ctx, err)).Inc()
	if err != nil {
		a.logUnless(ctx, err, "sweep")
	}
}

// sweepHost sweeps this host.
func (a *Agent) sweepHost(ctx context.Context) error {
	claims, err := a.Inventory.Claims(ctx, a.Host.ID)
	if errors.Is(err, croft.NotFound) {
		if a.known.Load() && !a.forgotten {
			a.forgotten = true
			a.Log.Warn("the host was forgotten while its agent runs; restart the agent to offer it again", "host",
				a.Host.ID)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := errors.Join(a.reclaimName(ctx), a.reserveUnclaimed(claims), a.countPCI(ctx, claims),
		a.offerChanges(ctx)); err != nil {
		return err
	}
	contents, err := a.Contents(ctx)
	if err != nil {
		return err
	}
	var ids []croft.InstanceID
	for id := range claims {
		ids = append(ids, id)
	}
	for _, g := range contents.Guests {
		ids = append(ids, g.Instance)
	}
	e, err := a.Records.HostEvidence(ctx, a.Host.ID, append(ids, contents.Directories...)...)
	if err != nil {
		return err
	}
	e.Claims[a.Host.ID], e.Contents[a.Host.ID] = claims, contents
	found := slices.DeleteFunc(audit.Compare(e), func(d audit.Difference) bool {
		return d.Host != a.Host.ID || d.Kind == audit.HostProblem || d.Kind == audit.UndoneOrder ||
			d.Kind == audit.LeftHere
	})
	believed := audit.Confirm(a.foundHere, found)
	audit.CountKinds(a.metrics.differences, believed)
	a.foundHere = found // accessed only by the sweep
	if err := a.caretaker.Mend(ctx, believed); err != nil {
		return err
	}
	strays := slices.DeleteFunc(believed, func(d audit.Difference) bool { return d.Kind != audit.StrayGuest })
	return a.examine(ctx, claims, strays)
}
