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
)

// errPublic is the answer for changes of public appliances.
var errPublic error = api.NewProblem(api.ForbiddenVerb, "only operators write appliances that every project may use")

// appliance finds the appliance that the path names, if the caller may use it; with write set, if the caller may do the
// operation on it.
func appliance(ctx context.Context, c *call, write bool) (cluster.Appliance, error) {
	name := c.r.PathValue("name")
	a, err := c.namedAppliance(ctx, name)
	if errors.Is(err, croft.NotFound) || err == nil && !c.uses(a) {
		return a, c.hidden("appliance", name, err)
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

func listAppliances(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	projects := []croft.Project{c.project} // an operator who names none means all
	if c.project == "" && !c.scope.All() {
		projects = c.scope.Projects()
	}
	list := api.ApplianceList{Appliances: []cluster.Appliance{}}
	for _, p := range projects {
		all, err := c.Cloud.Appliances.List(ctx, p)
		if err != nil {
			return err
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
	return c.answer(http.StatusOK, list)
}

func createAppliance(c *call) error {
	var given api.NewAppliance
	if err := c.body(&given); err != nil {
		return err
	}
	c.regarding(c.home(), actions.Appliance, "", given.Name)
	if given.Public && !c.caller.Operator() {
		return errPublic
	}
	wanted := cluster.Appliance{Name: given.Name, Project: c.home(), Owner: c.caller.User,
		Description: given.Description, Public: given.Public, MinSlaves: given.MinSlaves, Agent: given.Agent}
	if given.Public {
		wanted.Project = ""
		c.regarding("", actions.Appliance, "", given.Name)
	}
	ctx, cancel := c.brief()
	defer cancel()
	made, err := c.Cloud.Appliances.Create(ctx, wanted)
	if err != nil {
		return taken(err)
	}
	c.w.Header().Set("Location", "/v1/appliances/"+made.Name)
	return c.tagged(http.StatusCreated, made.Generation, made)
}

func getAppliance(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	a, err := appliance(ctx, c, false)
	if err != nil {
		return err
	}
	return c.tagged(http.StatusOK, a.Generation, a)
}

func changeAppliance(c *call) error {
	var given api.ApplianceChange
	if err := c.body(&given); err != nil {
		return err
	}
	base, err := api.Match(c.r.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	a, err := appliance(ctx, c, true)
	if err != nil {
		return err
	}
	if given.Public != nil && *given.Public != a.Public && !c.caller.Operator() {
		return errPublic
	}
	a, err = c.Cloud.Appliances.Change(ctx, unique(a), given, base)
	if err != nil {
		return mismatch(err, base)
	}
	return c.tagged(http.StatusOK, a.Generation, a)
}

func removeAppliance(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	a, err := appliance(ctx, c, true)
	if err != nil {
		return err
	}
	if err := c.Cloud.Appliances.Remove(ctx, unique(a)); err != nil {
		return used(err)
	}
	return c.nothing()
}

func listImplementations(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	a, err := appliance(ctx, c, false)
	if err != nil {
		return err
	}
	all, err := c.Cloud.Appliances.Implementations(ctx, unique(a))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.ImplementationList{Implementations: append([]cluster.Implementation{}, all...)})
}

// implementation finds the implementation that the path names, of an appliance that the caller may use. of is the
// unique name of the appliance.
func implementation(ctx context.Context, c *call, write bool) (of string, _ cluster.Implementation, _ error) {
	a, err := appliance(ctx, c, write)
	if err != nil {
		return "", cluster.Implementation{}, err
	}
	all, err := c.Cloud.Appliances.Implementations(ctx, unique(a))
	if err != nil {
		return "", cluster.Implementation{}, err
	}
	id := c.r.PathValue("id")
	i := slices.IndexFunc(all, func(i cluster.Implementation) bool { return string(i.ID) == id })
	if i < 0 {
		return "", cluster.Implementation{}, api.NewProblem(api.NotFound,
			"appliance "+a.Name+" has no implementation "+api.Clip(id))
	}
	return unique(a), all[i], nil
}

func addImplementation(c *call) error {
	var given api.NewImplementation
	if err := c.body(&given); err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	a, err := appliance(ctx, c, true)
	if err != nil {
		return err
	}
	made, err := c.Cloud.Appliances.AddImplementation(ctx, given.Plain(unique(a)))
	if err != nil {
		return fromSite(err)
	}
	c.w.Header().Set("Location", "/v1/appliances/"+a.Name+"/implementations/"+string(made.ID))
	return c.answer(http.StatusCreated, made)
}

func getImplementation(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	_, have, err := implementation(ctx, c, false)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, have)
}

func changeImplementation(c *call) error {
	var given api.ImplementationChange
	if err := c.body(&given); err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	of, have, err := implementation(ctx, c, true)
	if err != nil {
		return err
	}
	have, err = c.Cloud.Appliances.EnableImplementation(ctx, of, have.ID, given.Enabled)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, have)
}

func removeImplementation(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	of, have, err := implementation(ctx, c, true)
	if err != nil {
		return err
	}
	if err := c.Cloud.Appliances.RemoveImplementation(ctx, of, have.ID); err != nil {
		return used(err)
	}
	return c.nothing()
}
