// Package client calls the API of a cloud, for users with a URL and a token: tenants, and operators from any machine.
// Operations are methods with the inputs and results of package control/api. Other methods read all pages of a list,
// follow a stream, or do what only operators on a host of the cloud can do, and else return Denied.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/control/api"
	"croft/control/federation/assertion"
	"croft/internal/delay"
	"croft/internal/egress"
	"croft/internal/endpoint"
	"croft/internal/redact"
	"croft/tenant/access"
)

// Settings say where a cloud is, and who the caller is.
type Settings struct {
	// URL is such as https://cloud.example:8781, or unix:///run/croft/api.sock; empty: the cloud is reached directly.
	URL   string `yaml:"url"`
	Token string `yaml:"token"` // access token of a project
	CA    string `yaml:"ca"`    // file with the authority of the server's certificate; empty: the system's authorities

	// Partition names another cloud that requests are for, by its UUID or the alias that this cloud has for it; empty:
	// this cloud.
	Partition string `yaml:"partition"`

	// the URL is this machine's socket, which no setting names
	Found   bool   `yaml:"-"`
	Context string `yaml:"-"` // context of croft login; empty: none
	Again   string `yaml:"-"` // command that logs in there again
	// project for users of an issuer; empty: their only one
	Home    croft.Project                         `yaml:"-"`
	Renewed func(context.Context) (string, error) `yaml:"-"` // returns the current token; nil: Token is used
}

// Set reports whether the settings name a cloud.
func (s Settings) Set() bool { return s.URL != "" }

// Check returns Invalid for settings that cannot work, or that would send the token unencrypted.
func (s Settings) Check() error {
	if !s.Set() {
		if s.Token != "" || s.CA != "" {
			return croft.Errorf(croft.Invalid,
				"token and ca (CROFT_TOKEN, CROFT_CA) are for the cloud that url names: set that too (CROFT_URL)")
		}
		return nil
	}
	u, err := url.Parse(s.URL)
	if err == nil && u.User != nil {
		return croft.Errorf(croft.Invalid, "url: leave the user and the password out of %s: the token says who you are",
			redact.URL(u))
	}
	if err == nil && u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/") && len(u.Path) > 1 {
		return nil // the kernel reports the caller, and no other process can listen in
	}
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return croft.Errorf(croft.Invalid, "url: %q is not the address of a cloud, such as https://cloud.example:8781",
			redact.Address(s.URL))
	}
	if u.Scheme == "http" && !endpoint.IsLoopback(net.JoinHostPort(u.Hostname(), "0")) {
		return croft.Errorf(croft.Invalid,
			"url: %s would send the token unencrypted: use https, with the cloud's CA in ca (CROFT_CA)", s.URL)
	}
	if strings.ContainsFunc(s.Partition, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return croft.Errorf(croft.Invalid, "partition (CROFT_PARTITION) %.80q is no name of a cloud", s.Partition)
	}
	if strings.ContainsAny(s.Token, " \t\r\n") {
		return croft.Errorf(croft.Invalid, "token (CROFT_TOKEN) has white space in it")
	}
	return nil
}

// Client calls the API of one cloud.
type Client struct {
	base     string
	where    string // the cloud in messages, with its address
	token    string
	advice   string // advice to users whose credentials are not accepted; empty: none
	home     croft.Project
	meant    string // partition that requests are for; empty: the cloud itself
	requests *http.Client
	sockets  *http.Client // for HTTP/1 only, which can be upgraded
	within   *Within      // nil: the cloud is reached over the network
}

// New returns a client, and sends nothing yet. Invalid.
func New(s Settings) (*Client, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		pem, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, croft.Errorf(croft.Invalid, "ca: there is no certificate in %s", s.CA)
		}
	}
	transport := &http.Transport{Proxy: egress.Environment, TLSClientConfig: config, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 64}
	upgraded := &http.Transport{Proxy: egress.Environment, TLSClientConfig: config.Clone(),
		TLSHandshakeTimeout: 10 * time.Second, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	base, where := strings.TrimRight(s.URL, "/"), "the cloud at "+s.URL
	if path, local := strings.CutPrefix(s.URL, "unix://"); local {
		base = "http://localhost"
		for _, t := range []*http.Transport{transport, upgraded} {
			t.Proxy = nil
			t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", path)
			}
		}
	}
	advice := ""
	if s.Context != "" {
		advice = fmt.Sprintf(" (the context is %s; to log in again: %s)", s.Context, s.Again)
	}
	return &Client{base: base, where: where, token: s.Token, home: s.Home, meant: s.Partition, advice: advice,
		requests: &http.Client{Transport: transport, CheckRedirect: stay},
		sockets:  &http.Client{Transport: upgraded, CheckRedirect: stay}}, nil
}

// Within is an API server that runs in the process of the client. All its fields are required.
type Within struct {
	Transport http.RoundTripper                                   // reaches the server
	Prepare   func(context.Context) (end func())                  // announces many requests, for Client.Prepare
	Snapshot  func(context.Context, io.Writer) (n int64, _ error) // copies the store, for Client.Snapshot
	End       func() error                                        // ends the server when the client is closed
}

// Inside returns a client of a cloud whose API is served in this process.
func Inside(w Within) *Client {
	requests := &http.Client{Transport: w.Transport, CheckRedirect: stay}
	return &Client{base: "http://localhost", where: "the cloud", requests: requests, sockets: requests, within: &w}
}

// stay follows no redirect, because the token is for one server.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close implements io.Closer.
func (c *Client) Close() error {
	c.requests.CloseIdleConnections()
	c.sockets.CloseIdleConnections()
	if c.within != nil {
		return c.within.End()
	}
	return nil
}

// Prepare announces many requests for instances: until end is called, a server in this process watches hosts instead of
// reading them for each request. Other servers decide that themselves. It must not overlap with other calls.
func (c *Client) Prepare(ctx context.Context) (end func()) {
	if c.within != nil {
		return c.within.Prepare(ctx)
	}
	return func() {}
}

// Snapshot writes all data in the cloud's etcd to w, and returns the number of bytes. Denied: the cloud is reached over
// the network.
func (c *Client) Snapshot(ctx context.Context, w io.Writer) (n int64, err error) {
	if c.within != nil {
		return c.within.Snapshot(ctx, w)
	}
	return 0, croft.Errorf(croft.Denied, "a snapshot has every secret of the cloud in it, so the API does not have it: "+
		"take it on a host of the cloud, without CROFT_URL and without a login")
}

// Caller returns the caller as the cloud identifies it. Denied: the token is not valid.
func (c *Client) Caller(ctx context.Context) (access.Caller, error) { return c.Whoami(ctx) }

// Root returns the information about a cloud that is public.
func (c *Client) Root(ctx context.Context) (api.Cloud, error) { return c.GetRoot(ctx) }

// identify adds the caller's credentials, its project and the partition to the headers.
func (c *Client) identify(h http.Header) {
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	if c.home != "" {
		h.Set(access.ProjectHeader, string(c.home))
	}
	if c.meant != "" {
		h.Set(assertion.Header, c.meant)
	}
}

// decode reads the document of an answer.
func (c *Client) decode(ctx context.Context, answer *http.Response, into any) error {
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		return c.unreachable(ctx, err)
	}
	return nil
}

// send sends a request, and repeats it when the cloud asks the client to retry. It returns the answer unless that is an
// error.
func (c *Client) send(ctx context.Context, method, path string, body []byte,
	header http.Header) (*http.Response, error) {
	for {
		answer, err := c.Once(ctx, method, path, body, header)
		if err != nil || answer.StatusCode < http.StatusMultipleChoices {
			return answer, err
		}
		err = problemIn(answer)
		_ = answer.Body.Close()
		if p, is := errors.AsType[*api.Problem](err); is && p.Code == api.Unauthenticated {
			p.Detail += c.advice
		}
		if answer.StatusCode != http.StatusTooManyRequests {
			return nil, err
		}
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		if delay.For(ctx, time.Duration(max(1, min(seconds, 60)))*time.Second) != nil {
			return nil, err
		}
	}
}

// Once sends a request once, and returns its answer, whatever the status is. The caller must close its body. path has
// the parameters; body is nil if the operation takes none.
func (c *Client) Once(ctx context.Context, method, path string, body []byte,
	header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "%w", err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	c.identify(r.Header)
	answer, err := c.requests.Do(r)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return answer, nil
}

// unreachable returns the error for a cloud that does not answer, or the caller's own error.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if own, ok := errors.AsType[ownError](err); ok {
		return own.error
	}
	if plain, ok := errors.AsType[*url.Error](err); ok {
		err = plain.Err
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return croft.Errorf(croft.Invalid, "the server at %s speaks HTTP without TLS: use http:// if it is on this machine, "+
			"or ask the cloud's operator for its https:// address", c.base)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return croft.Errorf(croft.Invalid,
			"the certificate of %s cannot be trusted (%w): give the cloud's CA in ca (CROFT_CA)", c.base, err)
	}
	return croft.Errorf(croft.Unavailable, "%s does not answer: %w", c.where, err)
}

// ownError is an error of the caller's reader or writer, which says nothing about the cloud.
type ownError struct{ error }

func (e ownError) Unwrap() error { return e.error }

// ownReader marks the errors of a reader as the caller's own.
type ownReader struct{ io.Reader }

func (r ownReader) Read(text []byte) (int, error) {
	n, err := r.Reader.Read(text)
	if err != nil && err != io.EOF {
		err = ownError{err}
	}
	return n, err
}

// ownWriter marks the errors of a writer as the caller's own.
type ownWriter struct{ io.Writer }

func (w ownWriter) Write(text []byte) (int, error) {
	n, err := w.Writer.Write(text)
	if err != nil {
		err = ownError{err}
	}
	return n, err
}

// maxProblem limits how much of an error is read.
const maxProblem = 4 << 20

// problemIn returns the error in an answer.
func problemIn(answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	p := &api.Problem{}
	if err := json.Unmarshal(text, p); err == nil && p.Code != "" {
		if p.Code == api.Internal && p.Request != "" {
			p.Detail += " (request " + p.Request + ")"
		}
		return p
	}
	if answer.StatusCode == http.StatusBadRequest && endpoint.IsWrongScheme(text) {
		return croft.Errorf(croft.Invalid, "the server at http://%s speaks TLS: use https://%[1]s, with the cloud's CA in ca "+
			"(CROFT_CA)", answer.Request.URL.Host)
	}
	kind := croft.Unavailable
	if answer.StatusCode < http.StatusInternalServerError {
		kind = croft.Invalid
	}
	return croft.Errorf(kind, "the server answers %s, and not as a cloud does: is url that of a cloud?",
		fmt.Sprint(answer.Status))
}
