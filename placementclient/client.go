// Package placementclient is a client of the Placement API, of croft's own server or OpenStack's. It retries concurrent
// updates and lost connections, within bounds; its errors have a croft kind and name the endpoint and the request. No
// other package builds Placement URLs.
package placementclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/compute"
	"croft/hosts"
	"croft/hosts/audit"
	"croft/internal/egress"
	"croft/internal/failover"
	"croft/placementclient/once"
	"croft/schedule"
)

var (
	_ compute.Inventory = (*Client)(nil)
	_ schedule.Claims   = (*Client)(nil)
	_ hosts.Claims      = (*Client)(nil)
	_ audit.Claims      = (*Client)(nil)
)

// Auth authenticates requests.
type Auth interface {
	// Authenticate prepares the connection before the first request, and installs the renewal of expired tokens. It is
	// called until it has succeeded once. Invalid: it cannot succeed. Unavailable: it may succeed later.
	Authenticate(ctx context.Context, provider *gophercloud.ProviderClient) error
	// Endpoint returns Placement's URL after Authenticate, if Config has none.
	Endpoint(provider *gophercloud.ProviderClient) (string, error)
	// Advice returns advice to the user for the case that Placement refuses a token.
	Advice() string
}

// StaticToken is an Auth with a fixed token, for a Placement without Keystone.
type StaticToken string

// Authenticate implements Auth.
func (t StaticToken) Authenticate(_ context.Context, provider *gophercloud.ProviderClient) error {
	provider.SetToken(string(t))
	return nil
}

// Endpoint implements Auth: a token gives no URL.
func (t StaticToken) Endpoint(*gophercloud.ProviderClient) (string, error) { return "", errNowhere("") }

// Advice implements Auth.
func (t StaticToken) Advice() string { return "see placement.token in the settings" }

func errNowhere(endpoint string) error {
	return croft.Errorf(croft.Invalid, "placement.endpoint: %q is not a URL such as http://127.0.0.1:8778", endpoint)
}

// Config configures a Client.
type Config struct {
	Endpoint  string            // http://127.0.0.1:8778, or several with commas; empty: Auth.Endpoint
	Auth      Auth              // Token("admin") by default
	Attempts  int               // per request; 20 by default, some 15 s; half as many if nothing answers
	Pause     time.Duration     // before the second attempt; doubles, with jitter; 10 ms by default
	Timeout   time.Duration     // per attempt; 30 s by default
	TLS       *tls.Config       // nil: the machine's CAs, no client certificate
	Transport http.RoundTripper // nil: a new one, with TLS
}

// Client is a client of a Placement. It is safe for concurrent use.
type Client struct {
	conn *connection

	// last time that the server was found to lack croft's own requests; nil: never
	foreignSince atomic.Pointer[time.Time]
}

// dialTimeout bounds connecting: a host that is switched off never answers, and there may be other endpoints.
const dialTimeout = 5 * time.Second

// New creates a client. It sends nothing.
func New(c Config) (*Client, error) {
	if c.Auth == nil {
		c.Auth = StaticToken("admin")
	}
	if _, token := c.Auth.(StaticToken); token || c.Endpoint != "" {
		for endpoint := range strings.SplitSeq(c.Endpoint, ",") {
			if !isURL(endpoint) {
				return nil, errNowhere(endpoint)
			}
		}
	}
	c.Attempts, c.Pause = cmp.Or(c.Attempts, 20), cmp.Or(c.Pause, 10*time.Millisecond)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	if c.Transport == nil {
		t := egress.Internal()
		t.MaxIdleConnsPerHost = 64
		t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
		if c.TLS != nil {
			t.TLSClientConfig = c.TLS.Clone()
		}
		c.Transport = t
	}
	counts := newMetrics()
	provider := &gophercloud.ProviderClient{HTTPClient: http.Client{Transport: measured{c.Transport, counts},
		Timeout: c.Timeout}}
	provider.UseTokenLock()
	conn := &connection{config: c, login: once.New(), metrics: counts,
		endpoints: failover.New(strings.Split(c.Endpoint, ",")),
		service:   &gophercloud.ServiceClient{ProviderClient: provider, Type: "placement"}}
	conn.minor.Store(newestMinor)
	return &Client{conn: conn}, nil
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme != "" && u.Host != ""
}

// SetEndpoints replaces the URLs of Placement, which are equivalent.
func (c *Client) SetEndpoints(all []string) { c.conn.endpoints.Set(all) }

// Close closes idle connections.
func (c *Client) Close() { c.conn.service.HTTPClient.CloseIdleConnections() }

// Collector returns the client's metrics.
func (c *Client) Collector() prometheus.Collector { return c.conn.metrics }
