package control

import (
	"cmp"
	"context"
	"errors"
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
func listDistances(ctx context.Context, c *call, _ nothing) (list api.DistanceList, err error) {
	all, err := c.Cloud.Distances.List(ctx)
	if err != nil {
		return list, err
	}
	sees, _, err := public(ctx, c)
	if err != nil {
		return list, err
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
	return api.DistanceList{Types: all}, nil
}

func getDistance(ctx context.Context, c *call, in api.DistanceBetween) (found croft.Between, err error) {
	sees, seen, err := public(ctx, c)
	if err != nil {
		return found, err
	}
	for _, name := range []string{in.A, in.B} {
		if !sees(name) {
			return found, errNoAggregate(name, seen)
		}
	}
	kind := cmp.Or(in.Type, croft.FailureDistance)
	found, err = c.Cloud.Distances.Between(ctx, kind, in.A, in.B)
	if err == nil && !found.Stated && !c.caller.Operator() { // it would reveal where hosts are
		err = api.NewProblem(api.NotFound, "no distance of type "+kind+" is stated between "+api.Clip(in.A)+
			" and "+api.Clip(in.B))
	}
	return found, err
}

func setDistance(ctx context.Context, c *call, in api.NewDistance) (croft.Distances, error) {
	kind := cmp.Or(in.Type, croft.FailureDistance)
	c.action.about("", actions.DistancesOf(kind))
	stated := croft.Distance{A: in.A, B: in.B, Distance: in.Distance}
	base, err := distancesBase(ctx, c, kind, in.Base)
	if err != nil {
		return croft.Distances{}, err
	}
	now, err := c.Cloud.Distances.Set(ctx, kind, stated, base)
	return croft.Distances{Type: kind, Distances: []croft.Distance{stated}, Generation: now}, err
}

// distancesBase returns the generation that a change of the distances of a type has to find; nil: any.
func distancesBase(ctx context.Context, c *call, kind string, m api.Match) (*int64, error) {
	return base(m, func() (int64, error) {
		all, err := c.Cloud.Distances.List(ctx)
		if err != nil {
			return 0, err
		}
		for _, stated := range all {
			if stated.Type == kind {
				return stated.Generation, nil
			}
		}
		return 0, croft.Errorf(croft.NotFound, "no distances of type %s are stated", kind)
	})
}

// checkNear refuses affinities to names that the caller does not see. Tenants see only instances of their projects and
// public aggregates.
func checkNear(c *call, r schedule.Request) error {
	near := r.Query.Near
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
		st, err := c.Cloud.Scheduler.View.Find(ctx, r.Project, n.To)
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
