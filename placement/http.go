package placement

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"croft/internal/span"
)

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
	s.access.write(q, resp, took)
}

// trace records the request if it carries a trace context.
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

// answer authenticates the request, negotiates the version and calls the route's handler.
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
		if caller, err = s.callers.find(q); err != nil {
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
	found, e, err := s.routes.find(q)
	if err != nil {
		return nil, found, err
	}
	if err := e.check(q); err != nil {
		return nil, found, err
	}
	if !root {
		if !s.callers.allow(caller, e.policy, q) {
			return nil, found, &apiError{status: 403,
				detail: "Policy does not allow placement:" + e.policy + " to be performed."}
		}
		if err := s.Ready(); err != nil {
			return nil, found, &apiError{status: 503, detail: "The state could not be read or written: " + err.Error()}
		}
	}
	if q.query, err = parseQuery(q.r.URL.RawQuery); err != nil {
		return nil, found, err
	}
	if s.config.ConsistentReads.covers(e.claims) && q.r.Method == http.MethodGet && !root {
		if err := s.ledger.CatchUp(q.r.Context()); err != nil {
			return nil, found, err
		}
	}
	resp, err = e.handle(q)
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
