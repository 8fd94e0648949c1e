package cloud

import (
	"context"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

// Aggregates manages named sets of hosts, which requests may restrict their hosts to. Callers who are not operators see
// public aggregates only, without hosts and generation.
type Aggregates interface {
	// List returns the aggregates by name.
	List(ctx context.Context) ([]croft.Aggregate, error)
	// Find returns an aggregate. NotFound.
	Find(ctx context.Context, name string) (croft.Aggregate, error)
	// Create creates an aggregate. Conflict: there is an aggregate or a site with this name. NotFound: a host does not
	// exist. Invalid.
	Create(ctx context.Context, a croft.Aggregate) (croft.Aggregate, error)
	// Change changes an aggregate. NotFound: the aggregate, or a host to be added, does not exist. Conflict: the
	// aggregate has another generation. Invalid.
	Change(ctx context.Context, name string, c croft.AggregateChange) (croft.Aggregate, error)
	// Remove removes an aggregate if it has the given generation; nil accepts any. Its hosts stay. NotFound; Conflict.
	Remove(ctx context.Context, name string, generation *int64) error
}

// Distances manages stated distances between aggregates, locations and hosts. Requests may name a type of distance.
// Hosts are given by name or UUID. Callers who are not operators see the types, and the distances between public
// aggregates only.
type Distances interface {
	// List returns the stated distances of all types, by type.
	List(ctx context.Context) ([]croft.Distances, error)
	// Between returns the distance of a type between two places, whether it is stated or calculated. NotFound: a place
	// does not exist, or the distance is not known. Invalid.
	Between(ctx context.Context, kind, a, b string) (croft.Between, error)
	// Set states a distance, which replaces the stated distance of this pair, and returns the new generation of the
	// type's distances. NotFound: a place does not exist. Conflict: the distances of the type have another generation;
	// nil accepts any. Invalid.
	Set(ctx context.Context, kind string, d croft.Distance, generation *int64) (int64, error)
	// Remove removes a stated distance, even if its places no longer exist. NotFound; Conflict.
	Remove(ctx context.Context, kind, a, b string, generation *int64) error
}

// Policies keeps the policies by which CRUSH chooses hosts, for the whole cloud. All callers may read them; only
// operators may call the other methods.
type Policies interface {
	// List returns the policies by name.
	List(ctx context.Context) ([]croft.CrushPolicy, error)
	// Find returns a policy. NotFound.
	Find(ctx context.Context, name string) (croft.CrushPolicy, error)
	// Check reports whether a policy can choose hosts, and returns hints about parts that its author may not have
	// intended, one sentence each. Invalid. NotFound: no host is in a location that the policy uses.
	Check(ctx context.Context, p croft.CrushPolicy) (hints []string, err error)
	// Set stores a policy that Check accepts, and replaces the policy of the same name if that has the given
	// generation. Generation 0 means that no such policy exists; nil accepts any. Instances stay where they are.
	// Conflict: the policy has another generation.
	Set(ctx context.Context, p croft.CrushPolicy, generation *int64) (croft.CrushPolicy, error)
	// Remove removes a policy if it has the given generation; nil accepts any. Instances stay where they are. NotFound;
	// Conflict.
	Remove(ctx context.Context, name string, generation *int64) error
	// Standing reports whether an instance is on the host where its policy puts it, and why. NotFound. Invalid: no
	// policy chose its host.
	Standing(ctx context.Context, project croft.Project, idOrName string) (*schedule.Standing, error)
	// Map returns the CRUSH map of the hosts.
	Map(ctx context.Context) (api.CrushMap, error)
}
