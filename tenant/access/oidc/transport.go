package oidc

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	patience = 10 * time.Second // timeout of a response of the issuer
	pause    = 10 * time.Second // minimum time between two requests for the same document
	longest  = 1 << 20          // maximum size of a document, in bytes
)

// transport requests each document of the issuer at most every pause, and caches the last response. Anyone can send
// tokens that name new keys, and the issuer must not get a request for each of them.
type transport struct {
	base http.RoundTripper

	mu      sync.Mutex
	answers map[string]answer // by URL
	failed  error             // error of the last request; nil: it succeeded
}

type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
	until  time.Time
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.answers[r.URL.String()]
	if !time.Now().Before(a.until) {
		a = t.fetch(r)
		t.answers[r.URL.String()] = a
		t.failed = a.err
	}
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Header: a.header.Clone(), Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(a.body)),
		Body: io.NopCloser(bytes.NewReader(a.body))}, nil
}

func (t *transport) fetch(r *http.Request) (a answer) {
	defer func() { a.until = time.Now().Add(pause) }()
	got, err := t.base.RoundTrip(r)
	if err != nil {
		return answer{err: err}
	}
	defer got.Body.Close()
	body, err := io.ReadAll(io.LimitReader(got.Body, longest+1))
	switch {
	case err != nil:
		return answer{err: err}
	case len(body) > longest:
		return answer{err: fmt.Errorf("%s has more than %d bytes", r.URL, longest)}
	case got.StatusCode != http.StatusOK:
		return answer{err: fmt.Errorf("%s answers %s", r.URL, got.Status)}
	}
	return answer{status: got.StatusCode, header: got.Header, body: body}
}

// failure returns the error of the last request to the issuer; nil: it succeeded.
func (t *transport) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}
