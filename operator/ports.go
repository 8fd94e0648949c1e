package operator

import (
	"context"

	"croft"
	"croft/internal/books"
)

// Hosts is where hosts are on record.
type Hosts interface {
	// Hosts returns the named hosts that exist, all where none is named.
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
	// Drain keeps new orders away from a host, in the transactions that write them.
	Drain(ctx context.Context, host croft.HostID) error
	// Enable undoes Drain.
	Enable(ctx context.Context, host croft.HostID) error
	// Accept lets the host's next agent be of any place. NotFound; Conflict: its record
	// changed meanwhile.
	Accept(ctx context.Context, host croft.HostID) error
	// ForgetHost removes all there is of a host but tombstones, which wait for its
	// return. Conflict: an instance is on it.
	ForgetHost(ctx context.Context, host croft.HostID) error
}

// Members are the servers of etcd that hosts run.
type Members interface {
	// EtcdMembers returns the hosts that serve etcd, each with its role.
	EtcdMembers(ctx context.Context) ([]croft.EtcdMember, error)
	// MayRemoveEtcdMember tells why a host's server cannot be taken out: Conflict, as the
	// others would be too few to decide anything.
	MayRemoveEtcdMember(ctx context.Context, host croft.HostID) error
	// RemoveEtcdMember takes a host's server out; none is no error. Conflict, as above.
	RemoveEtcdMember(ctx context.Context, host croft.HostID) error
}

// Records is where instances are on record. Every write compares what it builds on:
// Conflict where the record changed.
type Records interface {
	// List returns the instances of a project, of all where it is empty.
	List(ctx context.Context, project croft.Project) ([]croft.Status, error)
	// Reorder replaces the order of an instance.
	Reorder(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error)
	// Bury removes the record and leaves the tombstone o.
	Bury(ctx context.Context, inst croft.Instance, o croft.Order) error
	// Fence writes the record once more where that is unchanged, after which no write that
	// compares it as inst is can be done any more, and returns it as it is then. NotFound: it is gone.
	Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	// Discard removes a record in scheduling.
	Discard(ctx context.Context, inst croft.Instance) error
	// SetMoving writes where an instance is about to be moved; nowhere, where that is given up.
	SetMoving(ctx context.Context, inst croft.Instance, to croft.HostID) (croft.Instance, error)
	// Relocate makes the order's host the instance's, with a tombstone for the host
	// that it was on. Record and order name all hosts that may have something of it still.
	// Unavailable: the new host is silent or drained.
	Relocate(ctx context.Context, inst croft.Instance, tombstone, order croft.Order) (croft.Instance, error)
}

// Ledger is what an audit reads and mends.
type Ledger interface {
	// Books returns all that is stored, as of one moment.
	Books(ctx context.Context) (books.Books, error)
	// Drop removes what is lost: a name, user-data, a membership, an order or an
	// observation, unless that changed meanwhile.
	Drop(ctx context.Context, d books.Difference) error
	// PutName enters an instance's name. Conflict: another one has it.
	PutName(ctx context.Context, inst croft.Instance) error
	// PutMember enters an instance into its groups. Conflict: its record changed.
	PutMember(ctx context.Context, inst croft.Instance) error
}

// Claims is the part of the Placement API that is needed.
type Claims interface {
	// Providers describes every provider.
	Providers(ctx context.Context) ([]croft.Provider, error)
	// Claims returns the allocations against a provider. NotFound: there is none.
	Claims(ctx context.Context, host croft.HostID) (map[croft.InstanceID]croft.Resources, error)
	// Candidates returns ways to satisfy a query.
	Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error)
	// ClaimOf returns what an instance claims.
	ClaimOf(ctx context.Context, id croft.InstanceID) (croft.Claim, error)
	// Reclaim replaces what an instance had by what a candidate says, at once. Conflict: it has something
	// else by now. NoCapacity: it does not fit. Either way nothing changed.
	Reclaim(ctx context.Context, had croft.Claim, project croft.Project, c croft.Candidate) error
	// Release removes what an instance claims, where that is on one of the hosts, if any are named,
	// and unless it changes meanwhile; none is not an error. So it takes nothing from
	// another instance that got the UUID on another host.
	Release(ctx context.Context, id croft.InstanceID, on ...croft.HostID) error
	// RemoveProvider removes a provider; none is not an error. Conflict: somebody
	// claims from it.
	RemoveProvider(ctx context.Context, host croft.HostID) error
}

// Agents asks the agents of hosts.
type Agents interface {
	// Holding is what a host has. Unavailable: its agent does not answer.
	Holding(ctx context.Context, host croft.Host) (books.Holding, error)
	// RemoveFiles removes a directory that belongs to nobody. Conflict: it belongs to somebody.
	RemoveFiles(ctx context.Context, host croft.Host, id croft.InstanceID) error
}
