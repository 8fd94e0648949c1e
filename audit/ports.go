package audit

import (
	"context"
	"time"

	"croft"
)

// Records is what an audit reads and mends. Every write compares what it builds on:
// Conflict where that changed.
type Records interface {
	// Evidence returns everything on record, as of one moment.
	Evidence(ctx context.Context) (Evidence, error)
	// Hosts returns the named hosts that exist.
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
	// List returns the instances of a project, of all projects where it is empty.
	List(ctx context.Context, project croft.Project) ([]croft.Status, error)
	// Fence writes the record once more where it is unchanged, and returns it as it is then.
	// No write that compares it with inst can succeed any more. NotFound: it is gone.
	Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	// Discard removes a record in scheduling and its name.
	Discard(ctx context.Context, inst croft.Instance) error
	// Drop removes an entry that belongs to no instance: a name, user-data, a membership,
	// an order or an observation, unless it changed meanwhile.
	Drop(ctx context.Context, d Difference) error
	// PutName enters an instance's name. Conflict: another instance has it.
	PutName(ctx context.Context, inst croft.Instance) error
	// PutMember enters an instance into its groups.
	PutMember(ctx context.Context, inst croft.Instance) error
}

// Claims is the part of the Placement API that an audit needs.
type Claims interface {
	// Providers describes every provider.
	Providers(ctx context.Context) ([]croft.Provider, error)
	// Claims returns the allocations against a provider. NotFound: there is no such provider.
	Claims(ctx context.Context, host croft.HostID) (map[croft.InstanceID]croft.Resources, error)
	Releaser
}

// Releaser gives claims back.
type Releaser interface {
	// Release removes what an instance claims, where that is on one of the hosts, if any are
	// named, and unless it changes meanwhile; no claim is no error. So it takes nothing from
	// another instance that got the UUID on another host.
	Release(ctx context.Context, id croft.InstanceID, on ...croft.HostID) error
}

// Agents asks the agents of hosts.
type Agents interface {
	// Contents returns what a host has. Unavailable: its agent does not answer.
	Contents(ctx context.Context, host croft.Host) (Contents, error)
	// RemoveFiles removes a directory without an owner. Conflict: it has one.
	RemoveFiles(ctx context.Context, host croft.Host, id croft.InstanceID) error
}

// Fleet gives orders to hosts. Conflict: the instance's record changed meanwhile.
type Fleet interface {
	// EndMove ends a move that was interrupted: on another host where the instance's own is
	// drained and another one has room, else where the guest is.
	EndMove(ctx context.Context, st croft.Status) error
	// Reclaim has an instance claim what it was made with on its own host, and nothing
	// elsewhere. NoCapacity: others have claimed that meanwhile.
	Reclaim(ctx context.Context, inst croft.Instance) error
	// Reorder gives an instance's host its next order.
	Reorder(ctx context.Context, inst croft.Instance, want croft.Want) error
}

// Entries is what the agent of a host may read and remove of records too.
type Entries interface {
	// Instance returns a record; NotFound where there is none.
	Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error)
	// Drop is Records.Drop.
	Drop(ctx context.Context, d Difference) error
}

// Shared is what a caretaker reads and mends of what belongs to no host. Agents behind a
// gate have none of it.
type Shared interface {
	// Evidence, Fence and Discard are those of Records.
	Evidence(ctx context.Context) (Evidence, error)
	Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	Discard(ctx context.Context, inst croft.Instance) error
	// TakeTurn makes the caller the only caretaker for so long, and reports whether it is.
	TakeTurn(ctx context.Context, length time.Duration) (bool, error)
}
