package control

import (
	"context"
	"net/http"

	"croft/cluster"
	"croft/control/actions"
	"croft/control/api"
	"croft/tenant/access"
)

var siteOperations = noun{Tag: "sites",
	Description: "Where clusters are built: `local`, which is this cloud's own hosts, and OpenStacks with Heat. " +
		"Operators write them, and all callers read where a password would be sent.",
	Operations: []Operation{
		// EveryHuman: users who enter a password must see its destination
		list(Operation{ID: "listSites", At: "GET /v1/sites", May: access.EveryHuman, Summary: "List the sites"},
			func(ctx context.Context, c *call, _ nothing) (api.SiteList, error) {
				all, err := c.Cloud.Sites.List(ctx)
				list := api.SiteList{Sites: []cluster.Site{}}
				for _, s := range all {
					list.Sites = append(list.Sites, c.site(s))
				}
				return list, err
			}),
		do(Operation{ID: "createSite", At: "POST /v1/sites", May: access.Operates, Summary: "Create a site",
			Status: http.StatusCreated, Conflict: api.NameTaken},
			func(ctx context.Context, c *call, in api.NewSite) (cluster.Site, error) {
				c.regarding("", actions.Site, "", in.Name)
				made, err := c.Cloud.Sites.Create(ctx, in.Plain())
				if err == nil {
					c.w.Header().Set("Location", "/v1/sites/"+made.Name)
				}
				return c.site(made), err
			}),
		do(Operation{ID: "getSite", At: "GET /v1/sites/{name}", May: access.EveryHuman, Summary: "Get a site"},
			func(ctx context.Context, c *call, in api.SiteNamed) (cluster.Site, error) {
				s, err := c.Cloud.Sites.Find(ctx, in.Name)
				return c.site(s), err
			}),
		do(Operation{ID: "changeSite", At: "PATCH /v1/sites/{name}", May: access.Operates,
			Summary: "Change a site; existing clusters are not changed"},
			func(ctx context.Context, c *call, in api.SiteChange) (cluster.Site, error) {
				base, err := base(in.Base, func() (int64, error) {
					s, err := c.Cloud.Sites.Find(ctx, in.Name)
					return s.Generation, err
				})
				if err != nil {
					return cluster.Site{}, err
				}
				s, err := c.Cloud.Sites.Change(ctx, in.Name, in.SiteChange, base)
				return c.site(s), err
			}),
		do(Operation{ID: "removeSite", At: "DELETE /v1/sites/{name}", May: access.Operates,
			Summary: "Remove a site that no implementation, credential or cluster uses", Conflict: api.InUse},
			func(ctx context.Context, c *call, in api.SiteNamed) (nothing, error) {
				return nothing{}, c.Cloud.Sites.Remove(ctx, in.Name)
			}),
		// Changes: it sends a request to the site, with a credential of the caller
		do(Operation{ID: "getSiteHealth", At: "GET /v1/sites/{name}/health", May: access.Changes, Personal: true,
			Summary: "Ask a site now how it is, with a credential of the caller if there is one"},
			func(ctx context.Context, c *call, in api.SiteInProject) (cluster.SiteHealth, error) {
				h, err := c.Cloud.Sites.Health(ctx, in.Name, c.home(), c.caller.User)
				if !c.caller.Operator() && h.Site == cluster.LocalSite {
					h.Free = nil // the load of the cloud
				}
				return h, err
			}),
	},
}

// site returns a site as the caller may see it: all callers see where passwords are sent, and only operators see the
// trusted certificates and the defaults of templates.
func (c *call) site(s cluster.Site) cluster.Site {
	if !c.caller.Operator() {
		s.CACert, s.Defaults, s.Health.Error = "", nil, ""
	}
	return s
}
