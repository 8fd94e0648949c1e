package control

import (
	"context"
	"net"
	"net/http"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/tenant/access"
)

// action holds the data of a request for the action log.
type action struct {
	at      time.Time // when the caller was authenticated; zero: not authenticated, or rate-limited
	project croft.Project
	object  actions.Object
	told    bool
}

// begin notes that the caller is authenticated. From now on, refusals are logged in the caller's project, unless the
// request is about another project that the caller sees.
func (a *action) begin(c *call) { a.at, a.project, a.object = time.Now(), c.caller.Project, named(c) }

// named returns the object that the path names, as far as the path identifies it.
func named(c *call) actions.Object {
	o := actions.Object{Kind: c.operation.Object}
	id, name := c.r.PathValue("id"), c.r.PathValue("name")
	if kind := things[c.r.PathValue("things")]; kind != "" {
		o.Kind = actions.Kind(kind)
	}
	switch o.Kind {
	case actions.Definition:
		name = c.r.PathValue("kind")
	case actions.Project:
		name = c.r.PathValue("project")
	case actions.Token:
		return actions.TokenNamed(id)
	case actions.Policy:
		return actions.PolicyNamed(name)
	case actions.Invitation:
		name = "" // it may be a whole token
	}
	if _, err := croft.ParseInstanceID(id); err == nil {
		o.ID = id
	} else if id != "" {
		name = id
	}
	o.Name = name
	return o
}

// about sets the object of the request, in a project that the caller sees.
func (a *action) about(project croft.Project, o actions.Object) { a.project, a.object = project, o }

// record adds the request to the action log, once.
func (a *action) record(c *call, result string) {
	if a.told || a.at.IsZero() || !c.operation.logs() {
		return
	}
	a.told = true
	c.Actions.Add(actions.Entry{Time: a.at, Operation: c.operation.ID, User: c.caller.User,
		Operator: c.caller.Operator(), Via: c.caller.Via, From: from(c.r), Project: a.project, Object: a.object,
		Result: result})
}

// also adds an entry to the action log of another project for an effect of the request on an object there.
func (a *action) also(c *call, operation string, project croft.Project, o actions.Object) {
	c.Actions.Add(actions.Entry{Time: a.at, Operation: operation, User: c.caller.User, Operator: c.caller.Operator(),
		Via: c.caller.Via, From: from(c.r), Project: project, Object: o, Result: actions.Done})
}

// from returns the address of the client.
func from(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil { // a Unix socket
		return "this machine"
	}
	return host
}

// recording writes a request to the action log before its answer: an acknowledged action is always recorded.
type recording struct {
	http.ResponseWriter
	call *call
}

// WriteHeader implements http.ResponseWriter.
func (w *recording) WriteHeader(status int) {
	if result := resultOf(status); result != "" {
		w.call.action.record(w.call, result)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer: an answer without a status has the status 200.
func (w *recording) Write(text []byte) (int, error) {
	w.call.action.record(w.call, actions.Done)
	return w.ResponseWriter.Write(text)
}

// resultOf returns what the action log says about a request that gets this status; empty: another answer follows. The
// code of a problem has been recorded before its status is sent, so an error here is one without a code.
func resultOf(status int) string {
	switch {
	case status >= http.StatusInternalServerError:
		return string(api.Internal)
	case status >= http.StatusBadRequest:
		return string(api.BadRequest)
	case status >= http.StatusOK || status == http.StatusSwitchingProtocols:
		return actions.Done
	}
	return ""
}

// Unwrap lets an http.ResponseController reach the connection.
func (w *recording) Unwrap() http.ResponseWriter { return w.ResponseWriter }

var logOperations = noun{Tag: "log",
	Description: "Who did what to which object: every request that changes something, done or refused, for 90 " +
		"days at most.",
	Operations: []Operation{
		do(Operation{ID: "listActions", At: "GET /v1/log", May: access.Reads,
			Summary: "List who did what",
			Description: "Newest entries first. Admins of a project see the entries of the projects below it too, " +
				"operators all. An entry is there a moment after the answer to its request."}, listActions),
	},
}

// listActions lists the logged actions in the projects that the caller sees.
func listActions(ctx context.Context, c *call, in api.LogFilter) (page actions.Page, err error) {
	f := actions.Filter{User: in.User, After: in.After, Limit: in.Limit}
	if in.Project != "" {
		f.Project = c.project
	}
	if in.Object != "" {
		if f.Object, err = actions.ParseObject(in.Object); err != nil {
			return page, api.NewProblem(api.BadQuery, "object: "+err.Error())
		}
	}
	if in.Since != "" {
		if f.Since, err = time.Parse(time.RFC3339, in.Since); err != nil {
			return page, api.NewProblem(api.BadQuery, "since is no time such as 2026-01-31T12:00:00Z")
		}
	}
	if page, err = c.Actions.Store().List(ctx, c.scope, f); err != nil {
		return page, err
	}
	if !c.caller.Operator() {
		for i, e := range page.Entries {
			if e.Operator {
				page.Entries[i].Via, page.Entries[i].From = "", ""
			}
		}
	}
	return page, nil
}
