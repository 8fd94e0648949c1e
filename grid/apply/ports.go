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

// A Runtime runs units of one kind on machines. Every method can be repeated: what is there already, runs already, or
// is gone already, is no error. Errors: Invalid (the unit, or the program's answer), Conflict (the name is a
// stranger's), Unavailable (the machine lacks the program), and those of the machine as they are, so that machine.Lost
// is seen.
//
// The machine that Prepare, Create, Start, Stop and Remove get is fenced: it runs one program at a time, under the
// node's lock, and what they run must not depend on another connection. List and Ready may get any.
type Runtime interface {
	// Prepare makes ready what takes long, such as the image, and changes nothing that runs.
	Prepare(ctx context.Context, m machine.Machine, u unit.Unit) error

	// Create makes the unit, with its files, and stores its hash with it. It does not run yet. A unit of the same name
	// and another hash is Conflict.
	Create(ctx context.Context, m machine.Machine, u unit.Unit) error

	// Start starts a unit that was created.
	Start(ctx context.Context, m machine.Machine, u unit.Unit) error

	// Stop stops a unit; when it returns nil, nothing of the unit runs. Only Cluster, Job, Slot and Runtime of u are
	// set where the unit is no longer in the files.
	Stop(ctx context.Context, m machine.Machine, u unit.Unit) error

	// Remove removes a stopped unit, and the files that were made for it. u is as for Stop.
	Remove(ctx context.Context, m machine.Machine, u unit.Unit) error

	// List lists the units of a cluster, by its id, that this runtime has there. A machine without the runtime's
	// program has none.
	List(ctx context.Context, m machine.Machine, cluster string) ([]plan.Actual, error)

	// Ready asks once whether the unit, which was started, still runs and says of itself that it works, where the
	// runtime knows: a reason if it does not yet, and "" if it does. NotFound: it does not run. unit.Unit.Ready is not
	// its business.
	Ready(ctx context.Context, m machine.Machine, u unit.Unit) (string, error)

	// Logs writes the last lines of what the unit said.
	Logs(ctx context.Context, m machine.Machine, u unit.Unit, lines int, w io.Writer) error

	// Undo returns a script for a POSIX shell on the node that takes a change back: it stops and removes now, and then
	// creates and starts before, with files and all. Either may be nil. The node runs it alone, as it may be cut off:
	// it may use nothing but the node itself, and what keep, which runs before the change and may be empty, put into
	// the directory $kept: files of before that are Kept. Prepare was called for both at some time. Conflict: it cannot
	// be taken back.
	Undo(before, now *unit.Unit) (keep, undo string, err error)
}

// A Dialer opens connections to nodes.
type Dialer interface {
	// Dial opens a new connection, whatever other connections there are. Unavailable, Denied.
	Dial(ctx context.Context, n unit.Node) (Connection, error)
}

// A Connection is a machine that is reached over one connection. Its programs end, or are Lost, when it is closed.
type Connection interface {
	machine.Machine
	Close() error
}

// A Locker reads and locks nodes. Shell is the one for real nodes.
type Locker interface {
	// Look reads what a node stores, without its lock; table is the node's table of nftables.
	Look(ctx context.Context, m machine.Machine, n unit.Node, table string) (revlock.View, error)

	// Open takes the lock of a node. Errors as of revlock.Open.
	Open(ctx context.Context, m machine.Machine, n unit.Node, shared bool, plan string, wait time.Duration) (Holder,
		error)

	// Confirm keeps a change that was armed. It is asked over a new connection.
	Confirm(ctx context.Context, m machine.Machine, n unit.Node, id string) (revlock.Verdict, error)

	// Recall has the node take a change back now; failed says that it could not do all of that.
	Recall(ctx context.Context, m machine.Machine, n unit.Node, id string) (v revlock.Verdict, failed bool, err error)

	// GiveBack has the node take back the changes that nobody confirmed and nobody watches. Conflict: its lock is
	// taken.
	GiveBack(ctx context.Context, m machine.Machine, n unit.Node) ([]revlock.GivenBack, error)
}

// A Holder has the lock of a node, as revlock.Holder has.
type Holder interface {
	machine.Machine
	State() revlock.State
	Begin(ctx context.Context, revision string, with []string) error
	Commit(ctx context.Context, applied []byte) error
	Arm(ctx context.Context, c revlock.Change) error
	Close() error
}

var _ Holder = (*revlock.Holder)(nil)
