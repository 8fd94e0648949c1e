package audit

import (
	"context"
	"time"

	"croft"
)

// Records is the access of an audit to the records. Every write compares the revision that it is based on. Conflict:
// that changed.
type Records interface {
	// Evidence returns all records at one revision.
	Evidence(ctx context.Context) (Evidence, error)
	// Drop removes an entry without an instance: a name, user-data, a membership, a seat, an order or an observation,
	// unless it changed meanwhile. Conflict.
	Drop(ctx context.Context, d Difference) error
	// PutName writes an instance's name. Conflict: another instance has it, or the record has changed.
	PutName(ctx context.Context, inst croft.Instance) error
	// PutMember writes an instance's memberships in its groups.
	PutMember(ctx context.Context, inst croft.Instance) error
	// PutAddress keeps an instance's chosen address for it on its host. Conflict: another instance has it, or the
	// record has changed.
	PutAddress(ctx context.Context, inst croft.Instance) error
}

// Instances is the access to the records of instances.
type Instances interface {
	// List returns the instances of a project; empty: of all projects.
	List(ctx context.Context, project croft.Project) ([]croft.Status, error)
	// Fence rewrites an unchanged record and returns it as stored. No later write that compares it with inst
	// can succeed. NotFound: it is gone.
	Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	// Discard removes a record in scheduling, with its name.
	Discard(ctx context.Context, inst croft.Instance) error
}

// Registry is the access to the records of hosts.
type Registry interface {
	// Hosts returns the existing hosts among the named ones.
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
}

// Claims is the part of the Placement API that an audit needs.
type Claims interface {
	// Providers describes every provider.
	Providers(ctx context.Context) ([]croft.Provider, error)
	// Claims returns the allocations on a provider. NotFound: the provider does not exist.
	Claims(ctx context.Context, host croft.HostID) (map[croft.InstanceID]croft.Resources, error)
	Releaser
}

// Releaser releases claims.
type Releaser interface {
	// Release removes the claims of an instance on the hosts that may returns, if may permits that. It changes the
	// claim that it read before it called may. Conflict: the claim has changed since. A missing claim is no error.
	Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error
}

// Agents asks the agents of hosts.
type Agents interface {
	// Contents returns the guests and disks of a host. Unavailable: its agent does not answer.
	Contents(ctx context.Context, host croft.Host) (Contents, error)
	// RemoveFiles removes a directory without an owner. Conflict: it has an owner.
	RemoveFiles(ctx context.Context, host croft.Host, id croft.InstanceID) error
}

// Fleet writes orders to hosts. Conflict: the instance's record changed meanwhile.
type Fleet interface {
	// EndMove ends an interrupted move: on another host if the instance's host is drained and another one has capacity,
	// else where the guest is.
	EndMove(ctx context.Context, st croft.Status) error
	// Reclaim replaces the claims of an instance by one on its own host, with the amounts that it was created with.
	// NoCapacity: others have claimed that room meanwhile.
	Reclaim(ctx context.Context, inst croft.Instance) error
	// Reorder writes an instance's next order for its host.
	Reorder(ctx context.Context, inst croft.Instance, want croft.Want) error
}

// Entries is the part of the records that a host's agent may read and remove, too.
type Entries interface {
	// Instance returns a record. NotFound: there is no record.
	Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error)
	// Drop is the same as Records.Drop.
	Drop(ctx context.Context, d Difference) error
}

// Shared is a caretaker's access to the records that belong to no host. Agents behind a gate do not have it.
type Shared interface {
	// Evidence is the same as in Records; Fence and Discard are the same as in Instances.
	Evidence(ctx context.Context) (Evidence, error)
	Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	Discard(ctx context.Context, inst croft.Instance) error
	// Destroy writes the tombstone of an instance. Conflict: the record changed meanwhile.
	Destroy(ctx context.Context, inst croft.Instance) error
	// Abandon sets a held record back to scheduling without a session, so that no request can use it. Conflict: it
	// changed.
	Abandon(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	// NoteAnnounced records that the end of an instance was announced. Conflict: the record changed.
	NoteAnnounced(ctx context.Context, inst croft.Instance) error
	// TakeTurn makes the caller the only caretaker for length, and reports whether it is.
	TakeTurn(ctx context.Context, length time.Duration) (bool, error)
}
