// Package placementclient speaks the Placement API, to croft's own server or to
// OpenStack's. It retries what others were faster at and what did not get through,
// within bounds; what it returns is of a croft kind and names the endpoint and the
// request. No other package builds Placement URLs.
package placementclient

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"croft"
	"croft/compute"
	"croft/schedule"
)

var (
	_ compute.Inventory = (*Client)(nil)
	_ schedule.Claims   = (*Client)(nil)
)

// Auth gives requests their token.
type Auth interface {
	// Authenticate readies the connection; it is called once, before the first
	// request, and installs whatever renews a token that has run out.
	Authenticate(ctx context.Context, provider *gophercloud.ProviderClient) error
}

// Token is an Auth that sends a fixed token, as Placement takes it without Keystone.
type Token string

// Authenticate implements Auth.
func (t Token) Authenticate(_ context.Context, provider *gophercloud.ProviderClient) error {
	provider.SetToken(string(t))
	return nil
}

// Config says where Placement is and how to speak to it.
type Config struct {
	Endpoint  string            // required, such as http://127.0.0.1:8778
	Auth      Auth              // Token("admin") by default
	Attempts  int               // for one request; 16 by default, some ten seconds; half of them where nothing answers at all
	Pause     time.Duration     // before the second attempt; doubles, with jitter; 10 ms by default
	Timeout   time.Duration     // of one attempt; 30 s by default
	Transport http.RoundTripper // nil: one of its own
}

// Client is a connection to a Placement. It may be used by many at once.
type Client struct {
	config  Config
	service *gophercloud.ServiceClient
	minor   atomic.Int64 // microversion 1.minor

	mu            sync.Mutex
	authenticated bool
}

// The microversions the client can work with: it begins with the newest it knows and
// goes down to what the server has. Before 1.34 there are no mappings, before 1.29 no
// trees.
const (
	newestMinor = 39
	oldestMinor = 29
	typedMinor  = 38 // from here on consumers have types
)

// New makes a client; it sends nothing.
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return nil, croft.Errorf(croft.Invalid, "placement.endpoint: %q is not a URL such as http://127.0.0.1:8778", c.Endpoint)
	}
	c.Endpoint = strings.TrimSuffix(c.Endpoint, "/")
	if c.Auth == nil {
		c.Auth = Token("admin")
	}
	c.Attempts, c.Pause = cmp.Or(c.Attempts, 16), cmp.Or(c.Pause, 10*time.Millisecond)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	if c.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 64
		c.Transport = t
	}
	provider := &gophercloud.ProviderClient{HTTPClient: http.Client{Transport: c.Transport, Timeout: c.Timeout}}
	provider.UseTokenLock()
	client := &Client{config: c,
		service: &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: c.Endpoint + "/", Type: "placement"}}
	client.minor.Store(newestMinor)
	return client, nil
}

// authenticate gets a token before the first request.
func (c *Client) authenticate(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authenticated {
		return nil
	}
	if err := c.config.Auth.Authenticate(ctx, c.service.ProviderClient); err != nil {
		return croft.Errorf(croft.Unavailable, "placement at %s: authenticate: %w", c.config.Endpoint, err)
	}
	c.authenticated = true
	return nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.service.HTTPClient.CloseIdleConnections() }
