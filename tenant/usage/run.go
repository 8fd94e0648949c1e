package usage

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"croft"
	"croft/internal/delay"
)

const (
	every     = 10 * time.Second // between steps, while nothing changes
	finishing = 2 * time.Second  // timeout of the last step
	tidying   = 6 * time.Hour    // between trims
	warnings  = 5 * time.Minute  // minimum between two warnings that recording fails: the log may be on the full disk

	ticks       = time.Second     // between two ticks of the process
	suspended   = 5 * time.Second // maximum time without a tick
	unconfirmed = 2 * every       // maximum time without receiving an own step
)

// Recorder records the usage of projects. Any number may run; one of them acts, and the others wait until its head has
// not changed for a while.
type Recorder struct {
	Name  string // unique, also among former recorders
	Store Store
	// Every is the time between two steps while nothing changes; 10 s by default. A change waits a tenth of it for
	// further ones, and two steps are at least half of it apart. It must be the same in all recorders of a cloud.
	Every time.Duration
	Log   *slog.Logger // nil discards
}

// Run records until ctx ends.
func (r Recorder) Run(ctx context.Context) error {
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	r.Every = cmp.Or(r.Every, every)
	var warned time.Time
	for ctx.Err() == nil {
		head, err := r.turn(ctx)
		if err == nil {
			err = r.record(ctx, head)
		}
		if ctx.Err() == nil && !errors.Is(err, croft.Conflict) && // Conflict: another one acts
			(warned.IsZero() || time.Since(warned) >= warnings) {
			warned = time.Now()
			r.Log.Warn("what projects use is not recorded for the moment; beginning again", "err", err)
		}
		_ = delay.For(ctx, r.Every/10) // the loop ends with ctx
	}
	return ctx.Err()
}

// turn waits until it is this recorder's turn to act.
func (r Recorder) turn(ctx context.Context) (Head, error) {
	head, err := r.Store.Head(ctx)
	for since := time.Now(); err == nil && head.Recorder != "" && head.Recorder != r.Name &&
		time.Since(since) < 3*r.Every; {
		if err := delay.For(ctx, r.Every); err != nil {
			return head, err
		}
		was := head.Generation
		if head, err = r.Store.Head(ctx); head.Generation != was {
			since = time.Now()
		}
	}
	return head, err
}

// record acts until an error, or until ctx ends.
func (r Recorder) record(ctx context.Context, head Head) error {
	began := time.Now().Round(0) // without the monotonic clock, which stops while the machine is suspended
	taken, err := r.Store.Take(ctx, head, r.Name)
	if err != nil {
		return err
	}
	a := &acting{Recorder: r, state: begin(taken, began), changed: make(chan struct{}, 1)}
	under, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	failed := make(chan error, 1)
	work.Go(func() {
		failed <- cmp.Or(taken.Follow(under, a.note), croft.Errorf(croft.Unavailable, "the watch ended"))
	})
	work.Go(func() {
		delay.Every(under, tidying, func(ctx context.Context) {
			if err := r.Store.Trim(ctx, time.Now()); err != nil && ctx.Err() == nil {
				r.Log.Warn("old days of what projects used could not be removed", "err", err)
			}
		})
	})
	work.Go(func() {
		for delay.For(under, ticks) == nil {
			a.tick()
		}
	})
	for {
		wrote := time.Now()
		if err := a.write(ctx, r.Name); err != nil {
			return err // the stored state is unknown
		}
		select {
		case err = <-failed:
		case <-a.changed:
			err = delay.For(ctx, max(r.Every/10, r.Every/2-time.Since(wrote)))
		case <-time.After(r.Every):
		case <-ctx.Done():
			err = ctx.Err()
		}
		switch {
		case ctx.Err() != nil:
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishing)
			defer cancel()
			return a.write(last, "") // else the next recorder waits, and estimates
		case err != nil:
			return err
		}
	}
}

// acting is a recorder that acts.
type acting struct {
	Recorder
	changed chan struct{} // holds one wake

	mu    sync.Mutex
	state *recording
	late  error // set once the time of received changes is unknown
}

func (a *acting) note(s Seen) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := cmp.Or(a.late, a.state.note(s, time.Now().Round(0))); err != nil {
		return err
	}
	if len(a.state.dirty) > 0 {
		select {
		case a.changed <- struct{}{}:
		default: // it is awake
		}
	}
	return nil
}

// tick reports that the process runs. If there was no tick for a while, the next change or step fails.
func (a *acting) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.state.tick(time.Now().Round(0)); err != nil {
		a.late = err
	}
}

// write writes a step under the name of a recorder; empty: the recorder ends.
func (a *acting) write(ctx context.Context, name string) error {
	a.mu.Lock()
	step, err := a.state.step(time.Now().Round(0))
	err = cmp.Or(a.late, err)
	a.mu.Unlock()
	if err != nil {
		return err
	}
	step.Next.Recorder = name
	head, err := a.Store.Write(ctx, step)
	if err != nil {
		return err // the next acting recorder reads whether it was written
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.wrote(head)
	return nil
}
