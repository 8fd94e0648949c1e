package schedule

import (
	"context"

	"croft"
)

// Records is where the scheduler writes what was asked for and decided. Every
// write is one transaction that compares what it builds on.
type Records interface {
	// Create writes the record, in scheduling, and its name, under a session that
	// lives as long as this store's connection. Conflict: the ID or the name is taken.
	Create(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	// Assign writes the order, turns the record to scheduled on the order's host, and
	// makes the instance a member of its groups there. Conflict: the record changed, the
	// session has ended, or a group goes by another rule. Unavailable: the host is not alive or drained.
	// NoCapacity: the rule of a group bars the host, as its members stand.
	Assign(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error)
	// Fence settles a write to the record whose outcome is unknown: it writes the record once
	// more where that is unchanged, after which no write that compares it as inst is can be done
	// any more, and returns it as it is then. NotFound: it is gone.
	Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	// Discard removes a record in scheduling and its name. Conflict: it moved on.
	Discard(ctx context.Context, inst croft.Instance) error
	// Reorder replaces the order of a scheduled instance: stop, start, destroy (the
	// record turns to destroying). Conflict: the record changed.
	Reorder(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error)
	// Bury removes record, name and memberships at once and leaves the tombstone o for the host's
	// return: the end of an instance whose host is silent. An empty o.Host leaves
	// none. Conflict: the record changed.
	Bury(ctx context.Context, inst croft.Instance, o croft.Order) error
}

// View is what the scheduler reads.
type View interface {
	// Find returns the instance with this ID, or this name in the project. NotFound.
	Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error)
	// List returns the project's instances in the order of their creation; all
	// projects' where project is empty.
	List(ctx context.Context, project croft.Project) ([]croft.Status, error)
	// WatchInstance calls changed with the status now and after every change, until
	// it returns false or ctx ends. The status is nil once the instance is gone.
	WatchInstance(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool) error
	// WatchInstances calls changed, which carries no data, whenever any instance,
	// order, observation or host changed; until ctx ends. Calls may overlap.
	WatchInstances(ctx context.Context, changed func()) error
	// Hosts returns the named hosts that exist, with Alive set; all where none is named.
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
	// Members returns who is in a group of the project; nobody is in one that is not.
	Members(ctx context.Context, project croft.Project, group string) ([]croft.Member, error)
}

// Keys is where projects keep public SSH keys, by name.
type Keys interface {
	// AddKey stores a key. Conflict: the project has one of this name.
	AddKey(ctx context.Context, k Key) error
	// ListKeys returns a project's keys, by name.
	ListKeys(ctx context.Context, project croft.Project) ([]Key, error)
	// RemoveKey removes a key; instances that have it keep it. NotFound.
	RemoveKey(ctx context.Context, project croft.Project, name string) error
}

// Claims is the part of the Placement API that the scheduler needs.
type Claims interface {
	// Candidates returns at most limit ways to satisfy the query, a Placement query
	// string as from Query.Encode. None is not an error. Invalid: Placement refused it.
	Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error)
	// Claim takes what the candidate says for a consumer that has nothing yet.
	// NoCapacity: it no longer fits. Conflict: concurrent updates went on for all of
	// the client's bounded retries.
	Claim(ctx context.Context, id croft.InstanceID, project croft.Project, c croft.Candidate) error
	// Release removes what an instance claims, where that is on one of the hosts, if any are named,
	// and unless it changes meanwhile; none is not an error. So it takes nothing from
	// another instance that got the UUID on another host.
	Release(ctx context.Context, id croft.InstanceID, on ...croft.HostID) error
	// Providers describes every provider, to say why nothing fits.
	Providers(ctx context.Context) ([]croft.Provider, error)
}
