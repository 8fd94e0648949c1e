package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"

	"croft"
	"croft/control/api"
	pools "croft/pool/api"
	"croft/schedule"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// problem converts an error to a problem document for the caller. Only operators see internal errors; other callers get
// a number under which the log has the error.
func (c *call) problem(err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	if access.Unauthenticated(err) {
		c.w.Header().Set("WWW-Authenticate", `Bearer realm="croft"`)
		p := api.NewProblem(api.Unauthenticated, err.Error())
		if needed, ok := errors.AsType[*access.ProjectNeededError](err); ok {
			p.Projects = needed.Projects
		}
		return p
	}
	if why, ok := errors.AsType[*schedule.Explanation](err); ok {
		shown := c.explanation(why)
		detail := shown.Error()
		if c.caller.Operator() { // with the attempt, which has the name of the instance
			detail = err.Error()
		}
		p := api.NewProblem(api.NoCapacity, detail)
		p.Explanation = shown
		return p
	}
	if r, ok := errors.AsType[*tenant.Refusal](err); ok {
		return c.refusal(err, r)
	}
	if of, ok := errors.AsType[*pools.Refusal](err); ok {
		r := &tenant.Refusal{Measure: tenant.Measure(of.Resource), Limit: of.Limit, Used: of.Used,
			Requested: of.Requested, Project: croft.Project(of.Project), Of: croft.Project(of.Of)}
		return c.refusal(r, r)
	}
	if v, ok := errors.AsType[*objects.ViolationsError](err); ok {
		return violations(c, v)
	}
	if _, ok := errors.AsType[*objects.ForbiddenError](err); ok {
		return api.NewProblem(api.PropertyForbidden, err.Error())
	}
	code := api.CodeOf(err)
	if errors.Is(err, context.DeadlineExceeded) && croft.KindOf(err) == "" {
		code = api.BackendDown
	}
	if code != api.BackendDown && code != api.Internal || c.caller.Operator() {
		return api.NewProblem(code, err.Error())
	}
	number := fmt.Sprintf("%08x", rand.Uint32())
	c.Log.Warn("a request could not be answered", "number", number, "request", c.requestID(),
		"operation", c.operation.ID, "project", c.project, "err", err)
	return api.NewProblem(code, "the cloud cannot do this now: try again, or ask its operators about number "+number)
}

// refusal describes an exceeded quota, with the text of err, which contains r. For a project that the caller does not
// see, it names only the measure, not the numbers.
func (c *call) refusal(err error, r *tenant.Refusal) *api.Problem {
	if !c.scope.Sees(r.Project) {
		return api.NewProblem(api.QuotaExceeded, "a quota above project "+string(r.Of)+" is used up, in "+
			string(r.Measure)+": ask the admin of the project above")
	}
	if !c.caller.Operator() {
		err = r // without the attempt, which may have a name that the cloud chose
	}
	p := api.NewProblem(api.QuotaExceeded, err.Error())
	p.Resource, p.Limit, p.Used, p.Requested, p.Project = string(r.Measure), &r.Limit, &r.Used, &r.Requested, r.Project
	return p
}

// answerProblem writes a problem document, with the ID of the request.
func answerProblem(w http.ResponseWriter, problem *api.Problem) {
	p := problem.Bounded()
	p.Request = w.Header().Get(api.RequestIDHeader)
	text, err := json.Marshal(p)
	if err != nil { // an explanation with a number that JSON cannot represent
		p = api.NewProblem(api.Internal, "the answer cannot be said in JSON")
		text, _ = json.Marshal(p)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	if p.Code == api.BackendDown {
		w.Header().Set("Retry-After", "2")
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(text, '\n')) // ignore clients that disconnected
}
