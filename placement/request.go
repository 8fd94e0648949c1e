package placement

import (
	"cmp"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"croft/placement/internal/schema"
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

// wantJSON refuses a body that is not declared as JSON.
func (q *request) wantJSON() error {
	t := q.contentType()
	if t == "application/json" {
		return nil
	}
	return &apiError{status: http.StatusUnsupportedMediaType,
		detail: "The media type " + cmp.Or(t, "None") + " is not supported, use application/json"}
}

// maxBody bounds the body of a request, in bytes.
const maxBody = 16 << 20

// read reads the body and validates it.
func (q *request) read(want *schema.Schema) (schema.Value, error) {
	body, err := io.ReadAll(io.LimitReader(q.r.Body, maxBody+1))
	if err != nil {
		return schema.Value{}, badRequest("The body could not be read: %v", err)
	}
	if len(body) > maxBody {
		return schema.Value{}, &apiError{status: 413,
			detail: fmt.Sprintf("The body is longer than %d bytes.", maxBody)}
	}
	v, err := schema.Decode(body)
	if err != nil {
		return v.Value, badRequest("Malformed JSON: %v", err)
	}
	if err := want.Validate(v); err != nil {
		return v.Value, badRequest("JSON does not validate: %v", err)
	}
	return v.Value, nil
}

// readFor reads the body of a request about a provider. Like the original, it does not read the body if the provider is
// missing.
func (q *request) readFor(l *ledger.Ledger, provider string, want *schema.Schema) (schema.Value, error) {
	if err := l.Exists(q.r.Context(), provider); err != nil {
		return schema.Value{}, err
	}
	return q.read(want)
}

// contentType returns the media type of the body, without parameters.
func (q *request) contentType() string {
	t, _, err := mime.ParseMediaType(q.r.Header.Get("Content-Type"))
	if err != nil {
		t, _, _ = strings.Cut(q.r.Header.Get("Content-Type"), ";")
	}
	return strings.TrimSpace(t)
}

// ok answers 200 with a JSON body. From 1.15 on the answer has a modification date; 0: now.
func (q *request) ok(answer any, modified int64) *response {
	return q.okBody(encode(answer), modified)
}

func (q *request) okBody(body []byte, modified int64) *response {
	resp := &response{status: http.StatusOK, contentType: "application/json", body: body}
	q.stamp(resp, modified)
	return resp
}

// view answers with the result of read on the state, and its modification date; 0: now.
func (q *request) view(l *ledger.Ledger, read func(*ledger.State) (any, int64, error)) (*response, error) {
	return answered(q, l.View, read)
}

// update answers with the result of decide in a transaction, and its modification date; 0: now.
func (q *request) update(l *ledger.Ledger, decide func(*ledger.Tx) (any, int64, error)) (*response, error) {
	change := func(decide func(*ledger.Tx) error) error { return l.Change(q.r.Context(), decide) }
	return answered(q, change, decide)
}

func answered[T any](q *request, run func(func(T) error) error, do func(T) (any, int64, error)) (*response, error) {
	var answer any
	var modified int64
	err := run(func(t T) (err error) {
		answer, modified, err = do(t)
		return err
	})
	if err != nil {
		return nil, err
	}
	return q.ok(answer, modified), nil
}

// change runs decide as a transaction and answers 204 on success.
func (q *request) change(l *ledger.Ledger, decide func(*ledger.Tx) error) (*response, error) {
	if err := l.Change(q.r.Context(), decide); err != nil {
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

// location sets the URL of a created object, on the host that the client addressed.
func (q *request) location(resp *response, path string) {
	scheme := "http"
	if q.r.TLS != nil || q.r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	resp.set("Location", scheme+"://"+q.r.Host+path)
}

var noContent = response{status: http.StatusNoContent}

// prefers reports whether a client states a preference (RFC 7240).
func prefers(h http.Header, preference string) bool {
	for _, value := range h.Values("Prefer") {
		for stated := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(stated), preference) {
				return true
			}
		}
	}
	return false
}
