package direct

import (
	"context"

	"croft"
	"croft/hosts"
)

// catalogue implements cloud.Catalogue.
type catalogue struct {
	claims Claims
	fleet  *hosts.Fleet
}

// Classes implements cloud.Catalogue.
func (c catalogue) Classes(ctx context.Context) ([]croft.ResourceClass, error) {
	return c.claims.ResourceClasses(ctx)
}

// Traits implements cloud.Catalogue.
func (c catalogue) Traits(ctx context.Context) ([]croft.Trait, error) { return c.claims.Traits(ctx) }

// AddTrait implements cloud.Catalogue.
func (c catalogue) AddTrait(ctx context.Context, t croft.Trait) error {
	if err := t.CheckCustom(); err != nil {
		return err
	}
	return c.claims.PutTrait(ctx, t)
}

// RemoveTrait implements cloud.Catalogue.
func (c catalogue) RemoveTrait(ctx context.Context, t croft.Trait) error {
	if err := t.CheckCustom(); err != nil {
		return err
	}
	return c.claims.RemoveTrait(ctx, t)
}

// Provider implements cloud.Catalogue.
func (c catalogue) Provider(ctx context.Context, idOrName string) (croft.Provider, error) {
	h, err := c.fleet.Find(ctx, idOrName)
	if err != nil {
		return croft.Provider{}, err
	}
	all, err := c.claims.Providers(ctx)
	if err != nil {
		return croft.Provider{}, err
	}
	for _, p := range all {
		if p.ID == h.ID {
			return p, nil
		}
	}
	return croft.Provider{}, croft.Errorf(croft.NotFound,
		"host %s has no resource provider yet: its agent makes one", h.Name)
}
