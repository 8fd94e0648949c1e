package pool

import (
	"context"
	"errors"
	"slices"
	"time"

	"croft"
	"croft/internal/delay"
)

// acting is a server while it leads. One goroutine owns the ledger; others send it requests, and read the view.
type acting struct {
	*Manager
	term   Term
	ledger *Ledger
	view   *view
	inbox  inbox
	jobs   *jobs

	refused error     // why pools.yaml is not in force, for example a quota; nil: it is in force
	asked   time.Time // when that was decided
	kept    []Name    // pools that are missing from the file, but not removed yet
}

func newActing(m *Manager, term Term, l *Ledger, from Snapshot) *acting {
	return &acting{Manager: m, term: term, ledger: l, view: newView(from), inbox: inbox{signal: make(chan struct{}, 1)},
		jobs: newJobs()}
}

// fileEvery is the interval at which pools.yaml is checked for changes.
const fileEvery = time.Second

// run makes rounds until ctx ends, the lead is lost, or, after stop, the running commands have ended.
func (a *acting) run(ctx context.Context, stop <-chan struct{}) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		a.turn(func() { a.acting = nil })
		a.inbox.close(&StandbyError{})
		a.view.close()
		cancel()
		a.jobs.wait()
	}()
	if !a.Still {
		a.adopt(ctx)
	}
	if a.Instances != nil && !a.Still {
		a.jobs.work.Go(func() { a.watchInstances(ctx) })
	}
	a.jobs.work.Go(func() { a.endAfter(ctx, stop, cancel) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	stopped := stop // nil once it was received
	for stopping := false; ; {
		idle := a.jobs.running() == 0
		next, err := a.step(ctx, stopping)
		if err != nil || stopping && idle {
			return err
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stopped:
			stopping, stopped = true, nil
		case <-a.inbox.signal:
		case <-timer.C:
		}
	}
}

// endAfter calls end when the grace period after stop is over, even while a round waits for the store.
func (a *acting) endAfter(ctx context.Context, stop <-chan struct{}, end func()) {
	select {
	case <-stop:
		_ = delay.For(ctx, a.Grace)
		end()
	case <-ctx.Done():
	}
}

// step collects requests, decides, writes, and only then answers and acts. It returns how long the next round
// may wait.
func (a *acting) step(ctx context.Context, stopping bool) (time.Duration, error) {
	now := time.Now()
	requests := a.inbox.take()
	if !a.Still {
		a.readFile(ctx, now)
	}
	for _, r := range requests {
		r.err = r.do(a.ledger, now)
	}
	var actions []Action
	var next time.Time
	switch {
	case a.Still:
		actions = failCondemned(a.ledger, now)
	case !stopping:
		actions, next = Decide(a.ledger, now)
		a.ledger.forget(a.History)
	}
	batch := a.ledger.changes()
	err := a.commit(ctx, batch)
	if err == nil && !batch.Empty() {
		a.metrics.rounds.Observe(time.Since(now).Seconds())
		a.view.apply(batch)
	}
	for _, r := range requests {
		r.finish(err)
	}
	if err != nil {
		return 0, err
	}
	if gone := batch.GoneResources; len(gone) > 0 { // in bulk: the next round does not wait for the disk
		a.jobs.work.Go(func() { a.Hooks.Forget(gone...) })
	}
	a.jobs.together = nil
	for _, action := range actions {
		a.log(action)
		a.perform(ctx, action)
	}
	look := fileEvery
	if a.file.moving {
		look = settles
	}
	if next.IsZero() {
		return look, nil
	}
	return max(0, min(look, next.Sub(now))), nil
}

// removeAfter is how long the file must be unchanged before pools whose names it lacks are removed: a copy may stop for
// a while at any line, and what it has written by then may be a valid file.
const removeAfter = time.Minute

// readFile applies a changed pools.yaml. A fault is logged once.
func (a *acting) readFile(ctx context.Context, now time.Time) {
	pools, fresh, err := a.file.Load()
	changes := fresh || a.refused == nil && !a.ledger.configured ||
		a.refused != nil && now.Sub(a.asked) >= quotaPause ||
		len(a.kept) > 0 && (a.file.unchanged() >= removeAfter || !a.ledger.anyInUse(a.kept))
	var kept []Settings
	switch {
	case err != nil:
	case changes:
		if err = a.ledger.checkRemoval(a.File, pools); err == nil && a.file.unchanged() < removeAfter {
			kept = a.ledger.missing(pools)
		}
		pools = append(slices.Clip(pools), kept...)
		if err == nil {
			err = a.admitPools(ctx, pools)
		}
		a.asked, a.refused = now, err
		fresh = err == nil
	default:
		err = a.refused
	}
	a.mu.Lock()
	before := a.fault
	a.fault = err
	a.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		a.Log.Error("the pools stay as they were: their file is wrong", "err", err)
	}
	if fresh && err == nil {
		a.ledger.configure(pools, now)
		a.Log.Info("the pools are as their file says", "file", a.File, "pools", len(pools)-len(kept))
		a.kept = nil
		for _, s := range kept {
			a.kept = append(a.kept, s.Name)
			a.Log.Warn("the file lacks a pool with resources, which is removed if the file stays unchanged",
				"pool", s.Name, "file", a.File, "for", removeAfter)
		}
	}
}

// commitRetry is the pause after a store did not answer.
const commitRetry = 100 * time.Millisecond

// commit writes a batch, and retries while this server leads: a transaction without an answer may have been committed,
// and committing it twice changes nothing.
func (a *acting) commit(ctx context.Context, b Batch) error {
	for !b.Empty() {
		err := a.term.Commit(ctx, b)
		if err == nil {
			return nil
		}
		if !errors.Is(err, croft.Unavailable) || ctx.Err() != nil {
			return err
		}
		a.Log.Warn("the pools' state is not written; trying again", "err", err)
		_ = delay.For(ctx, commitRetry)
		if ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// log logs events that users ask about at Info, and all others at Debug.
func (a *acting) log(d Action) {
	level := a.Log.Debug
	if d.Op == OpExpire || d.Op == OpFail || d.Op == OpForget {
		level = a.Log.Info
	}
	level("pool "+string(d.Op), "pool", d.Pool, "resource", d.Resource, "ticket", d.Ticket, "reason", d.Reason)
}

// leadRetry is the pause of a server that could not reach the store.
const leadRetry = 500 * time.Millisecond
