package control

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"croft"
	"croft/control/api"
	"croft/control/bodies"
	"croft/control/federation"
	"croft/internal/httpapi"
	"croft/schedule"
	"croft/tenant"
	"croft/tenant/access"
)

// call is one request: the operation, its caller, and the scope of projects that the caller sees.
type call struct {
	*Server
	operation *Operation
	w         http.ResponseWriter
	r         *http.Request
	query     url.Values
	caller    access.Caller
	scope     access.Scope
	project   croft.Project   // of the request, else the caller's; empty: an operator who names none
	identity  croft.ProjectID // of project, when the request was admitted
	action    action
	status    int                   // of the answer; 0: as the operation declares
	untagged  bool                  // the caller does not see the generation of the result
	upgraded  bool                  // the connection has been answered as a WebSocket
	peer      *federation.Partition // the peer to forward the request to; nil: this cloud answers it
}

// requestID returns the ID of the request, as its answer has it.
func (c *call) requestID() string { return c.w.Header().Get(api.RequestIDHeader) }

// answerTime bounds the work on a request that neither waits nor streams.
const answerTime = 30 * time.Second

// admit refuses unknown parameters, and operations that the authenticated caller may not do.
func (c *call) admit() (err error) {
	if c.query, err = api.Query(c.operation.Parameters, c.r.URL.RawQuery); err != nil ||
		c.operation.Open {
		return err
	}
	if err = c.permit(); err != nil && c.learnRoles() {
		err = c.permit()
	}
	return err
}

// learnRoles reports whether the roles of a member of a project have changed since the request started, for example
// because another server changed them. Tokens keep the roles that they were created with.
func (c *call) learnRoles() bool {
	was := c.caller
	if was.Operator() || was.Project == "" || was.Token != "" || was.Host != "" || was.Peer != "" {
		return false
	}
	ctx, cancel := c.brief()
	defer cancel()
	if was.Refresh(ctx, was.Project) != nil {
		return false
	}
	now, ok, err := c.Callers.Authenticate(ctx, c.r)
	if err != nil || !ok || now.User != was.User || now.Project != was.Project || slices.Equal(now.Roles, was.Roles) {
		return false
	}
	c.caller = now
	return true
}

// permit finds the project of the request, and refuses operations that the caller may not do there.
func (c *call) permit() (err error) {
	c.scope = c.caller.Scope()
	c.project = c.caller.Project
	if given := croft.Project(cmp.Or(c.r.PathValue("project"), c.query.Get("project"))); given != "" {
		if c.project, err = c.sees(given); err != nil {
			return err
		}
		if err := c.checkExists(); err != nil {
			return err
		}
	}
	c.identity = c.caller.Identity(c.project)
	c.action.project = c.project
	if c.operation.Home {
		c.action.project = c.home()
	}
	return c.authorize(c.project)
}

// sees resolves a project name to a project that the caller sees. It refreshes the tree of projects if the tree lacks
// the project, because this server or another one may have just created it.
func (c *call) sees(given croft.Project) (croft.Project, error) {
	named := c.called(given)
	if named.Check() == nil && !c.scope.Sees(named) && c.caller.Has(access.ProjectAdmin) && c.caller.Project != "" {
		ctx, cancel := c.brief()
		defer cancel()
		below := c.caller.Project.Below(given)
		if err := c.caller.Refresh(ctx, given); err != nil {
			return "", err
		}
		if below.Check() == nil && below != given {
			if err := c.caller.Refresh(ctx, below); err != nil {
				return "", err
			}
		}
		c.scope = c.caller.Scope()
		named = c.called(given)
	}
	if named.Check() != nil || !c.scope.Sees(named) {
		return "", api.NewProblem(api.NotFound, "there is no such project, or it is not yours"+
			tenant.Hint(croft.Project(api.Clip(string(given))), c.scope.Projects()))
	}
	return named, nil
}

// checkExists refuses a change by an operator in a project that does not exist: its name may be a typing mistake, and
// what it makes would be outside the limits of the intended project. Two kinds of names stay usable without a project:
// all while the cloud has no projects, and the ones that have instances. Removals are always accepted. NotFound.
func (c *call) checkExists() error {
	p := c.project
	if !c.caller.Operator() || c.query.Get("project") == "" || p == croft.DefaultProject ||
		c.caller.Identity(p) != "" || c.operation.Method == http.MethodGet || c.operation.Method == http.MethodDelete {
		return nil
	}
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Projects.List(ctx, c.scope)
	if err != nil {
		return err
	}
	var names []croft.Project
	for _, known := range all {
		if known.Name == p {
			return nil
		}
		if known.Name != croft.DefaultProject {
			names = append(names, known.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	used, _, err := c.Cloud.Instances.Page(ctx, p, "", 1)
	if err != nil || len(used) > 0 {
		return err
	}
	return tenant.NotFound(p, names)
}

// called returns the project that the caller means by a name: a visible project with that full name, else the one below
// the caller's project. The admin who created a project may omit the parent's name.
func (c *call) called(name croft.Project) croft.Project {
	below := c.caller.Project.Below(name)
	if c.caller.Project != "" && !c.scope.Sees(name) && c.scope.Sees(below) {
		return below
	}
	return name
}

// recognize authenticates the caller, and rate-limits callers other than operators.
func (c *call) recognize(ctx context.Context) error {
	caller, ok, err := c.Callers.Authenticate(ctx, c.r)
	if err == nil && !ok {
		err = access.ErrNoCredentials
	}
	if err != nil {
		return err
	}
	c.caller = caller
	if caller.Operator() {
		c.action.begin(c)
		return nil
	}
	if ok, wait := c.limits.Allow(caller.Project, caller.Via+" "+caller.User, cost(c.r)); !ok {
		c.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		p := api.NewProblem(api.Busy,
			"these credentials, or all of the project together, ask too often: wait, then ask more slowly")
		p.Status, p.Title = http.StatusTooManyRequests, http.StatusText(http.StatusTooManyRequests)
		return p
	}
	c.action.begin(c)
	return nil
}

// weighed is the number of bytes of a body that cost as much as one request without a body.
const weighed = 16 << 10

// cost returns the weight of a request for the rate limit, because reading and checking a large body takes as long as
// many small ones. A body of unknown length counts as one of the maximum length.
func cost(r *http.Request) int {
	n := r.ContentLength
	if n < 0 || n > bodies.Max {
		n = bodies.Max
	}
	return 1 + int(n/weighed)
}

// authorize refuses the operation on objects of a project unless the caller's roles permit it. Callers who may not see
// hosts get NotFound for them.
func (c *call) authorize(project croft.Project) error {
	err := access.Authorize(c.caller, c.operation.access(), project)
	if errors.Is(err, croft.Denied) && c.operation.hidden() {
		return errNoHosts
	}
	return err
}

// recheck is the interval at which the credentials of a long request are checked again.
const recheck = 5 * time.Second

// lasting returns the context of a long request. The context ends when the client disconnects or its credentials become
// invalid.
func (c *call) lasting() (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(c.r.Context())
	var check sync.WaitGroup
	check.Go(func() {
		if access.StillKnown(ctx, c.Callers, c.r, c.caller, recheck) != nil {
			cancel()
		}
	})
	return ctx, func() { cancel(); check.Wait() }
}

// lastingFor is lasting for a stream of an instance. The context also ends when the instance is gone or replaced, or
// when still, if not nil, returns false for its status: from then on its UUID or address may belong to another
// instance.
func (c *call) lastingFor(st croft.Status, still func(now croft.Status) bool) (_ context.Context, end func()) {
	ctx, endLasting := c.lasting()
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		defer cancel()
		lost := func(now *croft.Status) (bool, error) {
			return now == nil || still != nil && !still(*now), ctx.Err()
		}
		_ = c.Cloud.Scheduler.Wait(ctx, st.Instance, lost, nil) // whatever it returns, nothing watches the instance now
	})
	return ctx, func() { cancel(); watch.Wait(); endLasting() }
}

// checkSame refuses to use a stream that a host opened for an instance if the UUID has passed to another instance since
// st was read, because hosts identify instances by UUID alone.
func (c *call) checkSame(st croft.Status, still func(now croft.Status) bool) error {
	ctx, cancel := c.brief()
	defer cancel()
	now, err := c.Cloud.Scheduler.View.FindByID(ctx, st.Instance.ID)
	if errors.Is(err, croft.NotFound) || err == nil && schedule.Replaced(st.Instance, now.Instance) {
		return api.Hidden("instance", c.r.PathValue("id"))
	}
	if err == nil && still != nil && !still(now) {
		return api.NewProblem(api.BadState, "instance "+st.Instance.Name+" changed meanwhile: it is "+
			schedule.Describe(&now))
	}
	return err
}

// errRevoked is the answer to a request whose credentials became invalid while it waited. Changes that it ordered
// remain ordered.
var errRevoked error = api.NewProblem(api.Unauthenticated, "the credentials count no more")

// errNoHosts is the answer about hosts to callers who may not see them.
var errNoHosts error = api.NewProblem(api.NotFound, "there are no hosts here: they are for operators")

// errNothing is the answer at paths that no operation has.
var errNothing = api.NewProblem(api.NotFound, "there is nothing at this path; /openapi.json lists all paths")

// brief returns a context with the time limit for work that neither waits nor streams.
func (c *call) brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.r.Context(), answerTime)
}

// home returns the project of the objects that the request creates or names.
func (c *call) home() croft.Project {
	if c.project == "" {
		return croft.DefaultProject
	}
	return c.project
}

// body reads, checks and decodes the request's body. If the client takes long to send it, the request is admitted again
// afterwards, because its credentials may have been revoked or its project removed meanwhile.
func (c *call) body(into any) error {
	began := time.Now()
	text, err := httpapi.ReadBody(c.w, c.r, bodies.Max, 0)
	if err != nil {
		return err
	}
	if err := c.still(time.Since(began) > quickBody); err != nil {
		return err
	}
	return bodies.Of(reflect.TypeOf(into).Elem()).Decode(text, into)
}

// quickBody is the longest time that reading a body may take without a second check of the credentials.
const quickBody = time.Second

// still returns an error unless the project of the request is the one for which it was admitted. With credentials set,
// it also checks that they still authenticate the same caller.
func (c *call) still(credentials bool) error {
	if credentials {
		ctx, cancel := c.brief()
		defer cancel()
		if err := access.Still(ctx, c.Callers, c.r, c.caller); err != nil {
			return err
		}
	}
	if c.identity != "" && c.caller.Identity(c.project) != c.identity && (credentials || !c.readmit()) {
		return api.NewProblem(api.NotFound, "the project "+string(c.project)+" was removed while the request was sent")
	}
	return nil
}

// readmit admits the request to the project that has the name now, if the caller may do the operation there too. When
// the request was admitted, the tree of projects may have been behind the store.
func (c *call) readmit() bool {
	now := c.caller.Identity(c.project)
	c.scope = c.caller.Scope()
	if now == "" || !c.scope.Sees(c.project) || c.project == c.caller.Project && now != c.caller.ProjectID ||
		c.authorize(c.project) != nil {
		return false
	}
	c.identity = now
	return true
}

// identityOf returns the identity of a project that the caller sees; empty: it has no record. If the tree of projects
// lacks the identity, it reads the store, because the tree may not have followed the creation of the project yet.
func (c *call) identityOf(p croft.Project) (croft.ProjectID, error) {
	if p == c.caller.Project && c.caller.ProjectID != "" {
		return c.caller.ProjectID, nil
	}
	if id := c.caller.Identity(p); id != "" {
		return id, nil
	}
	ctx, cancel := c.brief()
	defer cancel()
	id, _, err := c.stored(ctx, p)
	return id, err
}
