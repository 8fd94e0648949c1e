package watch

import (
	"context"

	"croft/grid/state"
)

// Repository is the version control that the watch needs. It has its own working directory, so that resetting this
// directory to the upstream loses no work of anyone. Revisions are written as git:<hash>. All methods may return
// Unavailable. After Unavailable from Swap or Push, the outcome is unknown, and the write may still take effect until a
// later Swap or Push succeeded.
type Repository interface {
	// Checkout fetches, and resets the working directory to the upstream's branch. It returns the cluster's directory
	// in it, and the revision.
	Checkout(ctx context.Context) (dir, revision string, err error)

	// Leader returns the leader's record in the upstream; the zero LeaderRecord: it has none.
	Leader(ctx context.Context) (LeaderRecord, error)

	// Swap replaces the upstream's record if it is still old, and returns the new one. Conflict: it has changed.
	Swap(ctx context.Context, old LeaderRecord, next Term) (LeaderRecord, error)

	// Commit commits the changes of the working directory since Checkout, and returns the revision.
	Commit(ctx context.Context, message string) (revision string, err error)

	// Push does two things in one transaction: it moves the upstream's branch to revision if it is still at base, and
	// replaces the upstream's record if it is still old. Conflict: one of them has changed.
	Push(ctx context.Context, base, revision string, old LeaderRecord, next Term) (LeaderRecord, error)
}

// A LeaderRecord is the record of the leader in the upstream. Value is different for each record.
type LeaderRecord struct {
	Value string
	Term
}

// A Term says who leads, and for how long. Each reader measures the time on its own clock.
type Term struct {
	Leader  string   `json:"leader"`
	Key     string   `json:"key"`   // identifies the record in the leader's memory
	Count   int64    `json:"count"` // number of records so far
	Seconds int64    `json:"term"`  // after this many seconds without a renewal, the leader stops leading
	Pending *Pending `json:"pending,omitempty"`
}

// Pending is a revision that was pushed and is not applied yet.
type Pending struct {
	Revision string   `json:"revision"`
	Nodes    []string `json:"nodes"`
}

// Prober dials nodes. Any answer of the machine counts, even a refused login.
type Prober interface {
	// Direct dials a node from here.
	Direct(ctx context.Context, n *state.Node) Answer

	// Through dials a node from the node via. Unknown: via could not be asked.
	Through(ctx context.Context, via, n *state.Node) Answer
}

// A Fencer ensures that a machine is off, or cut off from everything.
type Fencer interface {
	// Fence returns Yes when nothing runs on the node any more, and No when it cannot ensure that. It may be repeated.
	Fence(ctx context.Context, n *state.Node) (Answer, error)
}

// Applier applies revisions to nodes.
type Applier interface {
	// Apply applies the revision that is checked out in dir to the named nodes and no others. It does not contact the
	// nodes in gone, where no exclusive job runs any more. It may be repeated. Conflict: a later revision was applied.
	Apply(ctx context.Context, dir, revision string, nodes, gone []string) error
}
