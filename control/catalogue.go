package control

import (
	"context"
	"slices"

	"croft"
	"croft/control/api"
	"croft/tenant"
	"croft/tenant/access"
)

var catalogueOperations = noun{Tag: "catalogue", Object: "capability",
	Description: "What requests may name, and who has roles.",
	Operations: []Operation{
		list(Operation{ID: "listResourceTypes", At: "GET /v1/resource-types", May: access.EveryHuman,
			Summary: "List the classes of resources"},
			func(ctx context.Context, c *call, _ nothing) (api.ResourceTypeList, error) {
				all, err := c.Cloud.Claims.ResourceClasses(ctx)
				return api.ResourceTypesOf(all), err
			}),
		list(Operation{ID: "listCapabilities", At: "GET /v1/capabilities", May: access.EveryHuman,
			Summary: "List the capabilities that requests may require or forbid"}, listCapabilities),
		do(Operation{ID: "addCapability", At: "PUT /v1/capabilities/{name}", May: access.Operates,
			Summary: "Make a capability of this cloud's own",
			Description: "Requests may name it from then on. Repeating it is no error. One that no host has is " +
				"removed after a day."},
			func(ctx context.Context, c *call, in api.CapabilityNamed) (api.Capability, error) {
				return customTrait(ctx, in, c.Cloud.Claims.PutTrait)
			}),
		do(Operation{ID: "removeCapability", At: "DELETE /v1/capabilities/{name}", May: access.Operates,
			Summary: "Remove a capability of this cloud that no host has"},
			func(ctx context.Context, c *call, in api.CapabilityNamed) (api.Capability, error) {
				return customTrait(ctx, in, c.Cloud.Claims.RemoveTrait)
			}),
		list(Operation{ID: "listUsers", At: "GET /v1/users", May: access.EveryHuman, // each caller sees some
			Summary:     "List the users that the caller sees",
			Description: "The caller; for admins of projects, the members of those as well."},
			func(ctx context.Context, c *call, _ nothing) (api.UserList, error) {
				all, err := visibleProjects(ctx, c)
				return api.UserList{Users: tenant.Users(c.caller, all)}, err
			}),
	},
}

// customTrait changes a custom trait.
func customTrait(ctx context.Context, in api.CapabilityNamed, change func(context.Context, croft.Trait) error) (
	api.Capability, error) {
	if err := in.Name.CheckCustom(); err != nil {
		return api.CapabilityOf(in.Name), err
	}
	return api.CapabilityOf(in.Name), change(ctx, in.Name)
}

func listCapabilities(ctx context.Context, c *call, _ nothing) (list api.CapabilityList, err error) {
	all, err := c.Cloud.Claims.Traits(ctx)
	if err != nil {
		return list, err
	}
	all, err = c.visibleTraits(ctx, all)
	return api.CapabilitiesOf(all), err
}

// visibleTraits removes the traits of networks that no host opens to a project in the caller's scope.
func (c *call) visibleTraits(ctx context.Context, all []croft.Trait) ([]croft.Trait, error) {
	isNetwork := func(t croft.Trait) bool { _, is := croft.NetworkOf(t); return is }
	if c.scope.All() || !slices.ContainsFunc(all, isNetwork) {
		return all, nil
	}
	hosts, err := c.Cloud.Fleet.Records(ctx)
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
