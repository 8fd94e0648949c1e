package control

import (
	"net/http"

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
	return c.answer(http.StatusOK, api.CapabilitiesOf(all))
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
	all, err := c.Cloud.Projects.List(ctx)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.UserList{Users: tenant.Users(c.caller, all)})
}
