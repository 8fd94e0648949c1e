package cloud

import (
	"context"

	"croft"
)

// Catalogue reads and changes the resource classes and traits that requests may name, and reads what each host offers.
type Catalogue interface {
	// Classes lists the resource classes by name.
	Classes(ctx context.Context) ([]croft.ResourceClass, error)
	// Traits lists the traits by name.
	Traits(ctx context.Context) ([]croft.Trait, error)
	// AddTrait creates a custom trait. It does nothing if the trait exists. Invalid. Denied.
	AddTrait(ctx context.Context, t croft.Trait) error
	// RemoveTrait removes a custom trait. NotFound. Conflict: a host has it. Invalid. Denied.
	RemoveTrait(ctx context.Context, t croft.Trait) error
	// Provider returns what a host offers, and how much of it is claimed. NotFound.
	Provider(ctx context.Context, idOrName string) (croft.Provider, error)
}
