package cloud

import (
	"context"
	"strings"

	"croft"
	"croft/tenant"
)

// Catalogue is what requests may name: classes of resources and traits, and what a host has of them.
type Catalogue interface {
	// Classes lists the resource classes by name.
	Classes(ctx context.Context) ([]croft.ResourceClass, error)
	// Traits lists the traits by name.
	Traits(ctx context.Context) ([]croft.Trait, error)
	// AddTrait makes a custom trait; one that there is stays. Invalid. Denied.
	AddTrait(ctx context.Context, t croft.Trait) error
	// RemoveTrait removes a custom trait. NotFound; Conflict: a host has it; Invalid; Denied.
	RemoveTrait(ctx context.Context, t croft.Trait) error
	// Provider returns what a host offers, and what is claimed of it. NotFound.
	Provider(ctx context.Context, idOrName string) (croft.Provider, error)
}

// Custom is how the names of custom classes and traits begin.
const Custom = "CUSTOM_"

// maxTrait bounds the name of a trait, as Placement does.
const maxTrait = 255

// CheckCustom refuses what cannot be the name of a custom trait. Invalid.
func CheckCustom(t croft.Trait) error {
	rest, custom := strings.CutPrefix(string(t), Custom)
	if !custom || rest == "" || len(t) > maxTrait ||
		strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return croft.Errorf(croft.Invalid, "%.80q cannot be a capability of your own: write %s and capital letters, "+
			"digits and underscores, such as CUSTOM_FAST_DISK", string(t), Custom)
	}
	return nil
}

// Users are the people that have roles in projects.
type Users interface {
	// List returns the caller, and whom else the caller may see, by name.
	List(ctx context.Context) ([]tenant.User, error)
}
