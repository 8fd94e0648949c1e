package control

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"croft"
	"croft/cluster"
	"croft/control/actions"
	"croft/control/api"
	"croft/tenant/access"
)

var applianceOperations = noun{Tag: "appliances",
	Description: "What clusters are for, such as slurm, and how each site builds that: its implementations. " +
		"Members write the ones of their project, operators those for all.",
	Home: true,
	Operations: []Operation{
		list(Operation{ID: "listAppliances", At: "GET /v1/appliances", May: access.Reads,
			Summary: "List the appliances that the project may use"}, listAppliances),
		// Changes: of the project; only operators write public ones
		do(Operation{ID: "createAppliance", At: "POST /v1/appliances", May: access.Changes,
			Summary:     "Create an appliance",
			Description: "Of the project; of the whole cloud, if it is public, which operators alone may make.",
			Status:      http.StatusCreated, Conflict: api.NameTaken}, createAppliance),
		do(Operation{ID: "getAppliance", At: "GET /v1/appliances/{name}", May: access.Reads,
			Summary: "Get an appliance"},
			func(ctx context.Context, c *call, in api.ApplianceNamed) (cluster.Appliance, error) {
				return appliance(ctx, c, in, false)
			}),
		do(Operation{ID: "changeAppliance", At: "PATCH /v1/appliances/{name}", May: access.Changes,
			Summary: "Change an appliance; existing clusters are not changed"}, changeAppliance),
		do(Operation{ID: "removeAppliance", At: "DELETE /v1/appliances/{name}", May: access.Changes,
			Summary: "Remove an appliance without implementations", Conflict: api.InUse},
			func(ctx context.Context, c *call, in api.ApplianceNamed) (nothing, error) {
				a, err := appliance(ctx, c, in, true)
				if err != nil {
					return nothing{}, err
				}
				return nothing{}, c.Cloud.Appliances.Remove(ctx, unique(a))
			}),
		list(Operation{ID: "listImplementations", At: "GET /v1/appliances/{name}/implementations", May: access.Reads,
			Summary: "List how sites build an appliance"},
			func(ctx context.Context, c *call, in api.ApplianceNamed) (api.ImplementationList, error) {
				a, err := appliance(ctx, c, in, false)
				if err != nil {
					return api.ImplementationList{}, err
				}
				all, err := c.Cloud.Appliances.Implementations(ctx, unique(a))
				return api.ImplementationList{Implementations: append([]cluster.Implementation{}, all...)}, err
			}),
		do(Operation{ID: "addImplementation", At: "POST /v1/appliances/{name}/implementations", May: access.Changes,
			Summary: "Say how a site builds an appliance, from the next cluster on",
			Description: "The text is read before it is stored: the error of a wrong text has its line. It gets " +
				"the next revision; clusters that are there stay as they were built.",
			Status: http.StatusCreated},
			func(ctx context.Context, c *call, in api.NewImplementation) (made cluster.Implementation, err error) {
				a, err := appliance(ctx, c, in.ApplianceNamed, true)
				if err != nil {
					return made, err
				}
				if made, err = c.Cloud.Appliances.AddImplementation(ctx, in.Plain(unique(a))); err == nil {
					c.w.Header().Set("Location", "/v1/appliances/"+a.Name+"/implementations/"+string(made.ID))
				}
				return made, fromSite(err)
			}),
		do(Operation{ID: "getImplementation", At: "GET /v1/appliances/{name}/implementations/{id}", May: access.Reads,
			Summary: "Get an implementation"},
			func(ctx context.Context, c *call, in api.ImplementationNamed) (cluster.Implementation, error) {
				_, have, err := implementation(ctx, c, in, false)
				return have, err
			}),
		do(Operation{ID: "changeImplementation", At: "PATCH /v1/appliances/{name}/implementations/{id}",
			May: access.Changes, Summary: "Permit or end the use of an implementation for new clusters"},
			func(ctx context.Context, c *call, in api.ImplementationChange) (cluster.Implementation, error) {
				of, have, err := implementation(ctx, c, in.ImplementationNamed, true)
				if err != nil {
					return have, err
				}
				return c.Cloud.Appliances.EnableImplementation(ctx, of, have.ID, in.Enabled)
			}),
		do(Operation{ID: "removeImplementation", At: "DELETE /v1/appliances/{name}/implementations/{id}",
			May: access.Changes, Summary: "Remove an implementation that no cluster was built by",
			Conflict: api.InUse},
			func(ctx context.Context, c *call, in api.ImplementationNamed) (nothing, error) {
				of, have, err := implementation(ctx, c, in, true)
				if err != nil {
					return nothing{}, err
				}
				return nothing{}, c.Cloud.Appliances.RemoveImplementation(ctx, of, have.ID)
			}),
	},
}

// errPublic is the answer for changes of public appliances.
var errPublic error = api.NewProblem(api.ForbiddenVerb, "only operators write appliances that every project may use")

// appliance finds an appliance by its name, if the caller may use it; with write set, if the caller may do the
// operation on it.
func appliance(ctx context.Context, c *call, in api.ApplianceNamed, write bool) (cluster.Appliance, error) {
	a, err := c.namedAppliance(ctx, in.Name)
	if errors.Is(err, croft.NotFound) || err == nil && !c.uses(a) {
		return a, c.hidden("appliance", in.Name, err)
	}
	if err != nil || !write {
		return a, err
	}
	c.regarding(a.Project, actions.Appliance, "", a.Name)
	if a.Public || a.Project == "" {
		if !c.caller.Operator() {
			c.regarding(c.caller.Project, actions.Appliance, "", a.Name)
			return a, errPublic
		}
		return a, nil
	}
	return a, c.authorize(a.Project)
}

// namedAppliance returns the appliance with a name in the project of the request. A request without a project means the
// appliance of the only other project in the caller's scope that has one. NotFound. Conflict: several have.
func (c *call) namedAppliance(ctx context.Context, name string) (cluster.Appliance, error) {
	if cluster.CheckName("an appliance", name) != nil {
		return cluster.Appliance{}, croft.Errorf(croft.NotFound, "there is no appliance %.80q", name)
	}
	a, err := c.Cloud.Appliances.Find(ctx, cluster.ScopedAppliance(c.home(), name))
	if !errors.Is(err, croft.NotFound) && (err != nil || c.uses(a)) || c.query.Has("project") {
		return a, err
	}
	if c.scope.All() {
		return c.Cloud.Appliances.Find(ctx, name)
	}
	var found []cluster.Appliance
	for _, p := range c.scope.Projects() {
		a, err := c.Cloud.Appliances.Find(ctx, cluster.ScopedAppliance(p, name))
		if err == nil && a.Project == p {
			found = append(found, a)
		}
		if err != nil && !errors.Is(err, croft.NotFound) {
			return a, err
		}
	}
	switch len(found) {
	case 0:
		return cluster.Appliance{}, croft.Errorf(croft.NotFound, "there is no appliance %.80q", name)
	case 1:
		return found[0], nil
	}
	return cluster.Appliance{}, croft.Errorf(croft.Conflict, "%d projects have an appliance %s: name the project",
		len(found), name)
}

// unique returns a name by which the cloud finds the appliance in any project.
func unique(a cluster.Appliance) string { return cluster.ScopedAppliance(a.Project, a.Name) }

// uses reports whether the caller may use an appliance.
func (c *call) uses(a cluster.Appliance) bool {
	return a.Public || c.caller.Operator() || a.Project != "" && c.scope.Sees(a.Project)
}

func listAppliances(ctx context.Context, c *call, _ api.InProject) (api.ApplianceList, error) {
	projects := []croft.Project{c.project} // an operator who names none means all
	if c.project == "" && !c.scope.All() {
		projects = c.scope.Projects()
	}
	list := api.ApplianceList{Appliances: []cluster.Appliance{}}
	for _, p := range projects {
		all, err := c.Cloud.Appliances.List(ctx, p)
		if err != nil {
			return list, err
		}
		for _, a := range all {
			if c.uses(a) {
				list.Appliances = append(list.Appliances, a)
			}
		}
	}
	slices.SortFunc(list.Appliances, func(a, b cluster.Appliance) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Project, b.Project))
	})
	list.Appliances = slices.CompactFunc(list.Appliances, func(a, b cluster.Appliance) bool {
		return a.Name == b.Name && a.Project == b.Project
	})
	return list, nil
}

func createAppliance(ctx context.Context, c *call, in api.NewAppliance) (made cluster.Appliance, err error) {
	c.regarding(c.home(), actions.Appliance, "", in.Name)
	if in.Public && !c.caller.Operator() {
		return made, errPublic
	}
	wanted := cluster.Appliance{Name: in.Name, Project: c.home(), Owner: c.caller.User,
		Description: in.Description, Public: in.Public, MinSlaves: in.MinSlaves, Agent: in.Agent}
	if in.Public {
		wanted.Project = ""
		c.regarding("", actions.Appliance, "", in.Name)
	}
	if made, err = c.Cloud.Appliances.Create(ctx, wanted); err == nil {
		c.w.Header().Set("Location", "/v1/appliances/"+made.Name)
	}
	return made, err
}

func changeAppliance(ctx context.Context, c *call, in api.ApplianceChange) (cluster.Appliance, error) {
	a, err := appliance(ctx, c, in.ApplianceNamed, true)
	if err != nil {
		return a, err
	}
	if in.Public != nil && *in.Public != a.Public && !c.caller.Operator() {
		return a, errPublic
	}
	base, err := base(in.Base, func() (int64, error) { return a.Generation, nil })
	if err != nil {
		return a, err
	}
	return c.Cloud.Appliances.Change(ctx, unique(a), in.ApplianceChange, base)
}

// implementation finds an implementation by its ID, of an appliance that the caller may use. of is the unique name of
// the appliance.
func implementation(ctx context.Context, c *call, in api.ImplementationNamed, write bool) (of string,
	_ cluster.Implementation, _ error) {
	a, err := appliance(ctx, c, in.ApplianceNamed, write)
	if err != nil {
		return "", cluster.Implementation{}, err
	}
	all, err := c.Cloud.Appliances.Implementations(ctx, unique(a))
	if err != nil {
		return "", cluster.Implementation{}, err
	}
	i := slices.IndexFunc(all, func(i cluster.Implementation) bool { return i.ID == in.ID })
	if i < 0 {
		return "", cluster.Implementation{}, api.NewProblem(api.NotFound,
			"appliance "+a.Name+" has no implementation "+api.Clip(string(in.ID)))
	}
	return unique(a), all[i], nil
}
