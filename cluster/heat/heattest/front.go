package heattest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Front is a proxy in front of Keystone and the services in its catalogue. Without faults it changes only the addresses
// in the catalogue.
type Front struct {
	web     *httptest.Server
	auth    *url.URL
	release chan struct{} // closed unless requests hang

	mu       sync.Mutex
	faults   Faults
	services map[string]string // the real address of each type of service
	token    string            // of the last request to Heat
	stacks   string            // the path of the project's stacks
	requests []string          // method and path of the requests to Heat
}

// Faults are the faults of a front.
type Faults struct {
	Away   bool                                                         // connections are closed
	Hangs  bool                                                         // requests are accepted and not answered
	Denied bool                                                         // tokens and passwords are refused
	Body   func(r *http.Request, body map[string]any)                   // changes the JSON of requests to Heat
	Answer func(w http.ResponseWriter, r *http.Request) (answered bool) // answers requests in place of Heat
	// selects requests to Heat whose answers are lost
	Lose func(r *http.Request) bool
}

// NewFront starts a proxy in front of a cloud.
func NewFront(t testing.TB, c Cloud) *Front {
	t.Helper()
	auth, err := url.Parse(c.Auth.URL)
	if err != nil {
		t.Fatal(err)
	}
	f := &Front{auth: auth, services: map[string]string{}, release: make(chan struct{})}
	close(f.release)
	f.web = httptest.NewServer(f)
	t.Cleanup(func() {
		f.Change(func(faults *Faults) { *faults = Faults{} })
		f.web.Close()
	})
	return f
}

// AuthURL returns the address of Keystone behind the front.
func (f *Front) AuthURL() string { return f.web.URL + "/identity" + f.auth.Path }

// Change changes the faults.
func (f *Front) Change(change func(*Faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.faults.Hangs
	change(&f.faults)
	switch {
	case f.faults.Hangs && !before:
		f.release = make(chan struct{})
	case !f.faults.Hangs && before:
		close(f.release)
	}
}

// Requests returns method and path of the requests to Heat since the last call.
func (f *Front) Requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.requests
	f.requests = nil
	return all
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	faults, release := f.faults, f.release
	f.mu.Unlock()
	kind, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case faults.Away:
		abort()
	case faults.Hangs:
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-release:
		case <-r.Context().Done():
		}
		abort()
	case faults.Denied:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error": {"code": 401, "title": "Unauthorized", "message": "not you"}}`)
	case kind == "identity":
		f.pass(w, r, f.auth.Scheme+"://"+f.auth.Host+"/"+path, nil, f.rewrite)
	case kind == "orchestration":
		f.note(r, path)
		f.heat(w, r, faults, path)
	default:
		f.pass(w, r, f.service(kind)+"/"+path, nil, nil)
	}
}

// abort closes the connection without an answer.
func abort() { panic(http.ErrAbortHandler) }

func (f *Front) note(r *http.Request, path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.token = r.Header.Get("X-Auth-Token")
	if before, _, found := strings.Cut(path, "/stacks"); found {
		f.stacks = before + "/stacks"
	}
	f.requests = append(f.requests, r.Method+" /"+path)
}

func (f *Front) service(kind string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.services[kind]
}

func (f *Front) heat(w http.ResponseWriter, r *http.Request, faults Faults, path string) {
	if faults.Answer != nil && faults.Answer(w, r) {
		return
	}
	var change func(map[string]any)
	if faults.Body != nil {
		change = func(body map[string]any) { faults.Body(r, body) }
	}
	if faults.Lose != nil && faults.Lose(r) {
		f.pass(httptest.NewRecorder(), r, f.service("orchestration")+"/"+path, change, nil)
		abort()
	}
	f.pass(w, r, f.service("orchestration")+"/"+path, change, nil)
}

// pass forwards a request, and returns its response. in changes the JSON of the request, out the text of the response.
func (f *Front) pass(w http.ResponseWriter, r *http.Request, address string, in func(map[string]any),
	out func([]byte) []byte) {
	body, _ := io.ReadAll(r.Body)
	var value map[string]any
	if in != nil && json.Unmarshal(body, &value) == nil {
		in(value)
		body, _ = json.Marshal(value)
	}
	if r.URL.RawQuery != "" {
		address += "?" + r.URL.RawQuery
	}
	next, err := http.NewRequestWithContext(r.Context(), r.Method, address, bytes.NewReader(body))
	if err != nil {
		abort()
	}
	next.Header = r.Header.Clone()
	next.Close = true // uwsgi closes connections without announcing it
	answer, err := http.DefaultClient.Do(next)
	if err != nil {
		abort()
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		abort()
	}
	if out != nil {
		text = out(text)
	}
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.Header().Del("Connection")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(text)
}

// rewrite replaces the services in the catalogue of a token by the front.
func (f *Front) rewrite(text []byte) []byte {
	var body struct {
		Token struct {
			Catalog []struct {
				Type      string
				Endpoints []struct{ URL string }
			}
		}
	}
	if json.Unmarshal(text, &body) != nil {
		return text
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range body.Token.Catalog {
		for _, e := range s.Endpoints {
			u, err := url.Parse(e.URL)
			if err != nil || s.Type == "identity" {
				continue
			}
			f.services[s.Type] = u.Scheme + "://" + u.Host
			text = bytes.ReplaceAll(text, []byte(`"`+u.Scheme+"://"+u.Host), []byte(`"`+f.web.URL+"/"+s.Type))
		}
	}
	return text
}

// Heat sends a request for stacks with the token of the last one, and returns status and text of the response.
func (f *Front) Heat(t testing.TB, method, path string, body any) (int, string) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	address, token := f.services["orchestration"]+"/"+f.stacks+path, f.token
	f.mu.Unlock()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, address, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Auth-Token", token)
	r.Header.Set("Content-Type", "application/json")
	r.Close = true
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	got, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(got)
}
