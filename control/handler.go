package control

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"

	"croft/control/api"
	"croft/internal/httpapi"
	"croft/internal/lazyregexp"
)

// Handler serves the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	allowed := map[string]string{}
	for _, o := range Operations() {
		mux.HandleFunc(o.Method+" "+exactly(o.Path), func(w http.ResponseWriter, r *http.Request) {
			s.serve(w, r, &o)
		})
		allowed[o.Path] += cmp.Or(map[bool]string{true: ", "}[allowed[o.Path] != ""]) + o.Method
	}
	for path, methods := range allowed {
		mux.HandleFunc(exactly(path), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", methods)
			p := api.NewProblem(api.BadRequest, "there is no such verb here: use one of "+methods)
			p.Status, p.Title = http.StatusMethodNotAllowed, http.StatusText(http.StatusMethodNotAllowed)
			answerProblem(w, p)
		})
	}
	mux.HandleFunc("GET /docs/api", reference)
	nothing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answerProblem(w, errNothing) })
	mux.Handle("/", nothing)
	return identified(withoutForeignPages(httpapi.ExactPaths(mux, nothing)))
}

// reference serves the description of the API as a page, to everyone.
func reference(w http.ResponseWriter, _ *http.Request) {
	page, err := api.Reference()
	if err != nil {
		answerProblem(w, api.NewProblem(api.Internal, "the reference cannot be written: "+err.Error()))
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	_, _ = w.Write(page)
}

// requestIDForm is the form of the request IDs that clients may choose.
var requestIDForm = lazyregexp.New(`^[A-Za-z0-9._-]{1,64}$`)

// identified gives each request an ID, in the header X-Request-Id of its answer: the client's own if it has the right
// form, else a random one.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(api.RequestIDHeader)
		if !requestIDForm.MatchString(id) {
			id = fmt.Sprintf("%016x", rand.Uint64())
		}
		w.Header().Set(api.RequestIDHeader, id)
		next.ServeHTTP(w, r)
	})
}

// exactly marks a path that ends in a slash so that it does not match all paths below it.
func exactly(path string) string {
	if path[len(path)-1] == '/' {
		return path + "{$}"
	}
	return path
}

// withoutForeignPages refuses requests that a browser sends for web pages of other origins, because the browser may
// have the certificate that identifies its user.
func withoutForeignPages(next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := foreign.Check(r); err != nil {
			answerProblem(w, api.NewProblem(api.ForbiddenVerb, "a web page from elsewhere asks for this: "+err.Error()))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serve answers a request for an operation.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, o *Operation) {
	noted := httpapi.RecordStatus(w)
	c := &call{Server: s, operation: o, r: r}
	c.w = &recording{noted, c}
	if err := perform(c); err != nil {
		p := c.problem(err)
		c.action.record(c, string(p.Code))
		answerProblem(c.w, p)
	}
	s.count(o.ID, noted.Status)
	s.Log.Debug("request", "operation", o.ID, "user", c.caller.User, "project", c.project, "via", c.caller.Via,
		"status", noted.Status, "request", c.requestID())
}

// perform does the operation, here or in another cloud. A returned error is the answer.
func perform(c *call) error {
	if !c.operation.Open {
		if err := known(c); err != nil {
			return err
		}
	}
	if c.peer != nil {
		return forward(c, *c.peer)
	}
	if err := c.admit(); err != nil {
		return err
	}
	if flows(c) && !c.caller.Operator() {
		end, ok := c.flows.Begin(c.caller.Project)
		if !ok {
			return api.NewProblem(api.Busy, "project "+string(c.caller.Project)+", or all projects together, have as "+
				"many streams as they may: end some, or try again")
		}
		defer end()
	}
	return c.operation.serve(c)
}
