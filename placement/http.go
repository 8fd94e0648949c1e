package placement

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"croft/internal/span"
	"croft/placement/ledger"
)

// request is a request as handlers see it.
type request struct {
	r         *http.Request
	id        string
	accept    string
	version   version
	versioned bool // version is known
	path      [2]string
	query     query
}

// response is an answer to a request.
type response struct {
	status      int
	contentType string
	body        []byte
	header      http.Header
}

func (r *response) set(name, value string) {
	if r.header == nil {
		r.header = http.Header{}
	}
	r.header.Set(name, value)
}

// ServeHTTP answers one request of the API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	q := &request{r: r, id: "req-" + uuid.NewString(), accept: r.Header.Get("Accept")}
	if q.accept == "" || q.accept == "*/*" {
		q.accept = "application/json"
	}
	end := s.trace(q)
	resp, route := s.answer(q)
	s.write(w, q, resp)
	end(route, resp)
	took := time.Since(start)
	s.metrics.observe(r.Method, route, resp.status, took)
	s.logAccess(q, resp, took)
}

// trace records the request if it names a trace that it belongs to.
func (s *Server) trace(q *request) (end func(route string, resp *response)) {
	sent, ok := span.Join(q.r.Context(), q.r.Header.Get("Traceparent"))
	if !ok || s.config.Traces == nil {
		return func(string, *response) {}
	}
	ctx, done := span.Begin(sent, s.config.Traces, "placement request")
	q.r = q.r.WithContext(ctx)
	return func(route string, resp *response) {
		own := trace.SpanFromContext(ctx)
		own.SetName(q.r.Method + " " + route)
		own.SetAttributes(attribute.Int("http.response.status_code", resp.status),
			attribute.String("openstack.request", q.id))
		var err error
		if resp.status >= http.StatusInternalServerError {
			err = errors.New(http.StatusText(resp.status))
		}
		done(err)
	}
}

// answer runs the request through authentication, version and route.
func (s *Server) answer(q *request) (*response, string) {
	resp, route, err := s.dispatch(q)
	if err == nil {
		return resp, route
	}
	api := asAPIError(err)
	if api.status == http.StatusInternalServerError {
		s.log.Error("placement request failed", "op", q.r.Method+" "+q.r.URL.Path, "request", q.id, "err", err)
	}
	return api.respond(q), route
}

func (s *Server) dispatch(q *request) (resp *response, route string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	root := q.r.URL.Path == "/" || q.r.URL.Path == ""
	var caller Caller
	if !root {
		if caller, err = s.caller(q); err != nil {
			return nil, "", err
		}
	}
	if q.version, err = parseVersion(q.r.Header[versionHeader]); err != nil {
		return nil, "", err
	}
	q.versioned = true
	if q.r.ContentLength > 0 && q.r.Header.Get("Content-Type") == "" {
		return nil, "", badRequest("content-type header required when content-length > 0")
	}
	found, e, err := findRoute(q)
	if err != nil {
		return nil, found, err
	}
	if err := e.check(q); err != nil {
		return nil, found, err
	}
	if !root {
		if !s.allows(caller, e, q) {
			return nil, found, &apiError{status: 403, detail: "Policy does not allow " + e.policy + " to be performed."}
		}
		if err := s.Ready(); err != nil {
			return nil, found, &apiError{status: 503, detail: "The state could not be read or written: " + err.Error()}
		}
	}
	if q.query, err = parseQuery(q.r.URL.RawQuery); err != nil {
		return nil, found, err
	}
	if s.config.ConsistentReads.covers(e) && q.r.Method == http.MethodGet && !root {
		if err := s.ledger.CatchUp(q.r.Context()); err != nil {
			return nil, found, err
		}
	}
	resp, err = e.handle(s, q)
	return resp, found, err
}

func (s *Server) write(w http.ResponseWriter, q *request, resp *response) {
	h := w.Header()
	for name, values := range resp.header {
		h[name] = values
	}
	if q.versioned {
		h.Set(versionHeader, "placement "+q.version.String())
		h.Set("Vary", "openstack-api-version")
	}
	h.Set("X-Openstack-Request-Id", q.id)
	if resp.contentType != "" {
		h.Set("Content-Type", resp.contentType)
	}
	if resp.status != http.StatusNoContent {
		h.Set("Content-Length", strconv.Itoa(len(resp.body)))
	}
	w.WriteHeader(resp.status)
	_, _ = w.Write(resp.body) // the client may be gone
}

// contentType is the media type of the body, without parameters.
func (q *request) contentType() string {
	t, _, err := mime.ParseMediaType(q.r.Header.Get("Content-Type"))
	if err != nil {
		t, _, _ = strings.Cut(q.r.Header.Get("Content-Type"), ";")
	}
	return strings.TrimSpace(t)
}

// ok answers 200 with a JSON body. From 1.15 on the answer says when it was last modified; 0: now.
func (q *request) ok(answer any, modified int64) *response {
	return q.okBody(encode(answer), modified)
}

func (q *request) okBody(body []byte, modified int64) *response {
	resp := &response{status: http.StatusOK, contentType: "application/json", body: body}
	q.stamp(resp, modified)
	return resp
}

// view answers with what read finds in the state, and when that was last modified; 0: now.
func (s *Server) view(q *request, read func(*ledger.State) (answer any, modified int64, err error)) (*response, error) {
	var answer any
	var modified int64
	err := s.ledger.View(func(st *ledger.State) (err error) {
		answer, modified, err = read(st)
		return err
	})
	if err != nil {
		return nil, err
	}
	return q.ok(answer, modified), nil
}

// change runs decide as a transaction, and answers 204 if it succeeds.
func (s *Server) change(q *request, decide func(*ledger.Tx) error) (*response, error) {
	if err := s.ledger.Change(q.r.Context(), decide); err != nil {
		return nil, err
	}
	return &noContent, nil
}

func (q *request) stamp(resp *response, modified int64) {
	if q.version < 15 {
		return
	}
	at := time.Now()
	if modified != 0 {
		at = time.Unix(modified, 0)
	}
	resp.set("Last-Modified", at.UTC().Format(http.TimeFormat))
	resp.set("Cache-Control", "no-cache")
}

// location sets the URL of a created object, on the host that the client asked.
func (q *request) location(resp *response, path string) {
	scheme := "http"
	if q.r.TLS != nil || q.r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	resp.set("Location", scheme+"://"+q.r.Host+path)
}

var noContent = response{status: http.StatusNoContent}
