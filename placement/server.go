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

// Config configures a server.
type Config struct {
	Store ledger.Store // required
	Log   *slog.Logger // slog.Default() by default

	// Token is the administrator's: a request with it, alone or followed by a colon and a project, may do everything; a
	// request with any other token may only read the versions. "admin" by default, as with the original's noauth2.
	Token string

	// Keystone configures that tokens of a Keystone are accepted too; nil: they are not.
	Keystone *Keystone

	// Partition is the partition of Store, which the server tells its clients; empty: the server does not tell it.
	Partition croft.PartitionID

	// ConsistentReads selects the reads that wait for writes through other servers; ConsistentClaims by default.
	ConsistentReads Consistency

	// Traces records requests that belong to a trace; nil: tracing is off.
	Traces trace.TracerProvider

	// Randomize returns allocation candidates in random instead of stable order.
	Randomize bool

	// AccessLog logs every request at level Info instead of Debug.
	AccessLog bool

	// Passed to the ledger.
	Retry, Patience, Tidy, Beat time.Duration
}

// Consistency selects the reads that see everything stored before them through any server. Every read sees earlier
// writes through the same server, and every write, even a refused one, is decided on the state at the moment of its
// commit.
type Consistency string

// Which reads are consistent: none, only reads of allocations and usages, or all.
const (
	ConsistentNone   Consistency = "none"
	ConsistentClaims Consistency = "claims"
	ConsistentAll    Consistency = "all"
)

// covers reports whether reads that depend on claims are consistent or, if claims is false, reads that do not.
func (c Consistency) covers(claims bool) bool {
	return c == ConsistentAll || c == ConsistentClaims && claims
}

// Server answers the Placement API from a ledger, which Run keeps up to date. Until the state is loaded, and while Run
// is not active, it answers 503.
type Server struct {
	ledger  *ledger.Ledger
	log     *slog.Logger
	callers *callers
	routes  router
	access  accessLog
	config  Config
	metrics *metrics
}

// New creates a server, and starts nothing.
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

// Run loads the state and follows the store until ctx ends. It may be called once. It returns only when every in-flight
// request has its answer.
func (s *Server) Run(ctx context.Context) error { return s.ledger.Run(ctx) }

// Ready returns nil while requests are served, else the reason.
func (s *Server) Ready() error { return s.ledger.Ready() }

// WaitReady returns once the state has been loaded. Unavailable: ctx or Run ended first.
func (s *Server) WaitReady(ctx context.Context) error { return s.ledger.WaitReady(ctx) }

// Collector returns the server's metrics.
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
		case "/":
			if s.config.Partition != "" {
				w.Header().Set(partitionHeader, string(s.config.Partition))
			}
		}
		s.ServeHTTP(w, r)
	})
}
