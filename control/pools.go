package control

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/internal/lazyregexp"
	pools "croft/pool/api"
	"croft/tenant/access"
)

var poolOperations = noun{Tag: "pools",
	Description: "Pools keep resources ready before anybody asks. A caller sees the pools of its projects, and of " +
		"shared ones what takes only the right to use them. What names a pool's settings and looks after it is " +
		"the manager of pools, which only operators reach. While none acts, these operations and those of tickets " +
		"answer 503 backend_down.",
	Operations: []Operation{
		list(Operation{ID: "listPools", At: "GET /v1/pools", May: access.Reads,
			Summary:     "List the pools whose resources tickets of the project may have",
			Description: "In the order of the manager's file. For operators without a project, all pools."}, listPools),
		do(Operation{ID: "getPool", At: "GET /v1/pools/{name}", May: access.Reads, Summary: "Get a pool"},
			func(ctx context.Context, c *call, in api.PoolNamed) (pools.Pool, error) {
				p, _, err := findPool(ctx, c, in)
				return p, err
			}),
		do(Operation{ID: "changePool", At: "PATCH /v1/pools/{name}", May: access.Operates,
			Summary: "Change the size of a pool",
			Description: "What is given replaces the value in the manager's file, also across restarts and changes of " +
				"the file; null returns to the file's value. 409 bad_state if the file has the pool no more."}, changePool),
		list(Operation{ID: "listPoolResources", At: "GET /v1/pools/{name}/resources", May: access.Reads,
			Summary: "List the resources of a pool",
			Description: "By number. Of the resources that tickets have, only the ones of the caller's projects; " +
				"the others of pools of the caller's projects alone. What they hand out is in the answers about " +
				"tickets."}, listPoolResources),
		// The log contains commands of operators, who may not have considered readers.
		stream(Operation{ID: "getResourceLog", At: "GET /v1/pools/{name}/resources/{resource}/log", May: access.Manages,
			Media:       bytesMedia,
			Summary:     "Read what the commands of a resource printed",
			Description: "For admins of the project whose pool it is. Of a shared pool, for operators alone."},
			getResourceLog),
	},
}

// ErrNoPools is the answer about pools while no manager of pools acts in the cloud.
var ErrNoPools error = api.NewProblem(api.BackendDown,
	"no manager of pools acts in this cloud: try again, or have its operators start one (croft serve pool)")

// manager returns the client of the manager of pools.
func manager(c *call) (*pools.Client, error) {
	if c.Pools == nil {
		return nil, ErrNoPools
	}
	return c.Pools, nil
}

// fromManager converts an error of the manager to a Kind for callers of the API: if the manager refuses this server, or
// does not run, the fault is the cloud's and not the caller's, so the error is Unavailable.
func fromManager(err error) error {
	switch croft.KindOf(err) {
	case "", croft.Denied, croft.NoCapacity:
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			return croft.Errorf(croft.Unavailable, "ask the manager of pools: %w", err)
		}
	}
	return err
}

// namedWithin returns the scope in which the path names an object: the project of the request if it names one, else all
// projects that the caller sees.
func namedWithin(c *call) access.Scope {
	if c.query.Has("project") {
		return access.Within(c.project)
	}
	return c.scope
}

// ticketsIn returns a client restricted to the tickets in a scope.
func ticketsIn(c *call, scope access.Scope) (*pools.Client, error) {
	m, err := manager(c)
	if err != nil || scope.All() {
		return m, err
	}
	var projects []pools.ProjectRef
	for _, p := range scope.Projects() {
		id, err := c.identityOf(p)
		if err != nil {
			return nil, err
		}
		projects = append(projects, pools.ProjectRef{Name: p, ID: id})
	}
	return m.Within(projects...), nil
}

// owns reports whether a pool belongs to a project of a scope.
func owns(scope access.Scope, p pools.Pool) bool {
	return scope.All() || p.Project != "" && scope.Sees(croft.Project(p.Project))
}

// poolIn returns a pool as the caller may see it. False: the pool is hidden, because tickets of the projects in the
// scope cannot get its resources.
func poolIn(c *call, scope access.Scope, p pools.Pool) (pools.Pool, bool) {
	own := owns(scope, p)
	switch {
	case !own && !p.Shared:
		return p, false
	case c.caller.Operator():
	case own:
		p.Stock = withoutErrors(*p.Stock)
	default:
		p.Project, p.Stock = "", nil
	}
	return p, true
}

// withoutErrors keeps the time of a failed start but removes the error text, which names hosts or contains the output
// of a command.
func withoutErrors(s pools.Stock) *pools.Stock {
	s.LastError = ""
	if s.LastFailure != nil {
		f := *s.LastFailure
		f.Error, s.LastFailure = "", &f
	}
	return &s
}

func listPools(ctx context.Context, c *call, _ api.InProject) (list api.PoolList, err error) {
	m, err := manager(c)
	if err != nil {
		return list, err
	}
	all, err := m.Pools(ctx)
	list.Pools = []pools.Pool{}
	for _, p := range all {
		if shown, ok := poolIn(c, listed(c), p); ok {
			list.Pools = append(list.Pools, shown)
		}
	}
	return list, fromManager(err)
}

// findPool reads the pool that the path names. own: the pool belongs to a project of the request's scope.
func findPool(ctx context.Context, c *call, in api.PoolNamed) (shown pools.Pool, own bool, err error) {
	m, err := manager(c)
	if err != nil {
		return shown, false, err
	}
	name := in.Name
	all, err := m.Pools(ctx)
	if err != nil {
		return shown, false, fromManager(err)
	}
	i := slices.IndexFunc(all, func(p pools.Pool) bool { return p.Name == name })
	if i < 0 {
		return shown, false, api.Hidden("pool", name)
	}
	shown, ok := poolIn(c, namedWithin(c), all[i])
	if !ok {
		return shown, false, api.Hidden("pool", name)
	}
	if own = owns(namedWithin(c), all[i]); own {
		err = c.authorize(croft.Project(all[i].Project))
	}
	return shown, own, err
}

func changePool(ctx context.Context, c *call, in api.PoolChange) (shown pools.Pool, err error) {
	if shown, _, err = findPool(ctx, c, in.PoolNamed); err != nil {
		return shown, err
	}
	c.action.about(croft.Project(shown.Project), actions.Object{Kind: actions.Pool, Name: shown.Name})
	if shown, err = c.Pools.Resize(ctx, shown.Name, in.Size); err != nil {
		return shown, fromManager(err)
	}
	shown, _ = poolIn(c, namedWithin(c), shown)
	return shown, nil
}

// resourceIn returns a resource of a pool as the caller may see it, without its data, which only tickets contain.
func resourceIn(c *call, own bool, r pools.Resource) pools.Resource {
	if c.caller.Operator() {
		return r
	}
	r.Data, r.Facts, r.Sandbox, r.Reason, r.Error = nil, nil, "", "", ""
	if !own {
		r.Instance, r.Counters = "", nil
	}
	return r
}

// heldIn returns the resources that open tickets in a scope hold now.
func heldIn(ctx context.Context, c *call, scope access.Scope) (map[int64]bool, error) {
	m, err := ticketsIn(c, scope)
	if err != nil {
		return nil, err
	}
	list, err := m.Tickets(ctx, pools.Selection{})
	held := map[int64]bool{}
	for _, t := range list.Tickets {
		if t.Resource != nil && t.State == pools.TicketOpen {
			held[t.Resource.ID] = true
		}
	}
	return held, fromManager(err)
}

// seesResource reports whether a resource of a pool is visible to the caller. Resources from before the pool became
// exclusive to the present project are hidden.
func seesResource(c *call, own bool, p pools.Pool, r pools.Resource, held map[int64]bool) bool {
	return c.caller.Operator() || held[r.ID] || own && r.Ticket == 0 && r.ID >= p.First
}

func listPoolResources(ctx context.Context, c *call, in api.PoolResources) (list api.PoolResourceList, err error) {
	p, own, err := findPool(ctx, c, in.PoolNamed)
	if err != nil {
		return list, err
	}
	all, err := c.Pools.Resources(ctx, p.Name, own && in.All)
	if err != nil {
		return list, fromManager(err)
	}
	held, err := heldIn(ctx, c, namedWithin(c)) // after the resources, so that one given away meanwhile is hidden
	list.Resources = []pools.Resource{}
	for _, r := range all {
		if seesResource(c, own, p, r, held) {
			list.Resources = append(list.Resources, resourceIn(c, own, r))
		}
	}
	return list, err
}

// logHead matches the line above the output of one command, which names a file on the manager's machine.
var logHead = lazyregexp.New(`(?m)^==> /(?:.*/)?([^/\n]+) <==$`)

// getResourceLog answers with the output of a resource's commands, unless other projects may have used the resource.
func getResourceLog(c *call, in api.ResourceNamed) error {
	ctx, cancel := c.brief()
	defer cancel()
	p, own, err := findPool(ctx, c, in.PoolNamed)
	if err != nil {
		return err
	}
	if !own || p.Shared && !c.caller.Operator() {
		return api.Hidden("log in pool", p.Name)
	}
	name := in.Resource
	r, err := c.Pools.Resource(ctx, name)
	if errors.Is(err, croft.NotFound) || err == nil && r.Pool != p.Name {
		return api.Hidden("resource", name)
	}
	if err != nil {
		return fromManager(err)
	}
	held, err := heldIn(ctx, c, namedWithin(c))
	if err != nil {
		return err
	}
	if !seesResource(c, own, p, r, held) {
		return api.Hidden("resource", name)
	}
	text, err := c.Pools.Logs(ctx, strconv.FormatInt(r.ID, 10))
	if err != nil {
		return fromManager(err)
	}
	if !c.caller.Operator() {
		text = logHead.Get().ReplaceAll(text, []byte("==> $1 <=="))
	}
	c.begin()
	_, _ = c.w.Write(text) // ignore clients that disconnected
	return nil
}
