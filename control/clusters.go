package control

import (
	"context"

	"croft"
	"croft/control/actions"
	"croft/control/clusters"
)

// ofClusters returns the request in the form that control/clusters handles.
func (c *call) ofClusters() clusters.Call {
	return clusters.Call{W: c.w, R: c.r, Query: c.query, Cloud: c.Cloud, Caller: c.caller, Project: c.home(),
		Given: c.project, Scope: c.scope, Log: told{c}, Body: c.body, May: c.authorize,
		Lasting: func() (context.Context, func()) { return c.lasting() }, Brief: c.brief}
}

// told implements clusters.Log.
type told struct{ call *call }

// About implements clusters.Log.
func (t told) About(project croft.Project, o actions.Object) { t.call.action.about(project, o) }

// Done implements clusters.Log.
func (t told) Done() { t.call.action.record(t.call, actions.Done) }
