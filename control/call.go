package control

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"croft"
	"croft/access"
	"croft/control/api"
	"croft/control/bodies"
	"croft/federation"
	"croft/internal/httpapi"
	"croft/internal/nearest"
	"croft/schedule"
	"croft/tenant"
)

// call is one request: what is asked, by whom, and what the caller sees.
type call struct {
	*Server
	operation api.Operation
	w         http.ResponseWriter
	r         *http.Request
	query     url.Values
	caller    access.Caller
	scope     access.Scope
	project   croft.Project   // that of the request, else the caller's; empty: an operator names none
	identity  croft.ProjectID // of project, when the request was admitted
	action    action
	peer      *federation.Partition // to which the request is forwarded; nil: it is for this cloud
}

// answerTime bounds the work on a request that neither waits nor streams.
const answerTime = 30 * time.Second

// admit refuses what the caller, who is known, may not do or names wrongly.
func (c *call) admit() (err error) {
	if c.query, err = parameters(c.operation, c.r.URL.RawQuery); err != nil || c.operation.Open {
		return err
	}
	if err = c.permit(); err != nil && c.learnRoles() {
		err = c.permit()
	}
	return err
}

// learnRoles reports whether a member of a project has other roles than was known when the request began, as when
// another server changed them just now. Tokens keep the roles that they were made with.
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

// permit finds the project that the request is about, and refuses what the caller may not do there.
func (c *call) permit() (err error) {
	c.scope = c.caller.Scope()
	c.project = c.caller.Project
	if given := croft.Project(cmp.Or(c.r.PathValue("project"), c.query.Get("project"))); given != "" {
		if c.project, err = c.sees(given); err != nil {
			return err
		}
	}
	c.identity = c.caller.Identity(c.project)
	c.action.project = c.project
	if slices.Contains([]string{"instances", "keys", "tickets", "clusters", "credentials",
		"appliances"}, c.operation.Tag) {
		c.action.project = c.home()
	}
	return c.authorize(c.project)
}

// sees returns the project that the caller means by a name, if the caller sees it. One that is not in the tree of
// projects may have been created just now, at this server or another one.
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

// called returns the project that the caller means by a name: one that the caller sees, else one below the caller's, as
// the admin who created it called it.
func (c *call) called(name croft.Project) croft.Project {
	below := c.caller.Project.Below(name)
	if c.caller.Project != "" && !c.scope.Sees(name) && c.scope.Sees(below) {
		return below
	}
	return name
}

// recognize finds out who the caller is, and slows down those who ask too often.
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

// weighed is how many bytes of a body cost as much as a request without one.
const weighed = 16 << 10

// cost is as how many requests one counts: reading and checking a large body takes the server as long as many small
// ones. A body of unknown length counts as the longest.
func cost(r *http.Request) int {
	n := r.ContentLength
	if n < 0 || n > bodies.Max {
		n = bodies.Max
	}
	return 1 + int(n/weighed)
}

// authorize refuses the operation on things of a project unless the caller's roles permit it. Hosts do not exist for
// those who may not see them.
func (c *call) authorize(project croft.Project) error {
	err := access.Authorize(c.caller, access.Operation(c.operation.ID), project)
	if errors.Is(err, croft.Denied) && c.operation.Tag == "hosts" {
		return errNoHosts
	}
	return err
}

// recheck is how often the credentials of a request that goes on for long are looked at again.
const recheck = 5 * time.Second

// lasting is the context of a request that goes on until the client goes, or its credentials count no more.
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

// lastingFor is lasting for a stream of an instance. It ends also when the instance is gone or has been replaced, and
// once still, if it is not nil, is false of its status: what follows at its UUID or address belongs to another
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
		_ = c.Cloud.Instances.Wait(ctx, st.Instance, lost, nil) // whatever it says, nothing watches the instance now
	})
	return ctx, func() { cancel(); watch.Wait(); endLasting() }
}

// checkSame refuses to go on with what a host opened for an instance if the UUID has passed to another instance since
// st was read: hosts know UUIDs alone.
func (c *call) checkSame(st croft.Status, still func(now croft.Status) bool) error {
	ctx, cancel := c.brief()
	defer cancel()
	now, err := c.Cloud.Instances.FindByID(ctx, st.Instance.ID)
	if errors.Is(err, croft.NotFound) || err == nil && schedule.Replaced(st.Instance, now.Instance) {
		return api.Hidden("instance", c.r.PathValue("id"))
	}
	if err == nil && still != nil && !still(now) {
		return api.NewProblem(api.BadState, "instance "+st.Instance.Name+" changed meanwhile: it is "+
			schedule.Describe(&now))
	}
	return err
}

// errRevoked is the answer to a request whose credentials ended while it waited. What it ordered stays ordered.
var errRevoked error = api.NewProblem(api.Unauthenticated, "the credentials count no more")

// errNoHosts is the answer about hosts for those who may not see them.
var errNoHosts error = api.NewProblem(api.NotFound, "there are no hosts here: they are for operators")

// errNothing is the answer at paths that the document does not have.
var errNothing = api.NewProblem(api.NotFound, "there is nothing at this path; /openapi.json lists all paths")

// brief bounds work that neither waits nor streams.
func (c *call) brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.r.Context(), answerTime)
}

// home is the project of what the request makes or names.
func (c *call) home() croft.Project {
	if c.project == "" {
		return croft.DefaultProject
	}
	return c.project
}

// body reads, checks and decodes the request's body. A client may take its time to send it, so the request is
// admitted again afterwards: its credentials may have been revoked meanwhile, or its project removed.
func (c *call) body(into any) error {
	began := time.Now()
	text, err := httpapi.ReadBody(c.w, c.r, bodies.Max, 0)
	if err != nil {
		return err
	}
	if err := c.still(time.Since(began) > quickBody); err != nil {
		return err
	}
	return c.bodies[c.operation.ID].Decode(text, into)
}

// quickBody is how long a body takes at most after which the credentials of the request need no second look.
const quickBody = time.Second

// still returns an error unless the project of the request is the same one as when it was admitted and, if asked for,
// its credentials still make its sender what it was then.
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

// readmit admits the request to the project that has the name now, if the caller may do the operation there too: when
// the request was admitted, the tree of projects may have been behind what was stored.
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

// identityOf returns the identity of a project that the caller sees; empty: it has no record. It is read where the tree
// of projects has none, which may not have followed the creation of the project yet.
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

// flag returns a parameter that is true or false.
func (c *call) flag(name string) bool { return c.query.Get(name) == "true" }

// parameters parses a query string, and refuses what the document does not have. Invalid.
func parameters(o api.Operation, text string) (url.Values, error) {
	given, err := url.ParseQuery(text)
	if err != nil {
		return nil, api.NewProblem(api.BadQuery, "the query string cannot be read: "+err.Error())
	}
	var known []string
	for _, p := range o.Parameters {
		if p.In == "query" {
			known = append(known, p.Name)
		}
	}
	for name := range given {
		if !slices.Contains(known, name) {
			return nil, api.NewProblem(api.BadQuery, "there is no parameter "+strconv.Quote(api.Clip(name))+
				nearest.Hint(api.Clip(name), known))
		}
	}
	for _, p := range o.Parameters {
		if p.In == "query" {
			if err := checkParameter(p, given[p.Name]); err != nil {
				return nil, err
			}
		}
	}
	return given, nil
}

// checkParameter checks how often a parameter is there, and its values.
func checkParameter(p api.Parameter, values []string) error {
	bad := func(why string) error { return api.NewProblem(api.BadQuery, "the parameter "+p.Name+" "+why) }
	most := 1.0
	if p.Schema["type"] == "array" {
		most, _ = p.Schema["maxItems"].(float64)
		p.Schema, _ = p.Schema["items"].(map[string]any)
	}
	switch {
	case len(values) > int(most) && most == 1:
		return bad("is there twice")
	case len(values) > int(most):
		return bad("is there " + strconv.Itoa(len(values)) + " times, more than " + strconv.Itoa(int(most)))
	case len(values) == 0 && p.Required:
		return bad("is missing")
	}
	for _, value := range values {
		if err := checkParameterValue(p, value, bad); err != nil {
			return err
		}
	}
	return nil
}

// checkParameterValue checks a value by the type, the words and the bounds in the document.
func checkParameterValue(p api.Parameter, value string, bad func(why string) error) error {
	if words, ok := p.Schema["enum"].([]any); ok {
		var known []string
		for _, word := range words {
			known = append(known, word.(string))
		}
		if !slices.Contains(known, value) {
			return bad("is one of " + strings.Join(known, ", ") + nearest.Hint(api.Clip(value), known))
		}
	}
	switch p.Schema["type"] {
	case "boolean":
		if value != "true" && value != "false" {
			return bad("is true or false")
		}
	case "integer":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return bad("is a whole number")
		}
		if least, ok := p.Schema["minimum"].(float64); ok && float64(n) < least {
			return bad("is at least " + strconv.Itoa(int(least)))
		}
		if most, ok := p.Schema["maximum"].(float64); ok && float64(n) > most {
			return bad("is at most " + strconv.Itoa(int(most)))
		}
	case "string":
		if most, ok := p.Schema["maxLength"].(float64); ok && utf8.RuneCountInString(value) > int(most) {
			return bad("has more than " + strconv.Itoa(int(most)) + " characters")
		}
	}
	return nil
}
