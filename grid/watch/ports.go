package watch

import (
	"context"

	"croft/grid/state"
)

// Repository is what the watch asks of version control. It has a working directory of its own, in which nobody else
// works, so that nothing of anybody's is lost when it is made what the upstream has. Revisions are written as
// git:<hash>. All methods may return Unavailable; of Swap and Push that means that nobody knows whether they took
// effect, and that they still may, until a later Swap or Push did.
type Repository interface {
	// Checkout fetches, and makes the working directory exactly what the upstream's branch is. It returns the cluster's
	// directory there, and the revision.
	Checkout(ctx context.Context) (dir, revision string, err error)

	// Leader returns the leader's record that the upstream has now; the zero LeaderRecord: it has none.
	Leader(ctx context.Context) (LeaderRecord, error)

	// Swap replaces the upstream's record, if it is still old, and returns the new one. Conflict: it is another one.
	Swap(ctx context.Context, old LeaderRecord, next Term) (LeaderRecord, error)

	// Commit commits what was changed in the working directory since Checkout, and returns the revision.
	Commit(ctx context.Context, message string) (revision string, err error)

	// Push does two things in one transaction, both or none: the upstream's branch becomes revision if it is still
	// base, and its record is replaced if it is still old. Conflict: one of them is not.
	Push(ctx context.Context, base, revision string, old LeaderRecord, next Term) (LeaderRecord, error)
}

// A LeaderRecord is what a leader leaves in the upstream. Value changes with each one.
type LeaderRecord struct {
	Value string
	Term
}

// A Term says who leads. Its times count on the clock of whoever sees them.
type Term struct {
	Leader  string   `json:"leader"`
	Key     string   `json:"key"`   // of the leader's memory
	Count   int64    `json:"count"` // of its records
	Seconds int64    `json:"term"`  // until which the leader does not lead without having renewed it
	Pending *Pending `json:"pending,omitempty"`
}

// Pending is a revision that was pushed and is still to be applied.
type Pending struct {
	Revision string   `json:"revision"`
	Nodes    []string `json:"nodes"`
}

// Prober dials nodes. It asks for an answer of the machine, and no more: one that refuses a login is there.
type Prober interface {
	// Direct dials a node from here.
	Direct(ctx context.Context, n *state.Node) Answer

	// Through dials a node from another one. Unknown: that one could not be asked.
	Through(ctx context.Context, via, n *state.Node) Answer
}

// A Fencer makes sure that a machine is off, or cut off from everything.
type Fencer interface {
	// Fence returns Yes when nothing runs on the node any more, and No when that cannot be had. It can be repeated.
	Fence(ctx context.Context, n *state.Node) (Answer, error)
}

// Applier makes nodes run what a revision says.
type Applier interface {
	// Apply applies the revision that is checked out in dir to the named nodes and no others. On those that are gone no
	// exclusive job runs any more, so they are not asked. It can be repeated, and refuses a revision that others have
	// gone past (Conflict).
	Apply(ctx context.Context, dir, revision string, nodes, gone []string) error
}
