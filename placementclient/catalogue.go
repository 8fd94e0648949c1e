package placementclient

import (
	"context"
	"net/http"
	"net/url"

	"croft"
)

// ResourceClasses lists the resource classes, standard and custom ones, by name.
func (c *Client) ResourceClasses(ctx context.Context) ([]croft.ResourceClass, error) {
	var body struct {
		Classes []struct {
			Name croft.ResourceClass `json:"name"`
		} `json:"resource_classes"`
	}
	if err := c.conn.call(ctx, http.MethodGet, "/resource_classes", nil, &body); err != nil {
		return nil, err
	}
	var all []croft.ResourceClass
	for _, one := range body.Classes {
		all = append(all, one.Name)
	}
	return sorted(all), nil
}

// Traits lists the traits, standard and custom ones, by name.
func (c *Client) Traits(ctx context.Context) ([]croft.Trait, error) {
	var body traitsBody
	if err := c.conn.call(ctx, http.MethodGet, "/traits", nil, &body); err != nil {
		return nil, err
	}
	return sorted(body.Traits), nil
}

// PutTrait creates a custom trait unless it exists. Invalid.
func (c *Client) PutTrait(ctx context.Context, t croft.Trait) error {
	return c.conn.call(ctx, http.MethodPut, traitPath(t), nil, nil)
}

// RemoveTrait removes a custom trait. NotFound; Conflict: a provider has it; Invalid: it is a standard trait.
func (c *Client) RemoveTrait(ctx context.Context, t croft.Trait) error {
	err := c.conn.call(ctx, http.MethodDelete, traitPath(t), nil, nil)
	switch {
	case is(err, http.StatusNotFound, ""):
		return croft.Errorf(croft.NotFound, "there is no trait %s", t)
	case is(err, http.StatusConflict, ""):
		return croft.Errorf(croft.Conflict, "a host has the trait %s: take it out of offer.traits there first", t)
	}
	return err
}

func traitPath(t croft.Trait) string { return "/traits/" + url.PathEscape(string(t)) }
