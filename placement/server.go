package placement

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"croft"
	"croft/internal/health"
	"croft/placement/ledger"
)

// Config is what a server needs.
type Config struct {
	Store ledger.Store // required
	Log   *slog.Logger // slog.Default() by default

	// Token is the administrator's: a request with it, alone or before a colon and a project, may do everything, one
	// with another token may only read the versions. "admin" by default, as with the original's noauth2.
	Token string

	// Keystone has its tokens taken too; nil: no Keystone.
	Keystone *Keystone

	// ConsistentReads says which reads wait for what other servers have stored; ConsistentClaims by default.
	ConsistentReads Consistency

	// Traces records requests that belong to a trace; nil: nothing is recorded.
	Traces trace.TracerProvider

	// Randomize answers allocation candidates in random order, instead of one that stays the same.
	Randomize bool

	// AccessLog logs every request at level Info instead of Debug.
	AccessLog bool

	// These are the ledger's.
	Retry, Patience, Tidy, Beat time.Duration
}

// Consistency says which reads see all that was stored before them, through whatever server. Every read sees what was
// written before through the same server, and every write, a refused one too, decides on what is true when it is
// stored.
type Consistency string

// The reads that are consistent: none, those of allocations and usages, or all.
const (
	ConsistentNone   Consistency = "none"
	ConsistentClaims Consistency = "claims"
	ConsistentAll    Consistency = "all"
)

// covers tells whether reads are consistent that depend on claims, or do not.
func (c Consistency) covers(claims bool) bool {
	return c == ConsistentAll || c == ConsistentClaims && claims
}

// Server answers the Placement API out of a ledger, which Run keeps up to date. Requests that come while it does not
// run, or before the state is loaded, are answered 503.
type Server struct {
	ledger  *ledger.Ledger
	log     *slog.Logger
	callers *callers
	routes  router
	access  accessLog
	config  Config
	metrics *metrics
}

// New makes a server. It does nothing before Run.
func New(c Config) (*Server, error) {
	l, err := ledger.New(ledger.Config{Store: c.Store, Log: c.Log, Retry: c.Retry, Patience: c.Patience, Tidy: c.Tidy,
		Beat: c.Beat})
	if err != nil {
		return nil, err
	}
	if strings.Contains(c.Token, ":") {
		return nil, croft.Errorf(croft.Invalid, "placement: the token %q must not contain a colon", c.Token)
	}
	c.ConsistentReads = cmp.Or(c.ConsistentReads, ConsistentClaims)
	switch c.ConsistentReads {
	case ConsistentNone, ConsistentClaims, ConsistentAll:
	default:
		return nil, croft.Errorf(croft.Invalid, "placement: consistent reads are none, claims or all, not %q",
			c.ConsistentReads)
	}
	callers, err := newCallers(cmp.Or(c.Token, "admin"), c.Keystone)
	if err != nil {
		return nil, err
	}
	s := &Server{ledger: l, log: cmp.Or(c.Log, slog.Default()), callers: callers, routes: newRouter(l, c.Randomize),
		config: c, metrics: newMetrics(l)}
	if s.access = (accessLog{s.log, slog.LevelDebug}); c.AccessLog {
		s.access.level = slog.LevelInfo
	}
	return s, nil
}

// Run loads the state and follows the store until ctx ends. It may be called once. When it returns, every request that
// was being served has its answer.
func (s *Server) Run(ctx context.Context) error { return s.ledger.Run(ctx) }

// Ready returns nil when requests are served, else the reason.
func (s *Server) Ready() error { return s.ledger.Ready() }

// WaitReady returns when the state has been loaded. Unavailable: ctx or Run ended before.
func (s *Server) WaitReady(ctx context.Context) error { return s.ledger.WaitReady(ctx) }

// Collector gives the server's metrics.
func (s *Server) Collector() prometheus.Collector { return s.metrics }

// Handler serves the API, /readyz (200 or 503), /livez and its older name /healthz (200).
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	checks := health.Checks{Cheap: true}
	checks.Add("placement", func(context.Context) error { return s.Ready() })
	checks.Register(mux)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/readyz", "/livez", "/healthz":
			mux.ServeHTTP(w, r)
			return
		}
		s.ServeHTTP(w, r)
	})
}
