package hosts

import (
	"context"

	"croft"
)

// Store is the access to the records of hosts.
type Store interface {
	// Hosts returns the existing hosts among the named ones, or all hosts if none is named.
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
	// Drain keeps new orders away from a host, as a compare in the transactions that write them.
	Drain(ctx context.Context, host croft.HostID) error
	// Enable undoes Drain.
	Enable(ctx context.Context, host croft.HostID) error
	// Accept lets the host's next agent run in any place. NotFound. Conflict: its record changed meanwhile.
	Accept(ctx context.Context, host croft.HostID) error
	// BeginDeath starts the fence of a host: no order is written for it any more, and its agent starts nothing. If that
	// has started before, it returns the existing record. NotFound. Conflict: the host changed meanwhile.
	BeginDeath(ctx context.Context, host croft.HostID) (croft.Death, error)
	// DeclareDead declares a host dead, and revokes the lock of its agent. Conflict: its record of death has changed.
	DeclareDead(ctx context.Context, host croft.HostID, d croft.Death, how croft.FenceResult) (croft.Death, error)
	// EndDeath takes a host back: it may get orders again unless it was drained before. Conflict: its record of death
	// has changed.
	EndDeath(ctx context.Context, host croft.HostID, d croft.Death) error
	// ForgetHost removes everything about a host except its tombstones, which remain in case the host returns.
	// Conflict: an instance is on it.
	ForgetHost(ctx context.Context, host croft.HostID) error
}

// EtcdMembers is the access to the etcd servers that hosts run.
type EtcdMembers interface {
	// EtcdMembers returns the hosts that serve etcd, each with its role.
	EtcdMembers(ctx context.Context) ([]croft.EtcdMember, error)
	// MayRemoveEtcdMember returns why a host's server cannot be removed. Conflict: too few members would
	// remain for a quorum.
	MayRemoveEtcdMember(ctx context.Context, host croft.HostID) error
	// RemoveEtcdMember removes a host's server; a missing one is not an error. Conflict: as for MayRemoveEtcdMember.
	RemoveEtcdMember(ctx context.Context, host croft.HostID) error
}

// Instances is the access to the records of instances. Every write compares the revision that it is based on. Conflict:
// the record changed.
type Instances interface {
	// List returns the instances of a project; empty: of all projects.
	List(ctx context.Context, project croft.Project) ([]croft.Status, error)
	// Overview returns what List returns, by name and without orders and user-data, for readers that change nothing.
	Overview(ctx context.Context, project croft.Project) ([]*croft.Status, error)
	// Some returns those of the named instances that exist, as List does, in this order.
	Some(ctx context.Context, ids []croft.InstanceID) ([]croft.Status, error)
	// Find returns an instance of a project, with its order, observation and host. NotFound.
	Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error)
	// Instance returns a record. NotFound: there is no record.
	Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error)
	// Reorder replaces the order of an instance.
	Reorder(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error)
	// Bury removes the record and leaves the tombstone o.
	Bury(ctx context.Context, inst croft.Instance, o croft.Order) error
	// Lose marks an instance of the order's host as lost: the record keeps everything that is needed to recreate the
	// instance, and is on no host and in no group any more. The order is for the case that the host returns.
	Lose(ctx context.Context, inst croft.Instance, why croft.Loss, last croft.Order) (croft.Instance, error)
	// Fence rewrites an unchanged record and returns it as stored. No later write that compares it with inst
	// can succeed. NotFound: it is gone.
	Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	// SetMoving writes the target of an instance's move; empty: the move is cancelled.
	SetMoving(ctx context.Context, inst croft.Instance, to croft.HostID) (croft.Instance, error)
	// Relocate assigns the instance to the order's host and writes a tombstone for its former host. Record and order
	// name all hosts that may still have guests or disks of it. Unavailable: the new host is silent or drained.
	Relocate(ctx context.Context, inst croft.Instance, tombstone, order croft.Order) (croft.Instance, error)
	// Carry orders an instance to leave its host with its disk, and to arrive on another one. The record stays with its
	// host. Unavailable: the new host is silent or drained. NoCapacity: schedule.ErrAddressTaken, or what the choice is
	// based on has changed.
	Carry(ctx context.Context, inst croft.Instance, leaving, arriving croft.Order) (croft.Instance, error)
	// Uncarry ends a move with the disk that has not arrived: the instance stays, and its host gets the former goal.
	Uncarry(ctx context.Context, inst croft.Instance, why string) error
	// AddressHolders returns which instance has a chosen address on its host, by host.
	AddressHolders(ctx context.Context, address string) (map[croft.HostID]croft.InstanceID, error)
}

// Volumes is the access to volumes.
type Volumes interface {
	// HostVolumes returns the volumes of a host.
	HostVolumes(ctx context.Context, host croft.HostID) ([]croft.Volume, error)
	// AttachedTo returns the volumes that are attached to an instance.
	AttachedTo(ctx context.Context, id croft.InstanceID) ([]croft.Volume, error)
	// Fence rewrites an unchanged record and returns it as stored: no pending write that compares it can succeed
	// afterwards. NotFound: it is gone.
	Fence(ctx context.Context, v croft.Volume) (croft.Volume, error)
	// TakeFrom notes that a host that was declared dead may have the lock of a volume on shared storage. Conflict: the
	// record has changed, or the host was taken back.
	TakeFrom(ctx context.Context, v croft.Volume, dead croft.Host) error
}

// Orders is the access to the orders of hosts.
type Orders interface {
	// Remains reports whether a host that an instance was moved away from may still have a guest or disks of it.
	Remains(ctx context.Context, host croft.HostID, id croft.InstanceID) (bool, error)
	// Leftovers returns the orders of a host to leave lost instances off, each with the record of the instance, which
	// may be elsewhere or gone, and with the host's last observation.
	Leftovers(ctx context.Context, host croft.HostID) ([]croft.Status, error)
	// RemoveLeftover replaces such an order by a tombstone. Conflict: the order has changed.
	RemoveLeftover(ctx context.Context, o croft.Order) error
}

// Power switches hosts off, by the fence agents of the cloud.
type Power interface {
	// Knows returns Invalid if the settings say nothing about a host, or have a fault.
	Knows(h croft.Host) error
	// Off switches a host off. No error: it reports afterwards that it is off. Conflict: it reports that it is on.
	// Unavailable: whether it is off is unknown. Invalid: the settings say nothing about this host, or have a fault.
	Off(ctx context.Context, h croft.Host) error
}

// Recreator schedules lost instances again.
type Recreator interface {
	// Recreate schedules a lost instance again, on another host, from its image. NoCapacity: there is no host for it.
	// Conflict: it is not lost, or it has expired.
	Recreate(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error)
}

// Claims is the part of the Placement API that a Fleet needs.
type Claims interface {
	// Providers describes every provider.
	Providers(ctx context.Context) ([]croft.Provider, error)
	// Provider describes one provider. NotFound.
	Provider(ctx context.Context, id croft.HostID) (croft.Provider, error)
	// Claims returns the allocations on a provider. NotFound: the provider does not exist.
	Claims(ctx context.Context, host croft.HostID) (map[croft.InstanceID]croft.Resources, error)
	// Candidates returns at most limit ways to satisfy a query.
	Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error)
	// ClaimOf returns the claim of an instance.
	ClaimOf(ctx context.Context, id croft.InstanceID) (croft.Claim, error)
	// Reclaim atomically replaces an instance's claim by a candidate's, which is charged to owner. Conflict: the claim
	// differs from had. NoCapacity: it does not fit. On error nothing has changed.
	Reclaim(ctx context.Context, had croft.Claim, owner croft.Owner, c croft.Candidate) error
	// Release removes the claims of an instance on the hosts that may returns, if may permits that. It changes the
	// claim that it read before it called may. Conflict: the claim has changed since. A missing claim is no error.
	Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error
	// RemoveProvider removes a provider; a missing one is not an error. Conflict: there are claims on it.
	RemoveProvider(ctx context.Context, host croft.HostID) error
}

// Properties is read access to the properties and tags of hosts.
type Properties interface {
	// FilterHosts evaluates filters for all hosts. Terms about hidden keys never match.
	FilterHosts(ctx context.Context, where, whereNot, hidden []string) (croft.FilteredHosts, error)
}

// Distances is read access to the distances that operators set.
type Distances interface {
	// Stated returns the distances of these types. Types without distances are left out.
	Stated(ctx context.Context, kinds ...string) (map[string]croft.Distances, error)
}

// Chooser orders hosts by CRUSH policies.
type Chooser interface {
	// Order returns the hosts in the order of an instance's policy. NoCapacity: the policy returns none.
	Order(ctx context.Context, inst croft.Instance) ([]croft.HostID, error)
}

// Aggregates is read access to sets of hosts.
type Aggregates interface {
	// Named returns the existing aggregates among the named ones, at one revision.
	Named(ctx context.Context, names ...string) (map[string]croft.Aggregate, error)
}
