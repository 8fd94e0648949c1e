package clusters

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"croft"
	"croft/cloud"
	"croft/cluster"
	"croft/control/actions"
	"croft/control/api"
	"croft/internal/httpapi"
	"croft/tenant/access"
)

// Call is a request of a caller who may do its operation in its project.
type Call struct {
	W       http.ResponseWriter
	R       *http.Request
	Query   url.Values // as the document defines it
	Cloud   *cloud.Cloud
	Caller  access.Caller
	Project croft.Project // of the objects that the request creates or names
	Given   croft.Project // that the request or the caller names; empty: an operator means all
	Scope   access.Scope  // the projects that the caller sees
	Log     Log

	Body    func(into any) error                         // reads, checks and decodes the body
	May     func(croft.Project) error                    // refuses the operation in another project
	Lasting func() (ctx context.Context, end func())     // ends with the client or its credentials
	Brief   func() (context.Context, context.CancelFunc) // with the time limit for work that neither waits nor streams
}

// Log receives the action of the request.
type Log interface {
	// About sets the object of the request, in a project that the caller sees.
	About(croft.Project, actions.Object)
	// Done records that the action was done, independently of how a wait ends.
	Done()
}

// answer writes a document as JSON.
func (c Call) answer(status int, document any) error {
	httpapi.Answer(c.W, status, document)
	return nil
}

// tagged writes a document with its generation.
func (c Call) tagged(status int, generation int64, document any) error {
	api.Tag(c.W.Header(), generation)
	return c.answer(status, document)
}

// nothing answers with an empty body.
func (c Call) nothing() error {
	c.W.WriteHeader(http.StatusNoContent)
	return nil
}

// about sets the object of the request.
func (c Call) about(project croft.Project, kind actions.Kind, id, name string) {
	if cluster.CheckName(string(kind), name) != nil {
		name = "" // it may be anything
	}
	c.Log.About(project, actions.Object{Kind: kind, ID: id, Name: name})
}

// flag returns the value of a boolean parameter.
func (c Call) flag(name string) bool { return c.Query.Get(name) == "true" }

// mismatch is the answer for a change based on a generation that is not current. For changes without a generation, a
// Conflict has another cause.
func mismatch(err error, base *int64) error {
	if base != nil && errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	return err
}

// taken is the answer for a name that is already in use.
func taken(err error) error {
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.NameTaken, err.Error())
	}
	return err
}

// used is the answer for the removal of an object that is in use.
func used(err error) error {
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.InUse, err.Error())
	}
	return err
}
