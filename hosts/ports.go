package hosts

import (
	"context"

	"croft"
)

// Store is where hosts are on record.
type Store interface {
	// Hosts returns the named hosts that exist, all where none is named.
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
	// Drain keeps new orders away from a host, in the transactions that write them.
	Drain(ctx context.Context, host croft.HostID) error
	// Enable undoes Drain.
	Enable(ctx context.Context, host croft.HostID) error
	// Accept lets the host's next agent run in any place. NotFound; Conflict: its record
	// changed meanwhile.
	Accept(ctx context.Context, host croft.HostID) error
	// ForgetHost removes everything about a host but its tombstones, which wait for its
	// return. Conflict: an instance is on it.
	ForgetHost(ctx context.Context, host croft.HostID) error
}

// Members are the servers of etcd that hosts run.
type Members interface {
	// EtcdMembers returns the hosts that serve etcd, each with its role.
	EtcdMembers(ctx context.Context) ([]croft.EtcdMember, error)
	// MayRemoveEtcdMember returns why a host's server cannot be taken out: Conflict, as the
	// others would be too few to decide anything.
	MayRemoveEtcdMember(ctx context.Context, host croft.HostID) error
	// RemoveEtcdMember takes a host's server out; none is no error. Conflict, as above.
	RemoveEtcdMember(ctx context.Context, host croft.HostID) error
}

// Instances is where instances are on record. Every write compares what it builds on:
// Conflict where the record changed.
type Instances interface {
	// List returns the instances of a project, of all projects where it is empty.
	List(ctx context.Context, project croft.Project) ([]croft.Status, error)
	// Instance returns a record; NotFound where there is none.
	Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error)
	// Remains reports whether a host that an instance was moved away from may still have
	// something of it.
	Remains(ctx context.Context, host croft.HostID, id croft.InstanceID) (bool, error)
	// Reorder replaces the order of an instance.
	Reorder(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error)
	// Bury removes the record and leaves the tombstone o.
	Bury(ctx context.Context, inst croft.Instance, o croft.Order) error
	// Fence writes the record once more where it is unchanged, and returns it as it is then.
	// No write that compares it with inst can succeed any more. NotFound: it is gone.
	Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	// SetMoving writes where an instance is about to be moved; nowhere, where that is given up.
	SetMoving(ctx context.Context, inst croft.Instance, to croft.HostID) (croft.Instance, error)
	// Relocate makes the order's host the instance's, with a tombstone for the host
	// that it was on. Record and order name all hosts that may still have something of it.
	// Unavailable: the new host is silent or drained.
	Relocate(ctx context.Context, inst croft.Instance, tombstone, order croft.Order) (croft.Instance, error)
}

// Claims is the part of the Placement API that is needed.
type Claims interface {
	// Providers describes every provider.
	Providers(ctx context.Context) ([]croft.Provider, error)
	// Claims returns the allocations against a provider. NotFound: there is no such provider.
	Claims(ctx context.Context, host croft.HostID) (map[croft.InstanceID]croft.Resources, error)
	// Candidates returns ways to satisfy a query.
	Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error)
	// ClaimOf returns what an instance claims.
	ClaimOf(ctx context.Context, id croft.InstanceID) (croft.Claim, error)
	// Reclaim replaces what an instance had by what a candidate says, at once. Conflict: it has something
	// else by now. NoCapacity: it does not fit. Either way nothing changed.
	Reclaim(ctx context.Context, had croft.Claim, project croft.Project, c croft.Candidate) error
	// Release removes what an instance claims, where that is on one of the hosts, if any are named,
	// and unless it changes meanwhile; no claim is no error. So it takes nothing from
	// another instance that got the UUID on another host.
	Release(ctx context.Context, id croft.InstanceID, on ...croft.HostID) error
	// RemoveProvider removes a provider; none is no error. Conflict: somebody
	// claims from it.
	RemoveProvider(ctx context.Context, host croft.HostID) error
}
