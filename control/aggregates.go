package control

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"croft"
	"croft/cloud"
	"croft/control/actions"
	"croft/control/api"
	"croft/internal/nearest"
	"croft/schedule"
)

// aggregate returns an aggregate as the caller may see it: its hosts and generation are visible to operators only.
func aggregate(c *call, a croft.Aggregate) croft.Aggregate {
	if !c.caller.Operator() {
		a.Hosts, a.Generation = []croft.HostID{}, 0
	}
	return a
}

// aggregates returns the aggregates that the caller sees, sorted by name.
func aggregates(ctx context.Context, c *call) ([]croft.Aggregate, error) {
	all, err := c.Cloud.Aggregates.List(ctx)
	seen := []croft.Aggregate{}
	for _, a := range all {
		if a.Public || c.caller.Operator() {
			seen = append(seen, aggregate(c, a))
		}
	}
	return seen, err
}

func listAggregates(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := aggregates(ctx, c)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.AggregateList{Aggregates: all})
}

// errNoAggregate is the answer about an aggregate that does not exist or that the caller does not see.
func errNoAggregate(name string, seen []croft.Aggregate) error {
	var names []string
	for _, a := range seen {
		names = append(names, a.Name)
	}
	name = api.Clip(name)
	return api.NewProblem(api.NotFound, "there is no aggregate "+name+nearest.Hint(name, names))
}

func getAggregate(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	seen, err := aggregates(ctx, c)
	if err != nil {
		return err
	}
	name := c.r.PathValue("name")
	i := slices.IndexFunc(seen, func(a croft.Aggregate) bool { return a.Name == name })
	if i < 0 {
		return errNoAggregate(name, seen)
	}
	return answerAggregate(c, http.StatusOK, seen[i])
}

func answerAggregate(c *call, status int, a croft.Aggregate) error {
	if c.caller.Operator() {
		api.Tag(c.w.Header(), a.Generation)
	}
	return c.answer(status, a)
}

// hostsNamed returns the hosts with these names or UUIDs.
func hostsNamed(ctx context.Context, c *call, names []string) (all []croft.HostID, err error) {
	for _, name := range names {
		id, err := cloud.HostCalled(ctx, c.Cloud.Hosts, name)
		if err != nil {
			return nil, err
		}
		all = append(all, id)
	}
	return all, nil
}

func createAggregate(c *call) error {
	var given api.NewAggregate
	if err := c.body(&given); err != nil {
		return err
	}
	c.action.about("", actions.Object{Kind: actions.Aggregate, Name: given.Name})
	if err := croft.CheckAggregateName(given.Name); err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	hosts, err := hostsNamed(ctx, c, given.Hosts)
	if err != nil {
		return err
	}
	a, err := c.Cloud.Aggregates.Create(ctx, croft.Aggregate{Name: given.Name, Note: given.Note, Public: given.Public,
		Hosts: hosts})
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.NameTaken, err.Error())
	}
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", "/v1/aggregates/"+a.Name)
	return answerAggregate(c, http.StatusCreated, a)
}

func changeAggregate(c *call) error {
	var given api.AggregateChange
	if err := c.body(&given); err != nil {
		return err
	}
	name := c.r.PathValue("name")
	if err := croft.CheckAggregateName(name); err != nil {
		return err
	}
	change := croft.AggregateChange{Note: given.Note, Public: given.Public}
	var err error
	if change.Generation, err = api.Match(c.r.Header); err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	if change.Add, err = hostsNamed(ctx, c, given.AddHosts); err != nil {
		return err
	}
	if change.Remove, err = hostsNamed(ctx, c, given.RemoveHosts); err != nil {
		return err
	}
	a, err := c.Cloud.Aggregates.Change(ctx, name, change)
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	if err != nil {
		return err
	}
	return answerAggregate(c, http.StatusOK, a)
}

func removeAggregate(c *call) error {
	base, err := api.Match(c.r.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	err = c.Cloud.Aggregates.Remove(ctx, c.r.PathValue("name"), base)
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	if err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkBounds refuses bounds that the caller does not see. Tenants see no locations, and only public aggregates.
func checkBounds(c *call, all []croft.Bound) error {
	if len(all) == 0 || c.caller.Operator() {
		return nil
	}
	ctx, cancel := c.brief()
	defer cancel()
	seen, err := aggregates(ctx, c)
	if err != nil {
		return err
	}
	for _, name := range croft.NamesIn(all) {
		if !slices.ContainsFunc(seen, func(a croft.Aggregate) bool { return a.Name == name }) {
			return errNoAggregate(name, seen)
		}
	}
	return nil
}

// checkFilters removes the host filters that the caller may not use: a property that the caller may not read counts as
// absent.
func checkFilters(c *call, r *schedule.Request) (err error) {
	ctx, cancel := c.brief()
	defer cancel()
	r.Where, r.WhereNot = slices.Concat(r.Query.Where, r.Where), slices.Concat(r.Query.WhereNot, r.WhereNot)
	r.Query.Where, r.Query.WhereNot = nil, nil
	r.Where, r.WhereNot, r.Hidden, err = c.Objects.ForHosts(ctx, c.caller, r.Where, r.WhereNot)
	return err
}
