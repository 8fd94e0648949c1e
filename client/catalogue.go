package client

import (
	"context"

	"croft"
	"croft/control/api"
	"croft/control/cloud"
	"croft/tenant"
)

// catalogue implements cloud.Catalogue.
type catalogue struct{ *Client }

// Classes implements cloud.Catalogue.
func (c catalogue) Classes(ctx context.Context) (all []croft.ResourceClass, err error) {
	list, err := c.ListResourceTypes(ctx)
	for _, one := range list.ResourceTypes {
		all = append(all, one.Name)
	}
	return all, err
}

// Traits implements cloud.Catalogue.
func (c catalogue) Traits(ctx context.Context) ([]croft.Trait, error) {
	return traits(c.ListCapabilities(ctx))
}

func traits(list api.CapabilityList, err error) (all []croft.Trait, _ error) {
	for _, one := range list.Capabilities {
		all = append(all, one.Name)
	}
	return all, err
}

// AddTrait implements cloud.Catalogue.
func (c catalogue) AddTrait(ctx context.Context, t croft.Trait) error {
	if err := cloud.CheckCustom(t); err != nil {
		return err
	}
	_, err := c.AddCapability(ctx, api.CapabilityNamed{Name: t})
	return err
}

// RemoveTrait implements cloud.Catalogue.
func (c catalogue) RemoveTrait(ctx context.Context, t croft.Trait) error {
	if err := cloud.CheckCustom(t); err != nil {
		return err
	}
	_, err := c.RemoveCapability(ctx, api.CapabilityNamed{Name: t})
	return err
}

// Provider implements cloud.Catalogue.
func (c catalogue) Provider(ctx context.Context, idOrName string) (croft.Provider, error) {
	list, err := c.GetInventory(ctx, api.HostNamed{ID: idOrName})
	if err != nil {
		return croft.Provider{}, hostList(c).denied(ctx, err)
	}
	p := list.Provider()
	p.Traits, err = traits(c.GetHostCapabilities(ctx, api.HostNamed{ID: string(list.Host)}))
	return p, err
}

// users implements cloud.Users.
type users struct{ *Client }

// List implements cloud.Users.
func (u users) List(ctx context.Context) ([]tenant.User, error) {
	list, err := u.ListUsers(ctx)
	return list.Users, err
}
