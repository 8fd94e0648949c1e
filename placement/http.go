package placement

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"croft/internal/span"
	"croft/placement/internal/pyjson"
	"croft/placement/internal/schema"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 16 << 20

// request is what handlers know of a request.
type request struct {
	r         *http.Request
	id        string
	accept    string
	version   version
	versioned bool // version has been read
	path      [2]string
	query     query
}

// response is an answer.
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

// trace records the request, where whoever sent it names the trace that it belongs to.
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
		own.SetAttributes(attribute.Int("http.response.status_code", resp.status), attribute.String("openstack.request", q.id))
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
	api, ok := errors.AsType[*apiError](err)
	if !ok {
		s.log.Error("placement request failed", "op", q.r.Method+" "+q.r.URL.Path, "request", q.id, "err", err)
		api = &apiError{status: 500, detail: err.Error()}
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
	if q.version, err = asError(parseVersion(q.r.Header[versionHeader])); err != nil {
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
	if err := e.admit(q); err != nil {
		return nil, found, err
	}
	if !root {
		if !s.allows(caller, e, q) {
			return nil, found, &apiError{status: 403, detail: "Policy does not allow " + e.policy + " to be performed."}
		}
		if err := s.Ready(); err != nil {
			return nil, found, unavailable(err)
		}
	}
	if q.query, err = parseQuery(q.r.URL.RawQuery); err != nil {
		return nil, found, err
	}
	if s.config.ConsistentReads.covers(e) && q.r.Method == http.MethodGet && !root {
		if err := s.catchUp(q.r.Context()); err != nil {
			return nil, found, unavailable(err)
		}
	}
	resp, err = e.handle(s, q)
	return resp, found, err
}

// asError keeps a nil *apiError from being an error that is not nil.
func asError[T any](v T, e *apiError) (T, error) {
	if e != nil {
		return v, e
	}
	return v, nil
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
	w.Write(resp.body) // a client that went away is no concern of ours
}

// readJSON reads the body and validates it.
func (q *request) readJSON(want *schema.Schema) (any, error) {
	body, err := io.ReadAll(io.LimitReader(q.r.Body, maxBody+1))
	if err != nil {
		return nil, badRequest("The body could not be read: %v", err)
	}
	if len(body) > maxBody {
		return nil, &apiError{status: 413, detail: fmt.Sprintf("The body is longer than %d bytes.", maxBody)}
	}
	v, err := pyjson.Parse(body)
	if err != nil {
		return nil, badRequest("Malformed JSON: %v", err)
	}
	if err := want.Validate(v); err != nil {
		return nil, badRequest("JSON does not validate: %v", err)
	}
	return v, nil
}

// readObject is readJSON for schemas that ask for an object.
func (q *request) readObject(want *schema.Schema) (*pyjson.Object, error) {
	v, err := q.readJSON(want)
	if err != nil {
		return nil, err
	}
	return v.(*pyjson.Object), nil
}

// contentType is the media type of the body, without parameters.
func (q *request) contentType() string {
	t, _, err := mime.ParseMediaType(q.r.Header.Get("Content-Type"))
	if err != nil {
		t, _, _ = strings.Cut(q.r.Header.Get("Content-Type"), ";")
	}
	return strings.TrimSpace(t)
}

// ok answers 200 with a JSON body. From 1.15 on it says when what it tells was last
// modified; 0 is now.
func (q *request) ok(body []byte, modified int64) *response {
	resp := &response{status: http.StatusOK, contentType: "application/json", body: body}
	q.stamp(resp, modified)
	return resp
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

// location says where a created object is, on the host that the client asked.
func (q *request) location(resp *response, path string) {
	scheme := "http"
	if q.r.TLS != nil || q.r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	resp.set("Location", scheme+"://"+q.r.Host+path)
}

var noContent = response{status: http.StatusNoContent}
