package compute

import (
	"context"
	"errors"
	"slices"
	"time"

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
	mine, err := a.Records.TakeTurn(ctx, max(a.SweepEvery, time.Second))
	if err == nil && mine {
		err = a.sweepRecords(ctx)
	}
	if err != nil {
		a.logUnless(ctx, err, "sweep records")
		return
	}
	if err := a.sweepHost(ctx); err != nil {
		a.logUnless(ctx, err, "sweep the host")
	}
}

// sweepRecords looks after the records of all hosts.
func (a *Agent) sweepRecords(ctx context.Context) error {
	first, err := a.lookAtRecords(ctx)
	if err != nil || len(first) == 0 || !pause(ctx, min(a.SweepEvery, confirmAfter)) {
		return err
	}
	second, err := a.lookAtRecords(ctx)
	if err != nil {
		return err
	}
	return a.mend(ctx, books.Confirm(first, second))
}

// confirmAfter is how long what is under way has to go on before it counts as stuck.
const confirmAfter = 5 * time.Second

// lookAtRecords undoes requests whose schedulers died, for a session that ended does
// not come back, and returns what else is wrong with records.
func (a *Agent) lookAtRecords(ctx context.Context) ([]books.Difference, error) {
	b, err := a.Records.Books(ctx)
	if err != nil {
		return nil, err
	}
	var found []books.Difference
	for _, d := range books.Compare(b) {
		switch d.Kind {
		case books.AbandonedRequest:
			if err := a.undo(ctx, b.Instances[d.Instance]); err != nil {
				return nil, err
			}
		case books.LostOrder, books.UndoneOrder, books.HostProblem: // for the host's own agent
		default:
			found = append(found, d)
		}
	}
	return found, nil
}

// undo ends a request whose scheduler died.
func (a *Agent) undo(ctx context.Context, inst croft.Instance) error {
	// The claim first: while the record stands, somebody knows of the claim.
	if err := a.Inventory.Release(ctx, inst.ID); err != nil {
		return err
	}
	err := a.Records.Discard(ctx, inst)
	if errors.Is(err, croft.Conflict) {
		return nil // its scheduler lives after all, or another host swept it
	}
	if err == nil {
		a.Log.Info("a request whose scheduler died was undone", "instance", inst.ID, "host", a.Host.ID)
	}
	return err
}

// sweepHost looks after this host.
func (a *Agent) sweepHost(ctx context.Context) error {
	claims, err := a.Inventory.Claims(ctx, a.Host.ID)
	if errors.Is(err, croft.NotFound) {
		if a.known.Load() && !a.told[forgotten] {
			a.told[forgotten] = true
			a.Log.Warn("the host was forgotten while its agent runs; restart the agent to offer it again", "host", a.Host.ID)
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
	a.foundHere = found // only the sweep touches it
	if err := a.mend(ctx, believed); err != nil {
		return err
	}
	strays := slices.DeleteFunc(believed, func(d books.Difference) bool { return d.Kind != books.StrayGuest })
	return a.examine(ctx, claims, strays)
}

// mend does what is safe about differences and logs the others, once.
func (a *Agent) mend(ctx context.Context, differences []books.Difference) error {
	for _, d := range differences {
		var err error
		switch {
		case d.Kind == books.LeakedClaim && d.Mendable:
			err = a.releaseLeaked(ctx, d.Instance)
		case d.Mendable && (d.Kind == books.LostName || d.Kind == books.LostOrder || d.Kind == books.LostObservation):
			err = a.Records.Drop(ctx, d)
		default:
			a.tell(d)
			continue
		}
		if err != nil {
			return err
		}
		a.Log.Info("mended", "op", string(d.Kind), "instance", d.Instance, "host", a.Host.ID, "reason", d.Cause)
	}
	return nil
}

// releaseLeaked frees a claim, unless somebody began to use its UUID meanwhile.
func (a *Agent) releaseLeaked(ctx context.Context, id croft.InstanceID) error {
	_, err := a.Records.Instance(ctx, id)
	if !errors.Is(err, croft.NotFound) {
		return err
	}
	return a.Inventory.Release(ctx, id)
}

type finding struct {
	kind     books.Kind
	instance croft.InstanceID
}

// forgotten is told of the host itself.
var forgotten = finding{books.UnknownHost, ""}

// tell logs a difference, the first time. `croft audit` shows it for as long as it is there.
func (a *Agent) tell(d books.Difference) {
	at := finding{d.Kind, d.Instance}
	if !a.told[at] {
		a.told[at] = true
		a.Log.Warn("not as the books say; `croft audit` tells more", "op", string(d.Kind), "instance", d.Instance, "host", d.Host, "reason", d.Cause)
	}
}
