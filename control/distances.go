package control

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/schedule"
)

// public returns a function that reports whether the caller may know a name that occurs in distances.
func public(ctx context.Context, c *call) (func(name string) bool, []croft.Aggregate, error) {
	seen, err := aggregates(ctx, c)
	return func(name string) bool {
		return c.caller.Operator() || slices.ContainsFunc(seen, func(a croft.Aggregate) bool { return a.Name == name })
	}, seen, err
}

// listDistances lists the types of distances. Callers other than operators see only the distances between public
// aggregates.
func listDistances(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Distances.List(ctx)
	if err != nil {
		return err
	}
	sees, _, err := public(ctx, c)
	if err != nil {
		return err
	}
	for i := range all {
		if c.caller.Operator() {
			continue
		}
		all[i].Generation = 0
		all[i].Distances = slices.DeleteFunc(all[i].Distances, func(d croft.Distance) bool {
			return !sees(d.A) || !sees(d.B)
		})
	}
	return c.answer(http.StatusOK, api.DistanceList{Types: all})
}

// kindOf returns the type of distances in the query.
func kindOf(c *call) string { return cmp.Or(c.query.Get("type"), croft.FailureDistance) }

func getDistance(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	sees, seen, err := public(ctx, c)
	if err != nil {
		return err
	}
	kind, a, b := kindOf(c), c.query.Get("a"), c.query.Get("b")
	for _, name := range []string{a, b} {
		if !sees(name) {
			return errNoAggregate(name, seen)
		}
	}
	found, err := c.Cloud.Distances.Between(ctx, kind, a, b)
	if err != nil {
		return err
	}
	if !found.Stated && !c.caller.Operator() { // it would reveal where hosts are
		return api.NewProblem(api.NotFound, "no distance of type "+kind+" is stated between "+api.Clip(a)+
			" and "+api.Clip(b))
	}
	return c.answer(http.StatusOK, found)
}

func setDistance(c *call) error {
	var given api.NewDistance
	if err := c.body(&given); err != nil {
		return err
	}
	kind := cmp.Or(given.Type, croft.FailureDistance)
	c.action.about("", actions.DistancesOf(kind))
	base, err := api.Match(c.r.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	stated := croft.Distance{A: given.A, B: given.B, Distance: given.Distance}
	now, err := c.Cloud.Distances.Set(ctx, kind, stated, base)
	if base != nil && errors.Is(err, croft.Conflict) { // without a generation: a name that two hosts have
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	if err != nil {
		return err
	}
	api.Tag(c.w.Header(), now)
	return c.answer(http.StatusOK, croft.Distances{Type: kind, Distances: []croft.Distance{stated},
		Generation: now})
}

func removeDistance(c *call) error {
	kind := kindOf(c)
	c.action.about("", actions.DistancesOf(kind))
	base, err := api.Match(c.r.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	err = c.Cloud.Distances.Remove(ctx, kind, c.query.Get("a"), c.query.Get("b"), base)
	if base != nil && errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	if err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkNear refuses affinities to names that the caller does not see. Tenants see only instances of their projects and
// public aggregates.
func checkNear(c *call, r schedule.Request) error {
	near := slices.Concat(r.Query.Near, r.Near)
	if len(near) == 0 || c.caller.Operator() {
		return nil
	}
	ctx, cancel := c.brief()
	defer cancel()
	sees, _, err := public(ctx, c)
	if err != nil {
		return err
	}
	for _, n := range near {
		st, err := c.Cloud.Instances.Find(ctx, r.Project, n.To)
		switch {
		case err == nil && c.scope.Sees(st.Instance.Project):
		case err != nil && !errors.Is(err, croft.NotFound) && !errors.Is(err, croft.Invalid):
			return err
		case err == nil || !sees(n.To):
			return api.Hidden("instance", n.To)
		}
	}
	return nil
}
