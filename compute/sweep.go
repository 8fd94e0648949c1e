package compute

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"croft"
	"croft/internal/books"
)

// sweep compares the books with what there is, mends what no guest can suffer from,
// and tells the rest: what is this host's, and, where it is this agent's turn, what
// is no host's own. What two sweeps in a row found is believed.
func (a *Agent) sweep(ctx context.Context) {
	if !a.seat.Load() {
		return
	}
	err := a.caretaker.takeTurn(ctx)
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

// sweepHost looks after this host.
func (a *Agent) sweepHost(ctx context.Context) error {
	claims, err := a.Inventory.Claims(ctx, a.Host.ID)
	if errors.Is(err, croft.NotFound) {
		if a.known.Load() && a.caretaker.first(forgotten) {
			a.Log.Warn("the host was forgotten while its agent runs; restart the agent to offer it again", "host",
				a.Host.ID)
		}
		return nil
	}
	if err != nil {
		return err
	}
	holding, err := a.Holding(ctx)
	if err != nil {
		return err
	}
	var ids []croft.InstanceID
	for id := range claims {
		ids = append(ids, id)
	}
	for _, g := range holding.Guests {
		ids = append(ids, g.Instance)
	}
	b, err := a.Records.HostBooks(ctx, a.Host.ID, append(ids, holding.Directories...)...)
	if err != nil {
		return err
	}
	b.Claims[a.Host.ID], b.Holdings[a.Host.ID] = claims, holding
	found := slices.DeleteFunc(books.Compare(b), func(d books.Difference) bool {
		return d.Host != a.Host.ID || d.Kind == books.HostProblem || d.Kind == books.UndoneOrder
	})
	believed := books.Confirm(a.foundHere, found)
	differ(a.metrics.differences, believed)
	a.foundHere = found // only the sweep touches it
	if err := a.caretaker.mend(ctx, believed); err != nil {
		return err
	}
	strays := slices.DeleteFunc(believed, func(d books.Difference) bool { return d.Kind != books.StrayGuest })
	return a.examine(ctx, claims, strays)
}

// forgotten is told of the host itself.
var forgotten = finding{books.UnknownHost, ""}
