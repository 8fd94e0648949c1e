package clusters

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"croft"
	"croft/access"
	"croft/actions"
	"croft/cloud"
	"croft/cluster"
	"croft/control/api"
	"croft/internal/httpapi"
)

// Call is a request of a caller who may do its operation in its project.
type Call struct {
	W       http.ResponseWriter
	R       *http.Request
	Query   url.Values // as the document has it
	Cloud   *cloud.Cloud
	Caller  access.Caller
	Project croft.Project // of what the request makes or names
	Given   croft.Project // that the request or the caller names; empty: an operator means all
	Scope   access.Scope  // what the caller sees
	Log     Log

	Body    func(into any) error                         // reads, checks and decodes the body
	May     func(croft.Project) error                    // refuses the operation in another project
	Lasting func() (ctx context.Context, end func())     // goes on until the client or its credentials go
	Brief   func() (context.Context, context.CancelFunc) // bounds what neither waits nor streams
}

// Log is told of the action that a request is.
type Log interface {
	// About says what the request is about, in a project that the caller sees.
	About(croft.Project, actions.Object)
	// Done says that it was done, whatever a wait ends with.
	Done()
}

// answer writes a document.
func (c Call) answer(status int, document any) error {
	httpapi.Answer(c.W, status, document)
	return nil
}

// tagged writes a document with its generation.
func (c Call) tagged(status int, generation int64, document any) error {
	api.Tag(c.W.Header(), generation)
	return c.answer(status, document)
}

// nothing answers what needs no words.
func (c Call) nothing() error {
	c.W.WriteHeader(http.StatusNoContent)
	return nil
}

// about says what the request is about.
func (c Call) about(project croft.Project, kind actions.Kind, id, name string) {
	if cluster.CheckName(string(kind), name) != nil {
		name = "" // it may be anything
	}
	c.Log.About(project, actions.Object{Kind: kind, ID: id, Name: name})
}

// flag returns a parameter that is true or false.
func (c Call) flag(name string) bool { return c.Query.Get(name) == "true" }

// mismatch is the answer for a change of another generation than there is; a Conflict of a change that names none is
// of another kind.
func mismatch(err error, base *int64) error {
	if base != nil && errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	return err
}

// taken is the answer for a name that is taken.
func taken(err error) error {
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.NameTaken, err.Error())
	}
	return err
}

// used is the answer for the removal of what is in use.
func used(err error) error {
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.InUse, err.Error())
	}
	return err
}
