// Package api asks a manager of pools for resources, over its JSON API:
//
//	c, err := api.New(api.Config{})
//	t, err := c.Open(ctx, api.Opening{Tags: []string{"x86_64"}})
//	t, err = c.Wait(ctx, t.ID)   // t.Resource.Data is the output of the pool's command
//	t, err = c.Close(ctx, t.ID)
//
// Waiting is a long poll: the server answers when the ticket changes. Calls are retried while a server restarts, and
// while another one takes the lead. The context bounds the retries and, for calls that are answered at once,
// Config.Patience.
//
// Errors have the kinds of package croft.
package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"

	"croft"
	"croft/internal/egress"
	"croft/internal/failover"
)

// DefaultEndpoint is where a manager listens by default.
const DefaultEndpoint = "http://127.0.0.1:49100"

// Config has the addresses of managers and the credentials for them.
type Config struct {
	Endpoints []string      // addresses of any of the servers; default DefaultEndpoint
	Token     string        // if the servers require one
	CA        string        // file with the certificate authority of the servers; empty: the system's authorities
	Patience  time.Duration // how long to retry a server that does not answer; default 10 s
	// Transport replaces the network; nil: HTTP over TCP.
	Transport http.RoundTripper
	// Locate returns the address of a server for each attempt, and replaces Endpoints. Its error counts as Unavailable.
	// nil: Endpoints are used.
	Locate func() (string, error)
}

// Client calls managers. Its methods may be called concurrently.
type Client struct {
	endpoints *failover.Endpoints
	locate    func() (string, error)
	token     string
	patience  time.Duration
	http      *http.Client
	projects  []ProjectRef // see Within; nil: the tickets of all projects
	warn      func(string) // see OnWarning; may be nil
}

// WarningHeader is the header of answers of a manager whose file of pools has a fault. Its value is a quoted sentence.
const WarningHeader = "Croft-Warning"

// OnWarning has the client call warn with a sentence for each answer of a manager whose pools are not as its file says,
// and for each failed attempt of a call that is repeated without limit. It must be called before the first request.
func (c *Client) OnWarning(warn func(sentence string)) { c.warn = warn }

// New returns a client and sends nothing. Invalid.
func New(c Config) (*Client, error) {
	if len(c.Endpoints) == 0 {
		c.Endpoints = []string{DefaultEndpoint}
	}
	client := &Client{endpoints: failover.New(c.Endpoints), locate: c.Locate, token: c.Token,
		patience: cmp.Or(c.Patience, 10*time.Second)}
	for _, endpoint := range c.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, croft.Errorf(croft.Invalid, "%q is not an address of a manager of pools, such as %s", endpoint,
				DefaultEndpoint)
		}
	}
	if c.Transport != nil {
		client.http = &http.Client{Transport: c.Transport}
		return client, nil
	}
	t := egress.Internal()
	t.MaxIdleConnsPerHost = 64
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "the authority of the pools' servers: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, croft.Errorf(croft.Invalid, "%s has no certificate of an authority", c.CA)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	client.http = &http.Client{Transport: t}
	return client, nil
}

// CloseIdle closes idle connections.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// call is one idempotent request.
type call struct {
	method, path string
	query        url.Values
	body         any           // nil: no body
	patience     time.Duration // 0: until the context ends
}

// ask repeats a call until a server answers it, and decodes the answer into result: nil ignores it, *[]byte gets
// its bytes, any other value is decoded from JSON.
func (c *Client) ask(ctx context.Context, what call, result any) error {
	var body []byte
	if what.body != nil {
		var err error
		if body, err = json.Marshal(what.body); err != nil {
			return err
		}
	}
	asking := ctx
	if what.patience > 0 {
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, what.patience)
		defer cancel()
	}
	var failed error // of the newest attempt that failed for a reason other than its deadline
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		endpoint, next := c.endpoints.Current()
		var err error
		if c.locate != nil {
			endpoint, err = c.locate()
		}
		if err != nil {
			err = croft.Errorf(croft.Unavailable, "%w", err)
		} else {
			err = c.once(asking, endpoint, what, body, result)
		}
		if !errors.Is(err, croft.Unavailable) {
			return err
		}
		if asking.Err() != nil {
			return timeUp(ctx, failed, err)
		}
		failed = err
		if what.patience == 0 && c.warn != nil {
			c.warn(err.Error() + "; this is repeated until a manager answers")
		}
		next()
		select {
		case <-asking.Done():
			return timeUp(ctx, failed, err)
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
}

// timeUp returns the error of a call whose time is up.
func timeUp(ctx context.Context, failed, newest error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case failed != nil:
		return failed
	case ctx.Err() != nil: // no server had answered yet
		return ctx.Err()
	}
	return newest
}

// once makes a call to one server. Unavailable: another attempt may succeed.
func (c *Client) once(ctx context.Context, endpoint string, what call, body []byte, result any) error {
	target := endpoint + what.path
	if len(what.query) > 0 {
		target += "?" + what.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, what.method, target, bytes.NewReader(body))
	if err != nil {
		return croft.Errorf(croft.Invalid, "%s %s: %w", what.method, target, err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(r)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return croft.Errorf(croft.Unavailable,
			"no manager of pools runs at %s (%w); start one with `croft serve pool --pools pools.yaml`, or name another with --server", endpoint, plain(err))
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return croft.Errorf(croft.Invalid, "the manager of pools at %s speaks HTTP without TLS: name its http:// address with "+
			"--server", endpoint)
	}
	if err != nil {
		return croft.Errorf(croft.Unavailable, "the manager of pools at %s does not answer: %w", endpoint, plain(err))
	}
	defer resp.Body.Close()
	if sentence, err := strconv.Unquote(resp.Header.Get(WarningHeader)); err == nil && c.warn != nil {
		c.warn(sentence)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return croft.Errorf(croft.Unavailable, "the manager of pools at %s broke off: %w", endpoint, err)
	}
	if resp.StatusCode >= 300 {
		return failure(endpoint, resp, text)
	}
	return decode(endpoint, text, result)
}

func decode(endpoint string, text []byte, result any) error {
	if raw, ok := result.(*[]byte); ok {
		*raw = text
		return nil
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("the server at %s is not a manager of pools: %w", endpoint, err)
	}
	return nil
}

// plain removes the method and URL from an error of an HTTP client.
func plain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// failure returns the error in an answer.
func failure(endpoint string, resp *http.Response, text []byte) error {
	var f Failure
	if json.Unmarshal(text, &f) != nil || f.Error == "" {
		if resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusServiceUnavailable {
			return croft.Errorf(croft.Unavailable, "what answers at %s says %s", endpoint, resp.Status)
		}
		return fmt.Errorf("the server at %s is not a manager of pools: it says %s", endpoint, resp.Status)
	}
	if f.Kind == "" {
		return errors.New(f.Error)
	}
	if f.Refusal != nil {
		f.Refusal.sentence = f.Error
		return f.Refusal
	}
	return croft.Errorf(croft.Kind(f.Kind), "%s", f.Error)
}
