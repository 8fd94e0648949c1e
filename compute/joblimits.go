package compute

import (
	"context"
	"errors"
	"sync"
	"time"

	"croft"
	"croft/compute/backup"
	"croft/internal/delay"
)

// jobLimits limits the jobs that the host carries out at once. Each store has its own limit, so jobs for a store that
// is slow or locked do not keep those for other stores waiting. Of the jobs that need a repository for themselves, one
// per store runs or waits at a time.
type jobLimits struct {
	mu  sync.Mutex
	all map[string]*lanes // by the name of the store; those of removed stores stay until the agent ends
}

// lanes are the limits of one store.
type lanes struct{ slots, alone chan struct{} }

// jobTurn is the permission of one job to run. Only the goroutine of the job uses it.
type jobTurn struct {
	lanes       *lanes
	alone, runs bool
}

// turn waits until a job may run. The caller ends the turn.
func (t *jobLimits) turn(ctx context.Context, j backup.Job) (*jobTurn, error) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[string]*lanes{}
	}
	l := t.all[j.Store]
	if l == nil {
		l = &lanes{slots: make(chan struct{}, mostJobs), alone: make(chan struct{}, 1)}
		t.all[j.Store] = l
	}
	t.mu.Unlock()
	one := &jobTurn{lanes: l}
	if j.Kind == backup.Discard || j.Kind == backup.Verify && len(j.Disks) == 0 {
		select {
		case l.alone <- struct{}{}:
			one.alone = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := one.resume(ctx); err != nil {
		one.end()
		return nil, err
	}
	return one, nil
}

// pause lets another job run.
func (t *jobTurn) pause() {
	if t.runs {
		<-t.lanes.slots
		t.runs = false
	}
}

// resume waits until the job may go on.
func (t *jobTurn) resume(ctx context.Context) error {
	select {
	case t.lanes.slots <- struct{}{}:
		t.runs = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *jobTurn) end() {
	t.pause()
	if t.alone {
		<-t.lanes.alone
		t.alone = false
	}
}

// unlocked does something with a repository for a job, and again while another process has locked it. Other jobs run
// meanwhile. The report about the job says since when it waits. Conflict: the job was withdrawn.
func (a *Agent) unlocked(ctx context.Context, j backup.Job, t *jobTurn, do func() error) error {
	for since := time.Now().UTC(); ; {
		err := do()
		if !errors.Is(err, ErrLocked) || time.Since(since) > lockWait {
			return err
		}
		told := a.Backups.Report(ctx, a.Host.ID, j.ID, backup.Report{Progress: j.Report.Progress, Locked: since,
			At: time.Now().UTC()})
		if errors.Is(told, croft.NotFound) {
			return croft.Errorf(croft.Conflict, "the job was withdrawn")
		}
		t.pause()
		if err := delay.For(ctx, lockRetry); err != nil {
			return err
		}
		if err := t.resume(ctx); err != nil {
			return err
		}
	}
}
