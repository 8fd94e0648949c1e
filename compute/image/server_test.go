package image

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// server serves one file correctly, and misbehaves on request.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	content  []byte
	etag     string
	modified time.Time
	// per request: cut the connection after this number of bytes; -1: never
	cutAfter []int
	answer   func(w http.ResponseWriter, r *http.Request) bool // true: the function has answered
	seen     []*http.Request
}

func newServer(t *testing.T, content []byte) *server {
	s := &server{content: content, etag: `"v1"`, modified: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *server) ref() string { return s.URL + "/disk.img" }

// set changes the served content; it is safe between and during requests.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// answers lets f answer if it returns true.
func (s *server) answers(f func(http.ResponseWriter, *http.Request) bool) {
	s.set(func() { s.answer = f })
}

// cut cuts the connections of the next requests, each after a number of bytes.
func (s *server) cut(after ...int) { s.set(func() { s.cutAfter = after }) }

func (s *server) requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r)
	content, etag, modified, answer := s.content, s.etag, s.modified, s.answer
	cut := -1
	if len(s.cutAfter) > 0 {
		cut, s.cutAfter = s.cutAfter[0], s.cutAfter[1:]
	}
	s.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	if etag != "" {
		w.Header().Set("ETag", etag)
	}
	if cut >= 0 {
		w = &cutter{ResponseWriter: w, left: cut}
	}
	http.ServeContent(w, r, "", modified, bytes.NewReader(content))
}

// cutter cuts the connection after some bytes of the body.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b[:min(len(b), c.left)])
	c.left -= n
	if c.left == 0 {
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// ranges returns the Range headers of all requests, in order.
func (s *server) ranges() string {
	var all []string
	for _, r := range s.requests() {
		all = append(all, r.Header.Get("Range"))
	}
	return strings.Join(all, " ")
}

// withSums serves a list of checksums next to the image.
func (s *server) withSums(list func() string) {
	s.answers(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/SUMS" {
			return false
		}
		fmt.Fprint(w, list())
		return true
	})
}

// status answers every request with a status only.
func status(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(code)
		return true
	}
}

// lengthOf makes a server announce a wrong length.
func lengthOf(n int, content []byte) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", strconv.Itoa(n))
		w.Write(content)
		return true
	}
}
