package apply

import (
	"context"
	"errors"
	"strings"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/grid/revlock"
	"croft/grid/unit"
)

// Shell is the Locker for nodes with a POSIX shell and flock(1).
type Shell struct {
	Cluster string // the cluster's id
	Who     string // the lock's owner: user@host and process
}

var _ Locker = Shell{}

// recallWait is how long a node may take to revert a change.
const recallWait = 5 * time.Minute

// Place returns the place on a node where the cluster keeps its state.
func (s Shell) Place(n unit.Node) revlock.Place {
	return revlock.Place{Base: n.StateDir, Cluster: s.Cluster}
}

// Look implements Locker.
func (s Shell) Look(ctx context.Context, m machine.Machine, n unit.Node, table string) (revlock.View, error) {
	return revlock.Look(ctx, m, s.Place(n), table)
}

// Open implements Locker.
func (s Shell) Open(ctx context.Context, m machine.Machine, n unit.Node, shared bool, plan string,
	wait time.Duration) (Holder, error) {
	h, err := revlock.Open(ctx, m, revlock.Options{Place: s.Place(n), Shared: shared, Who: s.Who, Plan: plan,
		Wait: wait})
	if busy, is := errors.AsType[*revlock.Busy](err); is && strings.HasPrefix(busy.Holder, s.Who+", plan "+plan) {
		// An apply opens one lock per node, so this lock was acquired for another node.
		return nil, croft.Errorf(croft.Conflict, "this apply already has its lock, for another node: two nodes "+
			"share one state directory; write a different state_dir into each node's file")
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Confirm implements Locker.
func (s Shell) Confirm(ctx context.Context, m machine.Machine, n unit.Node, id string) (revlock.Verdict, error) {
	return revlock.Confirm(ctx, m, s.Place(n), id)
}

// GiveBack implements Locker.
func (s Shell) GiveBack(ctx context.Context, m machine.Machine, n unit.Node) ([]revlock.GivenBack, error) {
	return revlock.GiveBack(ctx, m, s.Place(n))
}

// Recall implements Locker.
func (s Shell) Recall(ctx context.Context, m machine.Machine, n unit.Node, id string) (revlock.Verdict, bool, error) {
	return revlock.Recall(ctx, m, s.Place(n), id, recallWait)
}
