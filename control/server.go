// Package control serves the API of the cloud over HTTP, to tenants and to operators. Its table of operations declares
// each once, in the file of its noun. Before anything is read for a request, its sender is authenticated and
// authorized, and the projects that the sender sees are known. Objects of other projects are answered with NotFound,
// and only operators learn anything about hosts.
package control

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/cloud"
	"croft/control/feed"
	"croft/control/forwarding"
	"croft/control/pace"
	pools "croft/pool/api"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// Config configures a Server.
type Config struct {
	Cloud   *cloud.Cloud         // required: Scheduler, Instances, Consoles, Keys and Hosts
	Objects *objects.Service     // required
	Callers access.Authenticator // required: as from access.First, which refuses unknown credentials
	Images  Images               // required
	Actions *actions.Recorder    // required; it has to run longer than the handler serves

	Reserved []croft.Project // projects that settings grant rights in: only operators create these

	Peers   *forwarding.Peers // other clouds that requests are forwarded to; nil: none
	Pools   *pools.Client     // of the manager of pools, with admin rights; nil: none
	Login   *api.Login        // where users may log in; nil: nowhere
	Page    Page              // makes links to the page for browsers; nil: this server has no page
	Version string            // of croft, for people
	Log     *slog.Logger      // discards by default
	Rate    rate.Limit        // requests per second of one caller who is no operator; 50 by default
	Burst   int               // more than that at once; 200 by default
}

// Page makes one-time links to the page for browsers.
type Page interface {
	// Link returns the address of a page that logs in once with credentials, and when it expires.
	Link(ctx context.Context, credentials string) (address string, expires time.Time, err error)
}

// Images decides which images requests may name.
type Images interface {
	// Reference converts a name of the catalog, or an address (with a slash, a colon or a #, such as a URL), into the
	// reference for hosts, and returns the architecture that the catalog states; empty: none. Invalid, NotFound.
	Reference(name string) (string, croft.Arch, error)
	// CheckSource refuses a reference whose address tenants may not name. Denied.
	CheckSource(reference string) error
	// Public reports whether hosts may fetch a reference that CheckSource permits only from the internet.
	Public(reference string) bool
	// List returns the catalog.
	List() (api.Catalog, error)
}

// Server serves the API. Run must run while its handler serves events.
type Server struct {
	Config
	limits *pace.Shared
	feed   *feed.Feed
	owners *owners // of the projects that the feed's changes name

	flows    *pace.Shares // streams that this cloud serves itself
	forwards *forwarding.Forwarding
	requests *prometheus.CounterVec
}

// New checks the config. It starts nothing.
func New(c Config) (*Server, error) {
	if c.Cloud == nil || c.Objects == nil || c.Callers == nil || c.Actions == nil || c.Images == nil {
		return nil, croft.Errorf(croft.Invalid, "control: Cloud, Objects, Callers, Actions and Images are required")
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Rate, c.Burst = cmp.Or(c.Rate, 50), cmp.Or(c.Burst, 200)
	s := &Server{Config: c, limits: pace.NewShared(c.Rate, c.Burst), feed: feed.New(),
		flows:    &pace.Shares{Each: flowsOfProject, All: flowsOfAll, Newcomers: flowsOfAll / 4},
		forwards: forwarding.New(c.Peers, c.Log), requests: newRequests()}
	s.owners = &owners{read: s.stored}
	return s, nil
}

// Maximum numbers of concurrent streams of tenants: events, consoles, logs and ports.
const (
	flowsOfProject = 128
	flowsOfAll     = 2048
)

// Run follows the changes of the cloud until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	begun := func(revision int64) {
		s.owners.forget()
		s.feed.Begin(revision)
	}
	return s.Cloud.Instances.Follow(ctx, begun, s.feed.Add)
}

// Close closes idle connections to peers. Nothing may be served afterwards.
func (s *Server) Close() { s.forwards.Close() }
