// Package transfer copies the whole state of a Placement between a file, an etcd and a server, croft's or OpenStack's.
// It promises that a state which does not fit the target is refused before anything is written, that an import deletes
// nothing in the target, and that repeating an interrupted import completes it.
//
// The file is JSON Lines, see docs/users/placement.md: a header, one line for each custom resource class, custom trait,
// resource provider and consumer, and an end line; a file without the end line is truncated.
package transfer

import (
	"context"

	"croft"
)

// State is the whole state of a Placement.
type State struct {
	Revision  int64                 // of the etcd it was read from; 0: from another source
	Classes   []croft.ResourceClass // custom ones, in the order of their creation
	Traits    []croft.Trait         // custom ones, in the order of their creation
	Providers []Provider            // in the order of their creation
	Consumers []Consumer            // by ID

	// Standard names known to the source; nil for a file, which may contain any.
	StandardClasses []croft.ResourceClass
	StandardTraits  []croft.Trait
}

// Provider is a resource provider.
type Provider struct {
	ID          croft.HostID                            `json:"uuid"`
	Name        string                                  `json:"name"`
	Parent      croft.HostID                            `json:"parent,omitempty"`
	Generation  int64                                   `json:"generation"`
	Inventories map[croft.ResourceClass]croft.Inventory `json:"inventories,omitempty"`
	Traits      []croft.Trait                           `json:"traits,omitempty"`
	Aggregates  []string                                `json:"aggregates,omitempty"`
}

// Consumer is a consumer of Placement.
type Consumer struct {
	ID          croft.InstanceID                 `json:"uuid"`
	Generation  int64                            `json:"generation"`
	Project     string                           `json:"project"`
	User        string                           `json:"user"`
	Type        string                           `json:"type,omitempty"` // absent: unknown
	Allocations map[croft.HostID]croft.Resources `json:"allocations"`
}

// Progress reports the progress of a stage. It is called from one goroutine at a time.
type Progress func(stage string, done, total int)

// Source is a Placement from which a state is exported.
type Source interface {
	// Read returns the whole state at one moment. Unavailable. Conflict: it changes faster than it can be read.
	Read(ctx context.Context, progress Progress) (*State, error)
}
