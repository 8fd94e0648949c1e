package control

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/internal/nearest"
	"croft/schedule"
	"croft/schedule/topology"
	"croft/tenant/access"
)

var aggregateOperations = noun{Tag: "aggregates",
	Description: "Sets of hosts that operators have named, for requests to choose among. They have nothing to do " +
		"with groups, which are instances of a project.",
	Operations: []Operation{
		// Callers other than operators see only public aggregates, without hosts.
		list(Operation{ID: "listAggregates", At: "GET /v1/aggregates", May: access.EveryHuman,
			Summary:     "List the aggregates of hosts that requests may name",
			Description: "By name. Operators see all, others the public ones, without hosts."},
			func(ctx context.Context, c *call, _ nothing) (list api.AggregateList, err error) {
				list.Aggregates, err = aggregates(ctx, c)
				return list, err
			}),
		do(Operation{ID: "createAggregate", At: "POST /v1/aggregates", May: access.Operates,
			Summary: "Put hosts together under a name", Status: http.StatusCreated, Conflict: api.NameTaken,
			Fails: []int{http.StatusNotFound}},
			createAggregate),
		do(Operation{ID: "getAggregate", At: "GET /v1/aggregates/{name}", May: access.EveryHuman,
			Summary: "Get an aggregate"}, getAggregate),
		do(Operation{ID: "changeAggregate", At: "PATCH /v1/aggregates/{name}", May: access.Operates,
			Summary: "Change an aggregate, as a whole or not at all",
			Description: "To add a host that is in it, or to remove one that is not, changes nothing. Instances " +
				"stay where they are.",
			Conflict: api.GenerationMismatch}, changeAggregate),
		do(Operation{ID: "removeAggregate", At: "DELETE /v1/aggregates/{name}", May: access.Operates,
			Summary: "Remove an aggregate; its hosts stay", Conflict: api.GenerationMismatch},
			func(ctx context.Context, c *call, in api.AggregateRemoval) (nothing, error) {
				base, err := aggregateBase(ctx, c, in.Name, in.Base)
				if err != nil {
					return nothing{}, err
				}
				return nothing{}, c.Cloud.Aggregates.Remove(ctx, in.Name, base)
			}),
		// Callers other than operators see only the distances between public aggregates.
		list(Operation{ID: "listDistances", At: "GET /v1/distances", May: access.EveryHuman, Object: actions.Distances,
			Summary: "List the distances that operators have stated",
			Description: "By type. Operators see all, others the types and the distances between public " +
				"aggregates."}, listDistances),
		do(Operation{ID: "setDistance", At: "PUT /v1/distances", May: access.Operates, Object: actions.Distances,
			Fails:       []int{http.StatusNotFound},
			Summary:     "State a distance between two aggregates, locations or hosts, either way",
			Description: "It replaces what was stated between these two. Instances stay where they are."}, setDistance),
		do(Operation{ID: "removeDistance", At: "DELETE /v1/distances", May: access.Operates,
			Object: actions.Distances, Summary: "Remove a stated distance"},
			func(ctx context.Context, c *call, in api.DistanceRemoval) (nothing, error) {
				kind := cmp.Or(in.Type, croft.FailureDistance)
				c.action.about("", actions.DistancesOf(kind))
				base, err := distancesBase(ctx, c, kind, in.Base)
				if err != nil {
					return nothing{}, err
				}
				return nothing{}, c.Cloud.Distances.Remove(ctx, kind, in.A, in.B, base)
			}),
		do(Operation{ID: "getDistance", At: "GET /v1/distances/between", May: access.EveryHuman,
			Fails:  []int{http.StatusNotFound},
			Object: actions.Distances, Summary: "Get the distance between two aggregates, locations or hosts",
			Description: "Of the distances stated for the two or for what holds them, the distance of the most " +
				"explicit pair counts. Where none of type failure is stated, it follows from locations; for " +
				"tenants only those exist that are stated."}, getDistance),
	},
}

// aggregate returns an aggregate as the caller may see it: its hosts and generation are visible to operators only.
func aggregate(c *call, a croft.Aggregate) croft.Aggregate {
	if !c.caller.Operator() {
		a.Hosts, a.Generation = []croft.HostID{}, 0
		c.untagged = true
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

// errNoAggregate is the answer about an aggregate that does not exist or that the caller does not see.
func errNoAggregate(name string, seen []croft.Aggregate) error {
	var names []string
	for _, a := range seen {
		names = append(names, a.Name)
	}
	name = api.Clip(name)
	return api.NewProblem(api.NotFound, "there is no aggregate "+strconv.Quote(name)+nearest.Hint(name, names))
}

func getAggregate(ctx context.Context, c *call, in api.AggregateNamed) (croft.Aggregate, error) {
	seen, err := aggregates(ctx, c)
	if err != nil {
		return croft.Aggregate{}, err
	}
	i := slices.IndexFunc(seen, func(a croft.Aggregate) bool { return a.Name == in.Name })
	if i < 0 {
		return croft.Aggregate{}, errNoAggregate(in.Name, seen)
	}
	return seen[i], nil
}

// hostsNamed returns the hosts with these names or UUIDs.
func hostsNamed(ctx context.Context, c *call, names []string) (all []croft.HostID, err error) {
	for _, name := range names {
		h, err := c.Cloud.Fleet.Record(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, h.ID)
	}
	return all, nil
}

func createAggregate(ctx context.Context, c *call, in api.NewAggregate) (a croft.Aggregate, err error) {
	c.action.about("", actions.Object{Kind: actions.Aggregate, Name: in.Name})
	if err := croft.CheckAggregateName(in.Name); err != nil {
		return a, err
	}
	a = croft.Aggregate{Name: in.Name, Note: in.Note, Public: in.Public}
	if a.Hosts, err = hostsNamed(ctx, c, in.Hosts); err != nil {
		return a, err
	}
	if err := checkNoSite(ctx, c, a.Name); err != nil {
		return a, err
	}
	c.w.Header().Set("Location", "/v1/aggregates/"+a.Name)
	return c.Cloud.Aggregates.Create(ctx, a)
}

// checkNoSite refuses the name of a site for an aggregate, because a request with this name means the location.
func checkNoSite(ctx context.Context, c *call, name string) error {
	all, err := c.Cloud.Fleet.Records(ctx)
	for _, h := range all {
		if path, unplaced := topology.Of(h); unplaced == nil && path.At(croft.LevelSite).String() == name {
			return croft.Errorf(croft.Conflict,
				"%s is a site: requests may name it already; choose another name for the aggregate", name)
		}
	}
	return err
}

func changeAggregate(ctx context.Context, c *call, in api.AggregateChange) (a croft.Aggregate, err error) {
	if err := croft.CheckAggregateName(in.Name); err != nil {
		return a, err
	}
	change := croft.AggregateChange{Note: in.Note, Public: in.Public}
	if change.Generation, err = aggregateBase(ctx, c, in.Name, in.Base); err != nil {
		return a, err
	}
	if change.Add, err = hostsNamed(ctx, c, in.AddHosts); err != nil {
		return a, err
	}
	if change.Remove, err = hostsNamed(ctx, c, in.RemoveHosts); err != nil {
		return a, err
	}
	return c.Cloud.Aggregates.Change(ctx, in.Name, change)
}

// aggregateBase returns the generation that a change of an aggregate has to find; nil: any.
func aggregateBase(ctx context.Context, c *call, name string, m api.Match) (*int64, error) {
	return base(m, func() (int64, error) {
		a, err := c.Cloud.Aggregates.Find(ctx, name)
		return a.Generation, err
	})
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
	q := &r.Query
	q.Where, q.WhereNot, r.Hidden, err = c.Objects.ForHosts(ctx, c.caller, q.Where, q.WhereNot)
	return err
}
