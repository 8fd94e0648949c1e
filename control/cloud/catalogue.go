package cloud

import (
	"context"
	"strings"

	"croft"
	"croft/tenant"
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

// Custom is the prefix of the names of custom classes and traits.
const Custom = "CUSTOM_"

// maxTrait limits the length of a trait's name to Placement's limit.
const maxTrait = 255

// CheckCustom returns Invalid if t cannot be the name of a custom trait.
func CheckCustom(t croft.Trait) error {
	rest, custom := strings.CutPrefix(string(t), Custom)
	if !custom || rest == "" || len(t) > maxTrait ||
		strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return croft.Errorf(croft.Invalid, "%.80q cannot be a capability of your own: write %s and capital letters, "+
			"digits and underscores, such as CUSTOM_FAST_DISK", string(t), Custom)
	}
	return nil
}

// Users reads the people who have roles in projects.
type Users interface {
	// List returns the caller and the other users that the caller may see, by name.
	List(ctx context.Context) ([]tenant.User, error)
}
