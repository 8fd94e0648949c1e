package schedule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"croft"
	"croft/internal/delay"
	"croft/internal/span"
	"croft/schedule/topology"
)

const (
	// lastLimit is the maximum number of candidates in one answer.
	lastLimit = 1 << 16
	// rounds is the maximum number of tries of a request whose candidates are lost to concurrent updates.
	rounds = 6
)

// attempt claims resources and writes the order for a request. The record exists, unless a Placer writes it.
type attempt struct {
	search
	placer  Placer       // nil: no placer
	hold    bool         // only claim resources, and write no order
	claimed croft.HostID // the host that has, or may have, the claim
	unsure  bool         // it is unknown whether the order was written
	busy    int          // candidates of this round lost to concurrent updates
	barred  bool         // a group's rule, or a change of the data behind the choice, just barred the chosen host
	stale   bool         // barred because of such a change: the host may still be usable
	last    *snapshot    // of the last round
}

// run tries candidates until one has the order. The first round uses the snapshot that first returns.
func (a *attempt) run(ctx context.Context, first func() (*snapshot, error)) (Decision, error) {
	limit, wait := a.policy.Sample, a.Backoff
	look := first
	for round := 1; ; {
		a.busy = 0
		seen, decision, err := a.tryCandidates(ctx, look)
		look = func() (*snapshot, error) { return a.look(ctx, limit) }
		switch {
		case err != nil || decision.Host.ID != "":
			return decision, err
		case a.busy > 0 && round < rounds:
			if err := delay.For(ctx, wait/2+rand.N(wait)); err != nil {
				return Decision{}, fmt.Errorf("schedule %s: %w", a.inst.Name, err)
			}
			wait *= 2
			round++
		case a.busy > 0:
			return Decision{}, croft.Errorf(croft.Conflict,
				"schedule %s: the hosts that fit were claimed on by others all the while: try again", a.inst.Name)
		case seen >= limit && limit < lastLimit:
			limit *= 4
		default:
			return Decision{}, a.noCapacity(ctx, a.last)
		}
	}
}

// inOneStep does the work of run with a Placer. A failure leaves nothing to undo.
func (a *attempt) inOneStep(ctx context.Context) (Decision, error) {
	d, err := a.run(ctx, func() (*snapshot, error) { return a.look(ctx, a.policy.Sample) })
	if err != nil {
		return Decision{}, err
	}
	a.Log.Info("instance scheduled", "instance", a.inst.ID, "host", d.Host.ID)
	return d, nil
}

// tryCandidates tries each candidate once, in the order of the policy. It returns no host and no error when all
// candidates were tried.
func (a *attempt) tryCandidates(ctx context.Context, look func() (*snapshot, error)) (seen int, _ Decision, _ error) {
	o, err := look()
	if err != nil {
		return 0, Decision{}, err
	}
	defer a.inFlight.done(o.reading)
	a.last = o
	rest := o.candidates
	for size := batch; len(rest) > 0; size *= 4 {
		some := rest[:min(size, len(rest))]
		rest = rest[len(some):]
		if err := a.readHosts(ctx, o, hostsOf(some)); err != nil {
			return 0, Decision{}, err
		}
		if d, err := a.try(ctx, o, some); err != nil || d.Host.ID != "" {
			return 0, d, err
		}
	}
	return o.seen, Decision{}, nil
}

// try takes the best of the given candidates that is usable. It returns no host and no error if none is.
func (a *attempt) try(ctx context.Context, o *snapshot, some []croft.Candidate) (d Decision, err error) {
	left, err := a.usable(o, some)
	if err != nil {
		return Decision{}, err
	}
	for len(left) > 0 {
		var ch *choice
		ch, left = a.inFlight.choose(o.reading, a.inst, left, a.rank(o))
		d, err = a.takeWithDisks(ctx, ch, o.hosts[hostOf(ch.candidate)], o)
		a.inFlight.end(ch, d.Host.ID != "")
		if err != nil || d.Host.ID != "" {
			return d, err
		}
		if a.stale {
			left = append([]croft.Candidate{ch.candidate}, left...)
		}
		if a.barred {
			if left, err = a.regroup(ctx, o, left); err != nil {
				return Decision{}, err
			}
		}
	}
	return Decision{}, nil
}

// take claims a candidate and writes the order. It returns no host and no error if the caller should try the next
// candidate. begun are the new volumes of the request, which are claimed on the host.
func (a *attempt) take(ctx context.Context, ch *choice, host croft.Host, o *snapshot, begun []croft.Volume) (Decision,
	error) {
	seated := a.inst
	seated.Volumes = slices.Concat(a.inst.Volumes, begun)
	seated.BasedOn = o.measure.BasedOn(topology.BasedOn(seated.Spec.In, o.aggregates))
	seated.PropertiesGeneration = o.filtered.Generation(seated.Spec, host.ID)
	seats, err := seatsOf(a.inst.Spec.Affinities, host)
	if err != nil {
		return Decision{}, err
	}
	seated.Seats = croft.Renumber(seats, o.seats)
	seated.Refused = a.refusals(o, host.ID)
	if !a.keepsDisk() {
		seated.Storage, _ = diskOf(ch.candidate)
	}
	if a.placer != nil {
		return a.place(ctx, ch, seated, host)
	}
	a.claimed = host.ID
	err = span.Do(ctx, "claim", func(ctx context.Context) error {
		owner := croft.Owner{Partition: a.Partition, Project: a.inst.Project}
		if !a.keepsDisk() {
			return a.Claims.Claim(ctx, a.inst.ID, owner, withoutDisks(ch.candidate, begun))
		}
		had, err := a.Claims.ClaimOf(ctx, a.inst.ID)
		if err != nil {
			return err
		}
		return a.Claims.Reclaim(ctx, had, owner, WithDisk(ch.candidate, a.inst))
	}, attribute.String("croft.host", string(host.ID)))
	switch {
	case errors.Is(err, croft.Conflict):
		a.claimed = ""
		a.busy++
		return Decision{}, nil
	case errors.Is(err, croft.NoCapacity):
		a.claimed = ""
		a.dropped[host.ID] = "had room, but another request was faster"
		return Decision{}, nil
	case err != nil:
		return Decision{}, fmt.Errorf("claim %s on host %s: %w", a.inst.Name, host.Name, err)
	}
	a.inFlight.claimed(ch)
	var inst croft.Instance
	if a.hold {
		inst, err = a.Holds.Hold(ctx, seated, host.ID)
	} else {
		inst, err = a.writeOrder(ctx, &host, a.Records.Assign, seated,
			NewOrder(a.Partition, seated, host.ID, croft.WantRunning))
	}
	if err == nil {
		return Decision{Instance: inst, Host: host}, nil
	}
	return a.unassigned(ctx, host, err)
}

// place does the work of take with a Placer.
func (a *attempt) place(ctx context.Context, ch *choice, seated croft.Instance, host croft.Host) (Decision, error) {
	write := func(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
		return a.placer.Place(ctx, inst, o, ch.candidate)
	}
	inst, err := a.writeOrder(ctx, &host, write, seated, NewOrder(a.Partition, seated, host.ID, croft.WantRunning))
	switch {
	case err == nil:
		a.inFlight.claimed(ch)
		return Decision{Instance: inst, Host: host}, nil
	case ctx.Err() != nil:
	case errors.Is(err, ErrFull):
		a.dropped[host.ID] = "had room, but another request was faster"
		return Decision{}, nil
	case errors.Is(err, ErrClosed):
		a.dropped[host.ID] = Closed(err)
		return Decision{}, nil
	case errors.Is(err, ErrAddressTaken):
		a.barred = true // usable names the instance that has it
		return Decision{}, nil
	case errors.Is(err, ErrStale):
		a.barred, a.stale = true, true
		return Decision{}, nil
	case errors.Is(err, croft.NoCapacity) && len(seated.Spec.Affinities) > 0:
		a.barred = true
		return Decision{}, nil
	}
	return Decision{}, fmt.Errorf("schedule %s: %w", a.inst.Name, err)
}

// unassigned settles a failed Assign or Hold. Its transaction may have been applied although the answer was lost, or
// may still be applied. Fence rules that out; only then may the claim be released.
func (a *attempt) unassigned(ctx context.Context, host croft.Host, cause error) (Decision, error) {
	after, cancel := a.afterwards(ctx)
	defer cancel()
	cause = fmt.Errorf("order %s on host %s: %w", a.inst.Name, host.Name, cause)
	now, err := a.inst, error(nil)
	if !errors.Is(cause, croft.NoCapacity) { // a refusal is certain
		now, err = a.Records.Fence(after, a.inst)
	}
	switch {
	case errors.Is(err, croft.NotFound):
		return Decision{}, croft.Errorf(croft.Conflict, "instance %s was destroyed while it was being scheduled",
			a.inst.Name)
	case err != nil:
		a.unsure = true
		return Decision{}, cause
	case now.Host == host.ID && (now.State == croft.StateScheduled || now.State == croft.StateHeld):
		return Decision{Instance: now, Host: host}, nil
	case now.State != croft.StateScheduling || now.Session != a.inst.Session:
		a.unsure = true // another owner has the record and the claim now
		return Decision{}, cause
	}
	a.inst = now
	if err := a.release(ctx); err != nil {
		return Decision{}, errors.Join(cause, err)
	}
	switch {
	case ctx.Err() != nil, a.unsure:
		return Decision{}, cause
	case errors.Is(cause, croft.NoCapacity):
		a.barred, a.stale = true, errors.Is(cause, ErrStale)
		return Decision{}, nil
	case !errors.Is(cause, croft.Unavailable):
		return Decision{}, cause
	}
	a.dropped[host.ID] = Closed(cause)
	return Decision{}, nil
}

// undo removes the record and the claim that the attempt created. It releases the claim first: as long as a claim may
// exist, the record must lead to it. What it cannot undo is left to a caretaker.
func (a *attempt) undo(ctx context.Context) (err error) {
	if a.unsure {
		return nil
	}
	session := a.inst.Session
	defer func() {
		if err != nil {
			a.Records.Retire(session)
		}
	}()
	if err := a.release(ctx); err != nil || a.unsure {
		return err
	}
	after, cancel := a.afterwards(ctx)
	defer cancel()
	if err := a.Records.Discard(after, a.inst); err != nil && !errors.Is(err, croft.Conflict) {
		return err
	}
	return nil
}

// release releases the claim, if there may be one.
func (a *attempt) release(ctx context.Context) error {
	if a.claimed == "" {
		return nil
	}
	after, cancel := a.afterwards(ctx)
	defer cancel()
	release := a.Claims.Release
	if a.keepsDisk() {
		release = a.releaseHost
	}
	err := release(after, a.inst.ID, func(ctx context.Context) ([]croft.HostID, error) {
		now, err := a.Records.Fence(ctx, a.inst)
		switch {
		case errors.Is(err, croft.NotFound): // the record was removed, so the claim has no owner
			return []croft.HostID{a.claimed}, nil
		case err != nil:
			return nil, err
		case now.State != croft.StateScheduling || now.Session != a.inst.Session:
			return nil, errOthers
		}
		a.inst = now
		return []croft.HostID{a.claimed}, nil
	})
	switch {
	case errors.Is(err, errOthers):
		a.unsure = true
	case err != nil:
		return fmt.Errorf("give the claim of %s back: %w", a.inst.Name, err)
	}
	a.claimed = ""
	return nil
}

// releaseHost releases what an instance claims in addition to its disk, which it keeps on shared storage, if may
// permits it.
func (a *attempt) releaseHost(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	had, err := a.Claims.ClaimOf(ctx, id)
	if err != nil {
		return err
	}
	if _, err := may(ctx); err != nil {
		return err
	}
	return a.Claims.Reclaim(ctx, had, croft.Owner{Partition: a.Partition, Project: a.inst.Project},
		WithDisk(croft.Candidate{}, a.inst))
}

// errOthers reports that another owner has taken over the record, and with it the claim.
var errOthers = errors.New("another request has replaced the record")

// regroup reads groups, aggregates, distances and the chosen address again after another member joined a group, another
// instance got the address, or one of these changed, and drops the candidates that are now barred.
func (a *attempt) regroup(ctx context.Context, o *snapshot, left []croft.Candidate) ([]croft.Candidate, error) {
	a.barred, a.stale = false, false
	if err := errors.Join(a.readMembers(ctx, o), a.readBounds(ctx, o), a.readAddress(ctx, o)); err != nil {
		return nil, err
	}
	return a.usable(o, left)
}

// NewOrder returns an instance's next order, of the next generation, for a host. All orders are created here.
func NewOrder(partition croft.PartitionID, inst croft.Instance, host croft.HostID, want croft.Want) croft.Order {
	return croft.Order{
		Partition:  partition,
		Host:       host,
		Instance:   inst.ID,
		Generation: inst.Generation + 1,
		Want:       want,
		Project:    inst.Project,
		Name:       inst.Name,
		Spec:       inst.Spec,
		Issued:     time.Now().UTC(),
		Rebooted:   inst.Rebooted,
		Rebuilt:    inst.Rebuilt,
		Resized:    inst.Resized,
		Ejected:    inst.Ejected,
		Backup:     inst.Backup,
		MovedFrom:  inst.MovedFrom,
		LeftBefore: inst.LeftBefore,
		Storage:    inst.Storage,
		TakesFrom:  inst.TakesFrom,
	}
}
