package control

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/bodies"
	"croft/control/federation"
	"croft/control/federation/assertion"
	"croft/control/forwarding"
	"croft/internal/httpapi"
	"croft/tenant/access"
)

// errNoPeer is the answer about a partition that is no peer or that the caller may not use.
func errNoPeer(name string) error {
	return api.NewProblem(api.NotFound,
		fmt.Sprintf("there is no cloud %q here to which requests are forwarded, or it is "+
			"not for you", api.Clip(name)))
}

// known authenticates the caller, and determines the cloud that the request is for.
func known(c *call) (err error) {
	ctx, cancel := c.brief()
	defer cancel()
	if err := c.recognize(ctx); err != nil {
		return err
	}
	c.peer, err = foreign(c)
	return err
}

// foreign returns the peer that a request is for; nil: this cloud. It refuses peers that the caller, already
// authenticated, may not use.
func foreign(c *call) (*federation.Partition, error) {
	names := c.r.Header.Values(assertion.Header)
	switch {
	case len(names) > 1:
		return nil, api.NewProblem(api.BadRequest, "the request has the header "+assertion.Header+" twice")
	case len(names) == 0 || names[0] == "" || names[0] == federation.HomeAlias:
		return nil, nil
	case c.forwards != nil && names[0] == string(c.forwards.Home):
		return nil, nil
	case c.caller.Peer != "":
		return nil, api.NewProblem(api.BadRequest,
			"this request was forwarded by another cloud, and is not forwarded again: "+
				"ask that cloud for "+api.Clip(names[0]))
	case c.forwards == nil:
		return nil, errNoPeer(names[0])
	}
	ctx, cancel := c.brief()
	defer cancel()
	p, err := c.forwards.Find(ctx, names[0])
	if croft.KindOf(err) == croft.NotFound || err == nil && len(p.Peer.Asserts(c.caller)) == 0 {
		return nil, errNoPeer(names[0])
	}
	if err != nil {
		return nil, err
	}
	roles := p.Peer.Asserts(c.caller)
	if !access.MayAnywhere(c.operation.May, roles) {
		return nil, api.NewProblem(api.ForbiddenVerb,
			fmt.Sprintf("%s is nothing that you may do in the cloud %s: its users "+
				"from here are %v at most", c.operation.ID, p.Alias, roles))
	}
	return &p, nil
}

// homeProject returns the project of this cloud on whose behalf a request is forwarded. Operators name it in a header.
func homeProject(c *call) (croft.Project, error) {
	if c.caller.Project != "" {
		return c.caller.Project, nil
	}
	project := croft.Project(c.r.Header.Get(access.ProjectHeader))
	if project.Check() != nil {
		return "", api.NewProblem(api.BadRequest,
			"name the project of this cloud for which you ask another one, in the "+
				"header "+access.ProjectHeader+", or use a token of a project")
	}
	return project, nil
}

// forward sends a request to a peer and passes its answer on. The credentials of the caller stay here: the peer gets an
// assertion for exactly this request.
func forward(c *call, p federation.Partition) error {
	project, err := homeProject(c)
	if err != nil {
		return err
	}
	c.action.about(project, foreignObject(c, p))
	endTurn, ok := c.forwards.Turn(project, streams(c))
	if !ok {
		return api.NewProblem(api.Busy, "too many requests or streams are being forwarded to other clouds, for project "+
			string(project)+" or for all: end some, or try again")
	}
	defer endTurn()
	body, err := httpapi.ReadBody(c.w, c.r, bodies.Max, 0)
	if err != nil {
		return err
	}
	to, err := url.Parse(p.Peer.Endpoint)
	if err != nil {
		return err
	}
	to.Path, to.RawPath, to.RawQuery = c.r.URL.Path, c.r.URL.RawPath, c.r.URL.RawQuery
	header := http.Header{}
	for _, name := range assertion.BoundHeaders() {
		v := c.r.Header.Get(name)
		if v != "" && (name != "Upgrade" || strings.EqualFold(v, "websocket")) {
			header.Set(name, v)
		}
	}
	id, err := c.identityOf(project)
	if err != nil {
		return err
	}
	signed, err := c.forwards.Sign(assertion.Assertion{Issuer: c.forwards.Home, Audience: p.ID,
		User: c.caller.User, Project: project, ProjectID: id, Roles: p.Peer.Asserts(c.caller),
		Request: assertion.RequestDigest(c.r.Method, to, header, body)})
	if err != nil {
		return err
	}
	signed.SetHeaders(header)
	header.Set("User-Agent", "croft")
	header.Set(api.RequestIDHeader, c.requestID()) // so that the logs of both clouds can be compared
	ctx, end := c.lasting()
	defer end()
	return c.forwards.Send(c.w, c.r.WithContext(ctx), &forwarding.Outgoing{Peer: p, To: to, Header: header, Body: body,
		Waits: waits(c.r.URL), Tell: func(result string) { c.action.record(c, result) }})
}

// streams reports whether a request streams or waits.
func streams(c *call) bool {
	return flows(c) || c.r.URL.Query().Get("wait") != ""
}

// flows reports whether the answer to a request is a stream that only the client ends.
func flows(c *call) bool {
	return c.operation.Stream || c.r.URL.Query().Get("follow") == "true"
}

// foreignObject returns the object of a forwarded request, as the path names it at the peer.
func foreignObject(c *call, p federation.Partition) actions.Object {
	o := named(c)
	o.Name = p.Alias + ":" + o.Name + o.ID
	o.ID = ""
	return o
}

// waits returns how long a request waits at the peer.
func waits(u *url.URL) time.Duration {
	q := u.Query()
	if q.Get("wait") == "" {
		return 0
	}
	var patience api.Patience
	if patience.UnmarshalText([]byte(q.Get("timeout"))) != nil {
		return api.LongestPatience // the peer has its own default
	}
	return patience.Duration()
}
