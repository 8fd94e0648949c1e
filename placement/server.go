package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"croft"
	"croft/internal/health"
)

// Config is what a server needs.
type Config struct {
	Store Store        // required
	Log   *slog.Logger // slog.Default() by default

	// Token is the administrator's: requests with it, alone or before a colon and a
	// project, may do everything, those with another token nothing but read the
	// versions. "admin" by default, as with the original's noauth2.
	Token string

	// Keystone has its tokens taken too; nil: none.
	Keystone *Keystone

	// ConsistentReads says which reads wait for what other servers have stored;
	// ConsistentClaims by default.
	ConsistentReads Consistency

	// Traces records requests that belong to a trace; nil: nobody does.
	Traces trace.TracerProvider

	// Randomize answers allocation candidates in random order, instead of one that
	// stays the same.
	Randomize bool

	// AccessLog tells every request at level Info instead of Debug.
	AccessLog bool

	// Retry is the pause before the store is asked again after a failure; 200 ms by default.
	Retry time.Duration

	// Patience is how long the store may take to answer, and to tell what it has
	// stored, before it counts as lost; 3 s by default.
	Patience time.Duration

	// Tidy is how often custom classes and traits are looked for that nobody uses; 1 m by
	// default.
	Tidy time.Duration

	// Beat is how often the store is asked for its revision where no request does so;
	// 1 s by default.
	Beat time.Duration
}

// Consistency says which reads see all that was stored before them, through whatever
// server. Every read sees what was written before through the same server, and every
// write decides on what is true when it is stored, a refused one too.
type Consistency string

// The reads that are consistent: none, those of allocations and usages, or all.
const (
	ConsistentNone   Consistency = "none"
	ConsistentClaims Consistency = "claims"
	ConsistentAll    Consistency = "all"
)

// covers tells whether reads of an endpoint are consistent.
func (c Consistency) covers(e endpoint) bool {
	return c == ConsistentAll || c == ConsistentClaims && e.claims
}

// Server answers the Placement API. Run keeps its memory up to date; requests that
// come while it does not run, or before the state is loaded, are answered 503.
type Server struct {
	store   Store
	log     *slog.Logger
	token   string
	callers *callers // nil without a Keystone
	config  Config
	metrics *metrics

	mu    sync.RWMutex
	state *state        // nil until loaded
	grown chan struct{} // closed and replaced whenever state gets a new revision

	session atomic.Pointer[session] // nil: none, and failing says why
	failing atomic.Pointer[error]
	newest  atomic.Int64  // the last revision that the store is known to have had
	loaded  chan struct{} // closed when the state is there
	stopped chan struct{} // closed when Run has ended
}

// New makes a server; it does nothing before Run.
func New(c Config) (*Server, error) {
	if c.Store == nil {
		return nil, croft.Errorf(croft.Invalid, "placement: Store is required")
	}
	if strings.Contains(c.Token, ":") {
		return nil, croft.Errorf(croft.Invalid, "placement: the token %q must not contain a colon", c.Token)
	}
	c.ConsistentReads = cmp.Or(c.ConsistentReads, ConsistentClaims)
	switch c.ConsistentReads {
	case ConsistentNone, ConsistentClaims, ConsistentAll:
	default:
		return nil, croft.Errorf(croft.Invalid, "placement: consistent reads are none, claims or all, not %q", c.ConsistentReads)
	}
	c.Retry = cmp.Or(c.Retry, 200*time.Millisecond)
	c.Beat = cmp.Or(c.Beat, time.Second)
	c.Patience = cmp.Or(c.Patience, 3*time.Second)
	c.Tidy = cmp.Or(c.Tidy, time.Minute)
	s := &Server{
		store:   c.Store,
		log:     cmp.Or(c.Log, slog.Default()),
		token:   cmp.Or(c.Token, "admin"),
		config:  c,
		grown:   make(chan struct{}),
		loaded:  make(chan struct{}),
		stopped: make(chan struct{}),
	}
	if c.Keystone != nil {
		var err error
		if s.callers, err = newCallers(*c.Keystone); err != nil {
			return nil, err
		}
	}
	s.metrics = newMetrics(s)
	starting := errors.New("the state is not loaded yet")
	s.failing.Store(&starting)
	return s, nil
}

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
