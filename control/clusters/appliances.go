package clusters

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"croft"
	"croft/actions"
	"croft/cluster"
	"croft/control/api"
)

// errPublic is the answer for changes of what everybody uses.
var errPublic error = api.NewProblem(api.ForbiddenVerb, "only operators write appliances that every project may use")

// appliance finds the appliance that the path names, if the caller may use it; to write: if the caller may do the
// operation on it.
func appliance(ctx context.Context, c Call, write bool) (cluster.Appliance, error) {
	name := c.R.PathValue("name")
	a, err := c.Cloud.Appliances.Find(ctx, name)
	if errors.Is(err, croft.NotFound) || err == nil && !c.uses(a) {
		return a, api.Hidden("appliance", name)
	}
	if err != nil || !write {
		return a, err
	}
	c.about(a.Project, actions.Appliance, "", a.Name)
	if a.Public || a.Project == "" {
		if !c.Caller.Operator() {
			c.about(c.Caller.Project, actions.Appliance, "", a.Name)
			return a, errPublic
		}
		return a, nil
	}
	return a, c.May(a.Project)
}

// uses reports whether the caller may use an appliance.
func (c Call) uses(a cluster.Appliance) bool {
	return a.Public || c.Caller.Operator() || a.Project != "" && c.Scope.Sees(a.Project)
}

func listAppliances(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	all, err := c.Cloud.Appliances.List(ctx, c.Given)
	if err != nil {
		return err
	}
	list := api.ApplianceList{Appliances: []cluster.Appliance{}}
	for _, a := range all {
		if c.uses(a) {
			list.Appliances = append(list.Appliances, a)
		}
	}
	return c.answer(http.StatusOK, list)
}

func createAppliance(c Call) error {
	var given api.NewAppliance
	if err := c.Body(&given); err != nil {
		return err
	}
	c.about(c.Project, actions.Appliance, "", given.Name)
	if given.Public && !c.Caller.Operator() {
		return errPublic
	}
	wanted := cluster.Appliance{Name: given.Name, Project: c.Project, Owner: c.Caller.User,
		Description: given.Description, Public: given.Public, MinSlaves: given.MinSlaves, Agent: given.Agent}
	if given.Public {
		wanted.Project = ""
		c.about("", actions.Appliance, "", given.Name)
	}
	ctx, cancel := c.Brief()
	defer cancel()
	made, err := c.Cloud.Appliances.Create(ctx, wanted)
	if err != nil {
		return taken(err)
	}
	c.W.Header().Set("Location", "/v1/appliances/"+made.Name)
	return c.tagged(http.StatusCreated, made.Generation, made)
}

func getAppliance(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	a, err := appliance(ctx, c, false)
	if err != nil {
		return err
	}
	return c.tagged(http.StatusOK, a.Generation, a)
}

func changeAppliance(c Call) error {
	var given api.ApplianceChange
	if err := c.Body(&given); err != nil {
		return err
	}
	base, err := api.Match(c.R.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.Brief()
	defer cancel()
	a, err := appliance(ctx, c, true)
	if err != nil {
		return err
	}
	if given.Public != nil && *given.Public != a.Public && !c.Caller.Operator() {
		return errPublic
	}
	a, err = c.Cloud.Appliances.Change(ctx, a.Name, cluster.ApplianceChange(given), base)
	if err != nil {
		return mismatch(err, base)
	}
	return c.tagged(http.StatusOK, a.Generation, a)
}

func removeAppliance(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	a, err := appliance(ctx, c, true)
	if err != nil {
		return err
	}
	if err := c.Cloud.Appliances.Remove(ctx, a.Name); err != nil {
		return used(err)
	}
	return c.nothing()
}

func listImplementations(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	a, err := appliance(ctx, c, false)
	if err != nil {
		return err
	}
	all, err := c.Cloud.Appliances.Implementations(ctx, a.Name)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.ImplementationList{Implementations: append([]cluster.Implementation{}, all...)})
}

// implementation finds the implementation that the path names, of an appliance that the caller may use.
func implementation(ctx context.Context, c Call, write bool) (cluster.Implementation, error) {
	a, err := appliance(ctx, c, write)
	if err != nil {
		return cluster.Implementation{}, err
	}
	all, err := c.Cloud.Appliances.Implementations(ctx, a.Name)
	if err != nil {
		return cluster.Implementation{}, err
	}
	id := c.R.PathValue("id")
	i := slices.IndexFunc(all, func(i cluster.Implementation) bool { return string(i.ID) == id })
	if i < 0 {
		return cluster.Implementation{}, api.NewProblem(api.NotFound,
			"appliance "+a.Name+" has no implementation "+api.Clip(id))
	}
	return all[i], nil
}

func addImplementation(c Call) error {
	var given api.NewImplementation
	if err := c.Body(&given); err != nil {
		return err
	}
	ctx, cancel := c.Brief()
	defer cancel()
	a, err := appliance(ctx, c, true)
	if err != nil {
		return err
	}
	made, err := c.Cloud.Appliances.AddImplementation(ctx, given.Plain(a.Name))
	if err != nil {
		return told(err)
	}
	c.W.Header().Set("Location", "/v1/appliances/"+a.Name+"/implementations/"+string(made.ID))
	return c.answer(http.StatusCreated, made)
}

func getImplementation(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := implementation(ctx, c, false)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, have)
}

func changeImplementation(c Call) error {
	var given api.ImplementationChange
	if err := c.Body(&given); err != nil {
		return err
	}
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := implementation(ctx, c, true)
	if err != nil {
		return err
	}
	have, err = c.Cloud.Appliances.EnableImplementation(ctx, have.Appliance, have.ID, given.Enabled)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, have)
}

func removeImplementation(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := implementation(ctx, c, true)
	if err != nil {
		return err
	}
	if err := c.Cloud.Appliances.RemoveImplementation(ctx, have.Appliance, have.ID); err != nil {
		return used(err)
	}
	return c.nothing()
}
