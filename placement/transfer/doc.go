// Package transfer carries the whole state of a Placement between a file, an etcd and
// a server, croft's or OpenStack's. It promises that what cannot be carried whole is
// refused before anything is written, that nothing which is there is lost, and that
// an import which was interrupted is finished by running it again.
//
// The file is JSON Lines, which docs/placement.md describes: a header, one line for
// each custom resource class, custom trait, resource provider and consumer, and an
// end, without which it counts as cut off.
package transfer

import (
	"context"

	"croft"
)

// State is all that a Placement holds.
type State struct {
	Revision  int64                 // of the etcd it was read from; 0: it was read elsewhere
	Classes   []croft.ResourceClass // custom ones, in the order of their creation
	Traits    []croft.Trait         // likewise
	Providers []Provider            // in the order of their creation
	Consumers []Consumer            // by ID

	// Standard names that are known where this is from; nil for a file, which may
	// have any.
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

// Consumer is whoever has allocations.
type Consumer struct {
	ID          croft.InstanceID                 `json:"uuid"`
	Generation  int64                            `json:"generation"`
	Project     string                           `json:"project"`
	User        string                           `json:"user"`
	Type        string                           `json:"type,omitempty"` // absent: unknown
	Allocations map[croft.HostID]croft.Resources `json:"allocations"`
}

// Progress is told how far a stage has come. It is called from one goroutine at a time.
type Progress func(stage string, done, total int)

// Source is where a state is.
type Source interface {
	// Read returns the whole state as it was at one moment. Unavailable. Conflict:
	// it changes faster than it can be read.
	Read(ctx context.Context, progress Progress) (*State, error)
}

// Target is where a state is to be.
type Target interface {
	Source
	// Write makes the changes that were planned on what was read last. Conflict:
	// somebody changed that meanwhile, and part of the changes are made.
	Write(ctx context.Context, changes *Changes, progress Progress) error
}

// Import brings a state to a target and returns what it had to do for that. Invalid
// and Conflict where the state does not fit what is there; then nothing is changed.
func Import(ctx context.Context, want *State, to Target, merge bool, progress Progress) (*Changes, error) {
	have, err := to.Read(ctx, progress)
	if err != nil {
		return nil, err
	}
	changes, err := Plan(have, want, merge)
	if err != nil {
		return nil, err
	}
	return changes, to.Write(ctx, changes, progress)
}
