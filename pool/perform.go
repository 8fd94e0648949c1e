package pool

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"croft"
	"croft/internal/delay"
	"croft/internal/wording"
)

// begin runs do, then has the ledger record its result, if any. If ctx ended meanwhile, nothing is recorded, and the
// next leader finds the unchanged state.
func (a *acting) begin(ctx context.Context, do func() func(*Ledger, time.Time)) {
	a.jobs.mu.Lock()
	a.jobs.count++
	a.jobs.mu.Unlock()
	a.jobs.work.Go(func() {
		if end := do(); end != nil && ctx.Err() == nil {
			a.post(end)
		}
		a.jobs.mu.Lock()
		a.jobs.count--
		a.jobs.mu.Unlock()
	})
}

// post changes the ledger in the next round.
func (a *acting) post(do func(*Ledger, time.Time)) {
	a.inbox.put(&request{do: func(l *Ledger, now time.Time) error { do(l, now); return nil }})
}

// inSlot runs do once fewer than maxDeletes run.
func (a *acting) inSlot(ctx context.Context, do func() error) error {
	select {
	case a.jobs.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-a.jobs.slots }()
	return do()
}

// perform starts the work of a decision. Only the ledger's owner calls it; it copies the data that it needs.
func (a *acting) perform(ctx context.Context, d Action) {
	r, p := a.ledger.resources[d.Resource], a.ledger.pools[d.Pool]
	switch d.Op {
	case OpStart:
		a.start(ctx, *r, p.Settings)
	case OpAbort:
		a.jobs.abort(d.Resource)
	case OpRelease:
		a.hookFor(ctx, *r, *p.settingsOf(r), HookRelease, func(l *Ledger, now time.Time, err error) {
			l.released(r.ID, err)
		})
	case OpDelete:
		a.delete(ctx, *r, *p.settingsOf(r))
	case OpCheck:
		a.check(ctx, *r, *p.settingsOf(r))
	case OpList:
		a.list(ctx, p.Settings)
	}
}

// adopt continues starts that another server left unfinished.
func (a *acting) adopt(ctx context.Context) {
	for _, p := range a.ledger.pools {
		for _, r := range p.resources {
			if r.State == Starting {
				a.ledger.jobs[r.ID] = false
				a.start(ctx, *r, *p.settingsOf(r))
			}
		}
	}
}

func (a *acting) start(ctx context.Context, r Resource, s Settings) {
	one, cancel := context.WithCancel(ctx)
	a.jobs.mu.Lock()
	a.jobs.starts[r.ID] = cancel
	a.jobs.mu.Unlock()
	own, before := a.jobs.alongside(r.Pool)
	a.begin(ctx, func() func(*Ledger, time.Time) {
		defer close(own.recorded)
		begun := time.Now()
		end := a.startOne(one, r, s)
		end.took = time.Since(begun)
		cancel()
		a.jobs.mu.Lock()
		delete(a.jobs.starts, r.ID)
		a.jobs.mu.Unlock()
		if end.err != nil && ctx.Err() == nil {
			a.Log.Warn("a resource does not start", "pool", r.Pool, "resource", r.ID, "err", end.err)
		}
		precede(ctx, before)
		if ctx.Err() == nil {
			a.post(func(l *Ledger, now time.Time) { l.started(r.ID, end, now) })
		}
		return nil // later starts wait until it is recorded
	})
}

func (a *acting) startOne(ctx context.Context, r Resource, s Settings) (end startEnd) {
	if s.Instance == nil {
		end.data, end.err = a.Hooks.Run(ctx, s.hook(r, HookNew))
		return end
	}
	ctx, farther, stop := untilStill(ctx, s.Limits.New)
	defer stop()
	started, err := a.Instances.Start(ctx, r, *s.Instance, farther)
	if err != nil && errors.Is(context.Cause(ctx), errStill) {
		err = croft.Errorf(croft.Unavailable, "no step farther within %s (cmd_new_timeout): %w",
			wording.Duration(s.Limits.New), err)
	}
	if started.Address != "" {
		end.data = []byte(started.Address + "\n")
	}
	end.facts, end.revision, end.err = started.Facts, started.Revision, err
	return end
}

// errStill cancels a start that makes no progress.
var errStill = errors.New("no step farther")

// untilStill returns a context that ends when farther has not been called for the limit. It does not limit the total
// time, which on a busy host does not show whether the start will ever succeed.
func untilStill(ctx context.Context, limit time.Duration) (_ context.Context, farther, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(errStill) })
	farther = func() { timer.Reset(limit) }
	stop = func() {
		timer.Stop()
		cancel(context.Canceled)
	}
	return ctx, farther, stop
}

func (a *acting) delete(ctx context.Context, r Resource, s Settings) {
	if r.Instance == "" {
		a.hookFor(ctx, r, s, HookDelete, func(l *Ledger, now time.Time, err error) { l.deleted(r.ID, err, now) })
		return
	}
	a.begin(ctx, func() func(*Ledger, time.Time) {
		err := a.inSlot(ctx, func() error { return a.destroy(ctx, r, s) })
		a.warn(ctx, r, HookDelete, err)
		return func(l *Ledger, now time.Time) { l.deleted(r.ID, err, now) }
	})
}

func (a *acting) destroy(ctx context.Context, r Resource, s Settings) error {
	if a.Instances == nil {
		return fmt.Errorf("this server makes no instances, and so cannot destroy %s", r.Instance)
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Delete)
	defer cancel()
	return a.Instances.Destroy(ctx, r, s.instance())
}

// instance returns the settings of the pool's instances; zero: the pool has none.
func (s *Settings) instance() Instance {
	if s.Instance == nil {
		return Instance{}
	}
	return *s.Instance
}

func (a *acting) check(ctx context.Context, r Resource, s Settings) {
	if r.Instance == "" {
		a.begin(ctx, func() func(*Ledger, time.Time) {
			_, err := a.Hooks.Run(ctx, s.hook(r, HookLivecheck))
			a.warn(ctx, r, HookLivecheck, err)
			return func(l *Ledger, now time.Time) { l.checked(r.ID, err, now) }
		})
		return
	}
	a.begin(ctx, func() func(*Ledger, time.Time) {
		one, cancel := context.WithTimeout(ctx, s.Limits.Livecheck)
		defer cancel()
		err := a.Instances.Probe(one, r, s.instance())
		a.warn(ctx, r, HookLivecheck, err)
		return func(l *Ledger, now time.Time) { l.checked(r.ID, err, now) }
	})
}

// hookFor runs a hook that cleans or deletes.
func (a *acting) hookFor(ctx context.Context, r Resource, s Settings, kind HookKind,
	end func(*Ledger, time.Time, error)) {
	a.begin(ctx, func() func(*Ledger, time.Time) {
		err := a.inSlot(ctx, func() error {
			_, err := a.Hooks.Run(ctx, s.hook(r, kind))
			return err
		})
		a.warn(ctx, r, kind, err)
		return func(l *Ledger, now time.Time) { end(l, now, err) }
	})
}

func (a *acting) warn(ctx context.Context, r Resource, kind HookKind, err error) {
	if err != nil && ctx.Err() == nil {
		a.Log.Warn("a command of a pool failed", "hook", kind, "pool", r.Pool, "resource", r.ID, "err", err)
	}
}

// list searches for orphans and deletes them.
func (a *acting) list(ctx context.Context, s Settings) {
	before := a.ledger.liveNames()
	a.begin(ctx, func() func(*Ledger, time.Time) {
		output, err := a.Hooks.Run(ctx, Hook{Kind: HookList, Command: s.Commands.List, Env: s.env(Resource{}),
			Limit: s.Limits.List, Output: OutputList})
		if err != nil {
			output = nil // a partial list is useless
			a.warn(ctx, Resource{Pool: s.Name}, HookList, err)
		}
		return func(l *Ledger, now time.Time) {
			for _, name := range l.listed(s.Name, output, before, now) {
				a.deleteOrphan(ctx, s, name)
			}
		}
	})
}

func (a *acting) deleteOrphan(ctx context.Context, s Settings, name string) {
	a.Log.Warn("deleting what no resource has the name of", "pool", s.Name, "name", name)
	r := Resource{Pool: s.Name, Name: name}
	a.hookFor(ctx, r, s, HookDelete, func(l *Ledger, _ time.Time, _ error) { l.orphanGone(s.Name, name) })
}

// hook returns a pool's command for a resource.
func (s *Settings) hook(r Resource, kind HookKind) Hook {
	h := Hook{Kind: kind, Resource: r.ID, Env: s.env(r)}
	switch kind {
	case HookNew:
		h.Command, h.Limit, h.Output = s.Commands.New, s.Limits.New, OutputData
	case HookDelete:
		h.Command, h.Limit = s.Commands.Delete, s.Limits.Delete
	case HookLivecheck:
		h.Command, h.Limit = s.Commands.Livecheck, s.Limits.Livecheck
	case HookRelease:
		h.Command, h.Limit = s.Commands.Release, s.Limits.Release
	}
	return h
}

// env returns the variables that a hook gets in addition to the server's environment: the resource and its pool.
func (s *Settings) env(r Resource) []string {
	name, inPool := r.Name, strconv.Itoa(r.InPool)
	if r.ID == 0 {
		inPool = "None"
	}
	if name == "" {
		name = "None"
	}
	env := []string{"RESALLOC_ID=" + r.ID.String(), "RESALLOC_NAME=" + name, "RESALLOC_POOL_ID=" + string(s.Name),
		"RESALLOC_ID_IN_POOL=" + inPool}
	if r.Data != nil {
		env = append(env, "RESALLOC_RESOURCE_DATA="+base64.StdEncoding.EncodeToString(r.Data))
	}
	for name, n := range r.Counters {
		env = append(env, "RESALLOC_NAMED_COUNTER_"+name+"="+strconv.Itoa(n))
	}
	return env
}

// watchInstances replaces lost instances at once.
func (a *acting) watchInstances(ctx context.Context) {
	for ctx.Err() == nil {
		err := a.Instances.Watch(ctx, func(asOf time.Time, lost func(Resource, Instance) error) {
			a.post(func(l *Ledger, now time.Time) { l.lose(asOf, lost, now) })
		})
		if err != nil && ctx.Err() == nil {
			a.Log.Warn("the instances of pools cannot be watched", "err", err)
		}
		_ = delay.For(ctx, leadRetry)
	}
}
