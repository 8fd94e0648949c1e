package client

import (
	"context"
	"net/http"

	"croft"
	"croft/cloud"
	"croft/control/api"
	"croft/tenant"
)

// catalogue implements cloud.Catalogue.
type catalogue struct{ *Client }

// Classes implements cloud.Catalogue.
func (c catalogue) Classes(ctx context.Context) ([]croft.ResourceClass, error) {
	var list api.ResourceTypeList
	err := c.ask(ctx, http.MethodGet, "/v1/resource-types", nil, &list)
	var all []croft.ResourceClass
	for _, one := range list.ResourceTypes {
		all = append(all, one.Name)
	}
	return all, err
}

// Traits implements cloud.Catalogue.
func (c catalogue) Traits(ctx context.Context) ([]croft.Trait, error) {
	return c.traits(ctx, "/v1/capabilities")
}

func (c catalogue) traits(ctx context.Context, path string) ([]croft.Trait, error) {
	var list api.CapabilityList
	err := c.ask(ctx, http.MethodGet, path, nil, &list)
	var all []croft.Trait
	for _, one := range list.Capabilities {
		all = append(all, one.Name)
	}
	return all, err
}

// AddTrait implements cloud.Catalogue.
func (c catalogue) AddTrait(ctx context.Context, t croft.Trait) error {
	return c.change(ctx, http.MethodPut, t)
}

// RemoveTrait implements cloud.Catalogue.
func (c catalogue) RemoveTrait(ctx context.Context, t croft.Trait) error {
	return c.change(ctx, http.MethodDelete, t)
}

func (c catalogue) change(ctx context.Context, method string, t croft.Trait) error {
	if err := cloud.CheckCustom(t); err != nil {
		return err
	}
	return c.ask(ctx, method, path("", []string{"v1", "capabilities", string(t)}), nil, nil)
}

// Provider implements cloud.Catalogue.
func (c catalogue) Provider(ctx context.Context, idOrName string) (croft.Provider, error) {
	var list api.InventoryList
	err := c.ask(ctx, http.MethodGet, path("", []string{"v1", "hosts", idOrName, "inventory"}), nil, &list)
	if err != nil {
		return croft.Provider{}, hostList(c).denied(ctx, err)
	}
	p := list.Provider()
	p.Traits, err = c.traits(ctx, path("", []string{"v1", "hosts", string(list.Host), "capabilities"}))
	return p, err
}

// users implements cloud.Users.
type users struct{ *Client }

// List implements cloud.Users.
func (u users) List(ctx context.Context) ([]tenant.User, error) {
	var list api.UserList
	err := u.ask(ctx, http.MethodGet, "/v1/users", nil, &list)
	return list.Users, err
}
