package placementclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2"

	"croft"
	"croft/internal/failover"
	"croft/placementclient/once"
)

// concurrentUpdate is the code of a conflict that a retry may resolve.
const concurrentUpdate = "placement.concurrent_update"

// answerError is an error answer of Placement.
type answerError struct {
	endpoint string
	op       string // such as PUT /allocations/...
	status   int
	code     string
	detail   string
	request  string // ID of the request
	max      string // newest microversion of the server, if ours was refused
}

func (e *answerError) Error() string {
	text := fmt.Sprintf("placement at %s: %s: %d %s", e.endpoint, e.op, e.status, e.detail)
	if e.request != "" {
		text += " (" + e.request + ")"
	}
	return text
}

// Unwrap returns the kind of the error.
func (e *answerError) Unwrap() error { return e.kind() }

func (e *answerError) kind() croft.Kind {
	switch {
	case e.status == http.StatusNotFound:
		return croft.NotFound
	case e.status == http.StatusConflict, e.status == http.StatusPreconditionFailed:
		return croft.Conflict
	case e.status >= 500:
		return croft.Unavailable
	}
	return croft.Invalid
}

// is reports whether err is an answer with a status and, unless it is "", a code.
func is(err error, status int, code string) bool {
	e, ok := errors.AsType[*answerError](err)
	return ok && e.status == status && (code == "" || e.code == code)
}

// concurrent reports whether a request was refused because of a concurrent update.
func concurrent(err error) bool {
	return is(err, http.StatusConflict, concurrentUpdate) || is(err, http.StatusPreconditionFailed, "")
}

// The microversions that the client supports: it starts with the newest and falls back to the server's. Before 1.29
// providers have no trees.
const (
	newestMinor = 39
	oldestMinor = 29
	typedMinor  = 38 // consumers have types from here on
)

// connection sends requests to a Placement and retries transport errors.
type connection struct {
	config    Config
	service   *gophercloud.ServiceClient
	minor     atomic.Int64 // microversion 1.minor
	login     *once.Once
	endpoints *failover.Endpoints // a single empty string until the endpoint is known
	metrics   *metrics
}

// at returns the endpoint in use.
func (c *connection) at() string {
	endpoint, _ := c.endpoints.Current()
	return endpoint
}

// authenticate gets a token before the first request, and the endpoint unless it is configured.
func (c *connection) authenticate(ctx context.Context) error {
	return c.login.Do(ctx, func(ctx context.Context) error {
		provider := c.service.ProviderClient
		if err := c.config.Auth.Authenticate(ctx, provider); err != nil {
			return fmt.Errorf("reach Placement: %w", err)
		}
		if c.at() != "" {
			return nil
		}
		endpoint, err := c.config.Auth.Endpoint(provider)
		if err == nil && !isURL(endpoint) {
			err = errNowhere(endpoint)
		}
		if err != nil {
			return fmt.Errorf("reach Placement: %w", err)
		}
		c.endpoints.Set([]string{endpoint})
		return nil
	})
}

// call sends one request and decodes the answer into out, unless out is nil. It retries lost connections and, for
// longer, a 503, which is the answer while etcd elects a leader. body is sent as JSON; nil: no body.
func (c *connection) call(ctx context.Context, method, path string, body, out any) error {
	return c.callAt(ctx, newestMinor, method, path, body, out)
}

// callAt is like call, with a microversion of at most 1.newest.
func (c *connection) callAt(ctx context.Context, newest int64, method, path string, body, out any) error {
	var err error
	for attempt := range c.config.Attempts {
		if attempt > 0 {
			c.metrics.retries.Inc()
			if err := c.pause(ctx, attempt); err != nil {
				return err
			}
		}
		_, next := c.endpoints.Current()
		if err = c.once(ctx, newest, method, path, body, out); !errors.Is(err, croft.Unavailable) || ctx.Err() != nil {
			return err
		}
		next()
		if _, answered := errors.AsType[*answerError](err); !answered && attempt+1 >= c.config.Attempts/2 {
			return err
		}
	}
	return err
}

// pause waits before an attempt. The pause doubles each time, with a jitter of ±50 %.
func (c *connection) pause(ctx context.Context, attempt int) error {
	d := min(c.config.Pause<<min(attempt-1, 10), time.Second)
	select {
	case <-time.After(d/2 + rand.N(d)):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait to ask Placement at %s again: %w", c.at(), ctx.Err())
	}
}

// once sends a request at the microversion known to work, or negotiates one.
func (c *connection) once(ctx context.Context, newest int64, method, path string, body, out any) error {
	if err := c.authenticate(ctx); err != nil {
		return err
	}
	for {
		minor := min(c.minor.Load(), newest)
		err := c.send(ctx, minor, method, path, body, out)
		if !is(err, http.StatusNotAcceptable, "") {
			return err
		}
		if err := c.lower(minor, err); err != nil {
			return err
		}
	}
}

// lower switches to the server's newest microversion.
func (c *connection) lower(minor int64, err error) error {
	refused, _ := errors.AsType[*answerError](err)
	major, text, _ := strings.Cut(refused.max, ".")
	n, parseErr := strconv.ParseInt(text, 10, 64)
	if parseErr != nil || major != "1" || n >= minor {
		return err
	}
	if n < oldestMinor {
		return croft.Errorf(croft.Invalid, "placement at %s has microversions up to %s and croft needs 1.%d; use a "+
			"newer Placement", c.at(), refused.max, oldestMinor)
	}
	for known := c.minor.Load(); n < known && !c.minor.CompareAndSwap(known, n); known = c.minor.Load() {
	}
	return nil
}

// again repeats do after concurrent updates; do must read its input again each time.
func (c *connection) again(ctx context.Context, do func() error) error {
	var err error
	for attempt := range c.config.Attempts {
		if attempt > 0 {
			if err := c.pause(ctx, attempt); err != nil {
				return err
			}
		}
		if err = do(); !concurrent(err) {
			return err
		}
	}
	return err
}

// versioned is a body that depends on the microversion.
type versioned interface{ at(minor int64) any }

// conditional is a body that must replace only the given version; empty: any version.
type conditional interface{ over() (version string) }

// tagged is an answer that keeps the version of the object that was read; empty: the server reports none.
type tagged interface{ tag(version string) }

// decoder is an answer that decodes itself.
type decoder interface{ decode(content []byte) error }

// reader is an answer that reads the body itself, because it may be large.
type reader interface{ read(body io.Reader) error }

// headed is an answer that also reads the response header.
type headed interface{ readHeader(http.Header) }

func (c *connection) send(ctx context.Context, minor int64, method, path string, body, out any) error {
	options := &gophercloud.RequestOpts{
		OkCodes:          []int{200, 201, 204},
		KeepResponseBody: true,
		MoreHeaders: map[string]string{
			"OpenStack-API-Version":  fmt.Sprintf("placement 1.%d", minor),
			"X-Openstack-Request-Id": "req-" + uuid.NewString(),
			// croft's Placement omits the parts of candidates that are not used here, and lets claims on a provider
			// that has become smaller than its use stay, or become smaller
			"Prefer": "return=minimal, capacity-check=increases",
		},
	}
	if b, ok := body.(conditional); ok && b.over() != "" {
		options.MoreHeaders["If-Match"] = b.over()
	}
	if v, ok := body.(versioned); ok {
		body = v.at(minor)
	}
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode the request to Placement: %w", err)
		}
		options.RawBody = bytes.NewReader(encoded)
		options.MoreHeaders["Content-Type"] = "application/json"
	}
	resp, err := c.service.Request(ctx, method, c.at()+path, options)
	if err != nil {
		return c.wrap(ctx, method+" "+path, err)
	}
	defer resp.Body.Close()
	if own, ok := out.(reader); ok {
		if err := own.read(resp.Body); err != nil {
			return croft.Errorf(croft.Unavailable, "placement at %s: read the answer to %s %s: %w", c.at(), method,
				path, err)
		}
		return nil
	}
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return c.wrap(ctx, method+" "+path, err)
	}
	if t, ok := out.(tagged); ok {
		t.tag(resp.Header.Get("ETag"))
	}
	if h, ok := out.(headed); ok {
		h.readHeader(resp.Header)
	}
	if out == nil || len(content) == 0 {
		return nil
	}
	decode := func(content []byte) error { return json.Unmarshal(content, out) }
	if own, ok := out.(decoder); ok {
		decode = own.decode
	}
	if err := decode(content); err != nil {
		return croft.Errorf(croft.Unavailable, "placement at %s: read the answer to %s %s: %w", c.at(), method, path,
			err)
	}
	return nil
}

// wrap converts an error of gophercloud, either an error answer or a transport error, to one with our kind and message.
func (c *connection) wrap(ctx context.Context, op string, err error) error {
	if again, ok := errors.AsType[*gophercloud.ErrUnableToReauthenticate](err); ok {
		return c.wrapRenewal(ctx, op, again.ErrReauth)
	}
	answered, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	if !ok {
		if ctx.Err() != nil {
			return fmt.Errorf("placement at %s: %s: %w", c.at(), op, context.Cause(ctx))
		}
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return croft.Errorf(croft.Unavailable, "placement at %s does not answer (%w); is `croft up` or Placement "+
			"running there? See placement.endpoint in the settings", c.at(), err)
	}
	e := &answerError{endpoint: c.at(), op: op, status: answered.Actual,
		request: answered.ResponseHeader.Get("X-Openstack-Request-Id")}
	var body struct {
		Errors []struct {
			Detail string `json:"detail"`
			Code   string `json:"code"`
			Max    string `json:"max_version"`
		} `json:"errors"`
	}
	if json.Unmarshal(answered.Body, &body) == nil && len(body.Errors) > 0 {
		first := body.Errors[0]
		e.code, e.max, e.detail = first.Code, first.Max, tidy(first.Detail)
	}
	if e.detail == "" {
		e.detail = http.StatusText(e.status)
	}
	if e.status == http.StatusUnauthorized || e.status == http.StatusForbidden {
		return croft.Errorf(croft.Invalid, "placement at %s refuses the token (%w); %s", c.at(), e,
			c.config.Auth.Advice())
	}
	return e
}

// wrapRenewal wraps the error of a failed renewal of an expired token. One request renews the token for all; if that
// request is cancelled, another one tries.
func (c *connection) wrapRenewal(ctx context.Context, op string, err error) error {
	if ctx.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return croft.Errorf(croft.Unavailable, "placement at %s: %s: renew the token: %w", c.at(), op, err)
	}
	return fmt.Errorf("placement at %s: %s: renew the token: %w", c.at(), op, err)
}

// tidy removes the explanation of the status at the start of details, and everything after the first sentence of a
// schema error.
func tidy(detail string) string {
	if _, after, ok := strings.Cut(detail, "\n\n"); ok && strings.TrimSpace(after) != "" {
		detail = after
	}
	detail, _, _ = strings.Cut(detail, "  Failed validating")
	return strings.Join(strings.Fields(detail), " ")
}
