package apply

import (
	"context"
	"io"
	"time"

	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/revlock"
	"croft/grid/unit"
)

// A Runtime runs units of one kind on machines. Every method is idempotent: it is no error if the unit already exists,
// is already running, or is already gone. Errors: Invalid (the unit, or the program's output), Conflict (a unit that is
// not the cluster's has the name), Unavailable (the machine lacks the program). Errors of the machine are returned
// unchanged, so that callers can recognize machine.Lost.
//
// Prepare, Create, Start, Stop and Remove get a fenced machine: it runs one program at a time, under the node's lock,
// and these programs must not depend on another connection. List and Ready may get any machine.
type Runtime interface {
	// Prepare does slow work in advance, such as fetching the image. It does not change running units.
	Prepare(ctx context.Context, m machine.Machine, u unit.Unit) error

	// Create creates the unit with its files, and stores its hash with it. It does not start the unit. Conflict if a
	// unit of the same name has another hash.
	Create(ctx context.Context, m machine.Machine, u unit.Unit) error

	// Start starts a unit that was created.
	Start(ctx context.Context, m machine.Machine, u unit.Unit) error

	// Stop stops a unit; when it returns nil, no process of the unit is running. If the unit is no longer in the
	// cluster's files, only Cluster, Job, Slot and Runtime of u are set.
	Stop(ctx context.Context, m machine.Machine, u unit.Unit) error

	// Remove removes a stopped unit and the files that were created for it. u is as for Stop.
	Remove(ctx context.Context, m machine.Machine, u unit.Unit) error

	// List lists the units of this runtime on a machine that belong to the cluster with this id. The list is empty if
	// the machine lacks the runtime's program.
	List(ctx context.Context, m machine.Machine, cluster string) ([]plan.Actual, error)

	// Ready checks once whether a started unit is still running and, if the runtime can tell, whether it is ready. It
	// returns the reason why the unit is not ready yet, or "". Errors: NotFound if the unit is not running. Ready does
	// not run the check in unit.Unit.Ready.
	Ready(ctx context.Context, m machine.Machine, u unit.Unit) (string, error)

	// Logs writes the last lines of the unit's log.
	Logs(ctx context.Context, m machine.Machine, u unit.Unit, lines int, w io.Writer) error

	// Undo returns a POSIX shell script for the node that reverts a change: it stops and removes now, and then creates
	// and starts before with its files. Either unit may be nil. Since the node may be cut off when it runs the script,
	// the script may use only the node itself and the directory $kept. The script keep, which may be empty, runs before
	// the change and stores the files of before that are Kept in $kept. Prepare has been called earlier for both units.
	// Errors: Conflict if the change cannot be reverted.
	Undo(before, now *unit.Unit) (keep, undo string, err error)
}

// A Dialer opens connections to nodes.
type Dialer interface {
	// Dial opens a new connection, even if other connections exist. Errors: Unavailable, Denied.
	Dial(ctx context.Context, n unit.Node) (Connection, error)
}

// A Connection is a machine that is reached over one connection. When it is closed, its programs end or are Lost.
type Connection interface {
	machine.Machine
	Close() error
}

// A Locker reads and locks nodes. Shell implements it for real nodes.
type Locker interface {
	// Look reads the stored state of a node without acquiring its lock; table is the node's nftables table.
	Look(ctx context.Context, m machine.Machine, n unit.Node, table string) (revlock.View, error)

	// Open acquires the lock of a node. It returns the errors of revlock.Open.
	Open(ctx context.Context, m machine.Machine, n unit.Node, shared bool, plan string, wait time.Duration) (Holder,
		error)

	// Confirm makes an armed change permanent. It must be called over a new connection.
	Confirm(ctx context.Context, m machine.Machine, n unit.Node, id string) (revlock.Verdict, error)

	// Recall makes the node revert a change now; failed means that the node could not revert all of it.
	Recall(ctx context.Context, m machine.Machine, n unit.Node, id string) (v revlock.Verdict, failed bool, err error)

	// GiveBack makes the node revert the changes that were not confirmed and that no process on the node watches any
	// more. Errors: Conflict if the lock is held.
	GiveBack(ctx context.Context, m machine.Machine, n unit.Node) ([]revlock.GivenBack, error)
}

// A Holder holds the lock of a node. revlock.Holder implements it.
type Holder interface {
	machine.Machine
	State() revlock.State
	Begin(ctx context.Context, revision string, with []string) error
	Commit(ctx context.Context, applied []byte) error
	Arm(ctx context.Context, c revlock.Change) error
	Close() error
}

var _ Holder = (*revlock.Holder)(nil)
