package control

import (
	"context"
	"net/http"
	"slices"

	"croft"
	"croft/control/api"
	"croft/tenant"
)

func listResourceTypes(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Catalogue.Classes(ctx)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.ResourceTypesOf(all))
}

func listCapabilities(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Catalogue.Traits(ctx)
	if err != nil {
		return err
	}
	if all, err = c.visibleTraits(ctx, all); err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.CapabilitiesOf(all))
}

// visibleTraits removes the traits of networks that no host opens to a project in the caller's scope.
func (c *call) visibleTraits(ctx context.Context, all []croft.Trait) ([]croft.Trait, error) {
	isNetwork := func(t croft.Trait) bool { _, is := croft.NetworkOf(t); return is }
	if c.scope.All() || !slices.ContainsFunc(all, isNetwork) {
		return all, nil
	}
	hosts, err := c.Cloud.Hosts.Records(ctx)
	if err != nil {
		return nil, err
	}
	open := map[croft.Trait]bool{}
	for _, h := range hosts {
		for name, projects := range h.Networks {
			for _, p := range projects {
				if p == croft.EveryProject || c.scope.Sees(p) {
					open[croft.NetworkTrait(name)] = true
				}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(t croft.Trait) bool { return isNetwork(t) && !open[t] }), nil
}

func addCapability(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	t := croft.Trait(c.r.PathValue("name"))
	if err := c.Cloud.Catalogue.AddTrait(ctx, t); err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.CapabilityOf(t))
}

func removeCapability(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	t := croft.Trait(c.r.PathValue("name"))
	if err := c.Cloud.Catalogue.RemoveTrait(ctx, t); err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.CapabilityOf(t))
}

func getInventory(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	p, err := c.Cloud.Catalogue.Provider(ctx, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.InventoriesOf(p))
}

func getHostCapabilities(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	p, err := c.Cloud.Catalogue.Provider(ctx, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.CapabilitiesOf(p.Traits))
}

func listUsers(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := visibleProjects(ctx, c)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.UserList{Users: tenant.Users(c.caller, all)})
}
