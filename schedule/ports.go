package schedule

import (
	"context"
	"errors"

	"croft"
)

// Records stores requests and decisions. Every write is one transaction, conditional on the data that it is based on.
type Records interface {
	// Create writes the record, in scheduling, and its name, under a session that lasts as long as this store's
	// connection. Conflict: the ID or the name is taken.
	Create(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	// Assign writes the order, sets the record to scheduled on the order's host, and makes the instance a member of its
	// groups there, with the seats in inst, whose numbers it may change to free ones. Conflict: the record changed,
	// the session has ended, or a group has another rule. Unavailable: the host is not alive, or is drained.
	// NoCapacity: the rule of a group bars the host, or ErrAddressTaken.
	Assign(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error)
	// Fence settles a write to the record with an unknown outcome: if the record is still as in inst, Fence writes it
	// again, so that no other write conditional on inst can succeed, and returns the record as stored. NotFound: it is
	// gone.
	Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	// Recreate sets a lost record to scheduling, under a session as Create does, so that it can be assigned. Conflict:
	// the record changed. Invalid: this cloud's programs are too old.
	Recreate(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	// Discard removes a record in scheduling and its name; a record that was lost before becomes lost again. Conflict:
	// the record changed.
	Discard(ctx context.Context, inst croft.Instance) error
	// Retire lets a session of this process end, so that a caretaker settles what was started under it and could not be
	// settled. Requests that go on under it must end within the time of its lease.
	Retire(session string)
	// Reorder replaces the order of a scheduled instance: stop, start, or destroy, which sets the record to destroying.
	// Conflict: the record changed.
	Reorder(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error)
	// Amend sets when an instance expires, zero: never, whether it is protected, and whether its CD is ejected, as in
	// next. Conflict: the record changed. Invalid: the cloud's programs are too old to act on it.
	Amend(ctx context.Context, inst, next croft.Instance) (croft.Instance, error)
	// Bury removes record, name and memberships of an instance on a silent host, and leaves the tombstone o for the
	// host's return, or none if o.Host is empty. Conflict: the record changed.
	Bury(ctx context.Context, inst croft.Instance, o croft.Order) error
	// AddressHolders returns which instance has an address on its host's default network because its request names the
	// address, by host. An instance that moves with its disk has it on both hosts.
	AddressHolders(ctx context.Context, address string) (map[croft.HostID]croft.InstanceID, error)
}

// Holds stores held claims of instances that are not ordered yet. Every write is one transaction, conditional on the
// data that it is based on. Conflict: the record changed.
type Holds interface {
	// Hold sets a record to held on a host. It does everything that Assign does, except writing an order.
	Hold(ctx context.Context, inst croft.Instance, host croft.HostID) (croft.Instance, error)
	// Use writes the first order of a held instance, and its record with the spec and the expiry in inst. Unavailable:
	// the host is not alive, or is drained.
	Use(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error)
	// Abandon sets a held record back to scheduling without a session. It cannot be used any more; a caretaker that
	// finds it removes it, as after the death of a scheduler.
	Abandon(ctx context.Context, inst croft.Instance) (croft.Instance, error)
}

// View is the scheduler's read access to instances.
type View interface {
	// Find returns the project's instance with this ID or name. NotFound: also if the ID belongs to an instance of
	// another project, since clients choose IDs.
	Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error)
	// FindByID returns the instance with this ID, whichever project owns it: for operators, and for callers who check
	// the owner themselves. NotFound.
	FindByID(ctx context.Context, id croft.InstanceID) (croft.Status, error)
	// List returns a project's instances by order of creation; with an empty project, all instances.
	List(ctx context.Context, project croft.Project) ([]croft.Status, error)
	// WatchInstance calls changed with the current status and after every change, until changed returns
	// false or ctx ends. The status is nil once the instance is gone.
	WatchInstance(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool) error
	// WatchInstances calls changed, which carries no data, whenever an instance, an order, an observation or a host
	// changed, until ctx ends. Calls may overlap.
	WatchInstances(ctx context.Context, changed func()) error
}

// Registry is the scheduler's read access to hosts.
type Registry interface {
	// Hosts returns the named hosts that exist, or all hosts if none is named, with Alive set.
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
}

// Groups is the scheduler's read access to groups.
type Groups interface {
	// Members returns the members of a project's group and the seats taken in it; none if the group does not exist.
	Members(ctx context.Context, project croft.Project, group string) ([]croft.GroupMember, []croft.Seat, error)
}

// Aggregates is the scheduler's read access to aggregates.
type Aggregates interface {
	// Named returns the named aggregates that exist, as of one moment.
	Named(ctx context.Context, names ...string) (map[string]croft.Aggregate, error)
	// List returns all aggregates, by name.
	List(ctx context.Context) ([]croft.Aggregate, error)
}

// Distances is the scheduler's read access to the distances that operators have stated.
type Distances interface {
	// Stated returns the distances of these types; types without stated distances are omitted.
	Stated(ctx context.Context, kinds ...string) (map[string]croft.Distances, error)
	// List returns the distances of all types.
	List(ctx context.Context) ([]croft.Distances, error)
}

// Properties is the scheduler's read access to the properties of hosts.
type Properties interface {
	// FilterHosts evaluates filters for all hosts. A filter on a hidden key never holds, and if hidden contains the key
	// tag:, neither does a filter on tags. Invalid: a text is no filter.
	FilterHosts(ctx context.Context, where, whereNot, hidden []string) (croft.FilteredHosts, error)
}

// nothing replaces Aggregates and Properties in a scheduler that has none.
type nothing struct{}

func (nothing) Named(context.Context, ...string) (map[string]croft.Aggregate, error) {
	return nil, nil
}
func (nothing) FilterHosts(context.Context, []string, []string, []string) (croft.FilteredHosts, error) {
	return croft.FilteredHosts{}, nil
}
func (nothing) List(context.Context) ([]croft.Aggregate, error) { return nil, nil }

// noDistances replaces Distances in a scheduler that has none.
type noDistances struct{}

func (noDistances) Stated(context.Context, ...string) (map[string]croft.Distances, error) {
	return nil, nil
}
func (noDistances) List(context.Context) ([]croft.Distances, error) { return nil, nil }

// Crush is the scheduler's access to CRUSH policies, and to the numbers of hosts and locations that CRUSH uses.
type Crush interface {
	// Find returns a policy. NotFound.
	Find(ctx context.Context, name string) (croft.CrushPolicy, error)
	// Numbers returns the numbers of all hosts and locations that have one.
	Numbers(ctx context.Context) (croft.CrushNumbers, error)
	// Number assigns numbers to hosts and locations that exist and have no number. NoCapacity: all
	// numbers are in use. Invalid: the cloud's programs are too old.
	Number(ctx context.Context, hosts []croft.HostID, locations []string) error
}

// noCrush replaces Crush in a scheduler that has none.
type noCrush struct{}

func (noCrush) Find(_ context.Context, name string) (croft.CrushPolicy, error) {
	return croft.CrushPolicy{}, croft.Errorf(croft.NotFound, "there is no policy %q", name)
}
func (noCrush) Numbers(context.Context) (n croft.CrushNumbers, err error) { return n, nil }
func (noCrush) Number(context.Context, []croft.HostID, []string) error    { return nil }

// Volumes is the scheduler's access to volumes.
type Volumes interface {
	// ForRequest returns the named volumes of a project, which a request for an instance attaches. NotFound. Conflict:
	// one of them cannot be attached, or they are on different hosts.
	ForRequest(ctx context.Context, project croft.Project, names []string) ([]croft.Volume, error)
	// AttachedTo returns the volumes that are attached to an instance.
	AttachedTo(ctx context.Context, id croft.InstanceID) ([]croft.Volume, error)
	// Begin records new volumes on a host and claims them. The transaction of an order settles and attaches them; until
	// then a caretaker undoes them if this process dies. After an error none is left. NoCapacity or ErrClosed: another
	// host may succeed. Conflict: a name is taken. OverQuota. A volume that has an ID is on another host, which is
	// lost: its claim moves, and the transaction of the order moves its record.
	Begin(ctx context.Context, host croft.HostID, disks []croft.Volume) ([]croft.Volume, error)
	// Cancel undoes volumes that were started and are not settled or moved. It leaves the others alone.
	Cancel(ctx context.Context, begun []croft.Volume) error
}

// noVolumes replaces Volumes in a scheduler that has none.
type noVolumes struct{}

func (noVolumes) ForRequest(_ context.Context, _ croft.Project, names []string) ([]croft.Volume, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return nil, croft.Errorf(croft.NotFound, "there is no volume %q", names[0])
}
func (noVolumes) AttachedTo(context.Context, croft.InstanceID) ([]croft.Volume, error) {
	return nil, nil
}
func (noVolumes) Begin(context.Context, croft.HostID, []croft.Volume) ([]croft.Volume, error) {
	return nil, croft.Errorf(croft.Unavailable, "this scheduler creates no volumes")
}
func (noVolumes) Cancel(context.Context, []croft.Volume) error { return nil }

// Keys stores the public SSH keys of projects by name.
type Keys interface {
	// AddKey stores a key. Conflict: the project has a key with this name.
	AddKey(ctx context.Context, k Key) error
	// ListKeys returns a project's keys, by name.
	ListKeys(ctx context.Context, project croft.Project) ([]Key, error)
	// RemoveKey removes a key. Instances created with it keep it. NotFound.
	RemoveKey(ctx context.Context, project croft.Project, name string) error
}

// Claims is the part of the Placement API that the scheduler needs.
type Claims interface {
	// Candidates returns at most limit ways to satisfy the query, a string as from Query.Encode. An empty result is not
	// an error. Invalid: Placement refused the query.
	Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error)
	// Claim takes the candidate's allocations for a consumer without any. NoCapacity: they no longer fit. Conflict:
	// concurrent updates exhausted the client's retries.
	Claim(ctx context.Context, id croft.InstanceID, owner croft.Owner, c croft.Candidate) error
	// ClaimOf returns the claim of a consumer.
	ClaimOf(ctx context.Context, id croft.InstanceID) (croft.Claim, error)
	// Reclaim replaces a consumer's claim by a candidate's. Conflict: the claim differs from had. NoCapacity.
	Reclaim(ctx context.Context, had croft.Claim, owner croft.Owner, c croft.Candidate) error
	// Release removes an instance's allocations on the hosts that may returns, if may permits it. It changes only the
	// claim that was read before may was called. Conflict: the claim has changed since. A missing claim is no error.
	Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error
	// Providers returns all providers, to explain why nothing fits.
	Providers(ctx context.Context) ([]croft.Provider, error)
}

// Placer schedules in one step if records and claims are in one store: it claims for an instance and writes its record,
// name, charge, order, memberships and seats in one transaction, so that no crash can happen in between. Requests that
// arrive during one transaction share the next.
type Placer interface {
	// Place writes an instance that does not exist yet, with the order o for the host of the candidate, and returns its
	// record, in scheduled. It may change the numbers of the seats in inst to free ones. Conflict: the ID or the name
	// is taken, or a group has another rule. OverQuota. ErrFull, ErrAddressTaken or ErrClosed: another
	// host may succeed. Other
	// NoCapacity: the rule of a group bars the host. Unavailable: the store does not answer. After an error nothing is
	// written, unless the outcome of the transaction is unknown, which the error then says.
	Place(ctx context.Context, inst croft.Instance, o croft.Order, c croft.Candidate) (croft.Instance, error)
}

// Refusals that concern one host. A Placer returns the first two; every writer of orders returns the others.
var (
	// ErrFull reports that the candidate's resources are not free any more.
	ErrFull = errors.New("another request was faster")
	// ErrAddressTaken reports that another instance has the chosen address on the host.
	ErrAddressTaken = errors.New("another instance has the address")
	// ErrClosed reports that the host is not alive, or is drained.
	ErrClosed = errors.New("it takes no orders")
	// ErrLeftover reports that the instance was lost with the host, which still has its former disk.
	ErrLeftover = errors.New("still has the disk that the instance left there when it was lost with the host; " +
		"`croft host leftover list` shows it, and once an operator has copied what is needed from it and removed it with " +
		"`croft host leftover remove`, the instance can be there again")
	// ErrRemains reports that the host still removes its former copy of the instance.
	ErrRemains = errors.New("has not removed its former copy of the instance yet; try again later")
	// ErrStale reports that data on which the choice of the host is based has changed: an aggregate, distances, or the
	// properties of the host.
	ErrStale = errors.New("what the choice of the host is based on was changed meanwhile")
)

// Closed returns why a host got no order, after a writer of orders returned Unavailable or ErrClosed.
func Closed(err error) string {
	for _, reason := range []error{ErrLeftover, ErrRemains} {
		if errors.Is(err, reason) {
			return reason.Error()
		}
	}
	return "its agent stopped or it was drained meanwhile"
}
