package cloud

import (
	"context"

	"croft"
	"croft/schedule"
)

// Aggregates names sets of hosts, which requests may choose among. Callers who are no operators see the public ones
// alone, without hosts and generation.
type Aggregates interface {
	// List returns the aggregates by name.
	List(ctx context.Context) ([]croft.Aggregate, error)
	// Find returns an aggregate. NotFound.
	Find(ctx context.Context, name string) (croft.Aggregate, error)
	// Create makes an aggregate. Conflict: there is one of this name, or a site. NotFound: no such host. Invalid.
	Create(ctx context.Context, a croft.Aggregate) (croft.Aggregate, error)
	// Change changes an aggregate. NotFound: it, or a host to be added, does not exist. Conflict: it has another
	// generation. Invalid.
	Change(ctx context.Context, name string, c croft.AggregateChange) (croft.Aggregate, error)
	// Remove removes an aggregate of a generation; nil: of any. Its hosts stay. NotFound; Conflict.
	Remove(ctx context.Context, name string, generation *int64) error
}

// Distances states distances between aggregates, locations and hosts, which requests may name a type of. Hosts are
// given by name or UUID. Callers who are no operators see the types, and the distances between public aggregates alone.
type Distances interface {
	// List returns the stated distances of all types, by type.
	List(ctx context.Context) ([]croft.Distances, error)
	// Between returns the distance of a type between two places, stated or not. NotFound: a place does not exist, or
	// the distance is not known. Invalid.
	Between(ctx context.Context, kind, a, b string) (croft.Between, error)
	// Set states a distance, in place of the one of this pair, and returns the generation of all of the type. NotFound:
	// a place does not exist. Conflict: those of the type have another generation; nil: it may be any. Invalid.
	Set(ctx context.Context, kind string, d croft.Distance, generation *int64) (int64, error)
	// Remove removes a stated distance, whether its places exist or not. NotFound; Conflict.
	Remove(ctx context.Context, kind, a, b string, generation *int64) error
}

// Policies keeps the policies by which CRUSH chooses hosts, for the whole cloud: everybody reads them, and operators
// alone do the rest.
type Policies interface {
	// List returns the policies by name.
	List(ctx context.Context) ([]croft.CrushPolicy, error)
	// Find returns a policy. NotFound.
	Find(ctx context.Context, name string) (croft.CrushPolicy, error)
	// Check says whether a policy can choose hosts, and what of it may not be what its author wants, a sentence each.
	// Invalid; NotFound: no host is in a location that it uses.
	Check(ctx context.Context, p croft.CrushPolicy) (hints []string, err error)
	// Set stores a policy that Check accepts, in place of the one of its name, if that has a generation, where 0 is
	// that there is none; nil: any. Instances stay where they are. Conflict: it has another one.
	Set(ctx context.Context, p croft.CrushPolicy, generation *int64) (croft.CrushPolicy, error)
	// Remove removes a policy of a generation; nil: of any. Instances stay where they are. NotFound; Conflict.
	Remove(ctx context.Context, name string, generation *int64) error
	// Standing says whether an instance stands where its policy puts it, and why. NotFound; Invalid: no policy chose
	// its host.
	Standing(ctx context.Context, project croft.Project, idOrName string) (*schedule.Standing, error)
	// Map returns the CRUSH map of the hosts.
	Map(ctx context.Context) (CrushMap, error)
}

// CrushMap is a CRUSH map of the hosts as text.
type CrushMap struct {
	Text string  `json:"text"` // as crushtool reads it, with the policies as rules
	Out  []int32 `json:"out"`  // devices that take no instances now; crushtool takes each as --weight N 0
}
