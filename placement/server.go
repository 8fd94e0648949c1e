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

	"croft"
)

// Config is what a server needs.
type Config struct {
	Store Store        // required
	Log   *slog.Logger // slog.Default() by default

	// Token is the administrator's: requests with it, alone or before a colon and a
	// project, may do everything, those with another token nothing but read the
	// versions. "admin" by default, as with the original's noauth2.
	Token string

	// ConsistentReads has every read wait for what other servers have stored. Writes,
	// claims among them, are consistent in any case.
	ConsistentReads bool

	// Randomize answers allocation candidates in random order, instead of one that
	// stays the same.
	Randomize bool

	// Retry is the pause before the store is asked again after a failure; 200 ms by default.
	Retry time.Duration
}

// Server answers the Placement API. Run keeps its memory up to date; requests that
// come while it does not run, or before the state is loaded, are answered 503.
type Server struct {
	store   Store
	log     *slog.Logger
	token   string
	config  Config
	metrics *metrics

	mu    sync.RWMutex
	state *state        // nil until loaded
	grown chan struct{} // closed and replaced whenever state gets a new revision

	writes  chan *write
	loaded  chan struct{} // closed when the state is there
	stopped chan struct{} // closed when Run has ended
	failing atomic.Pointer[error]
}

// New makes a server; it does nothing before Run.
func New(c Config) (*Server, error) {
	if c.Store == nil {
		return nil, croft.Errorf(croft.Invalid, "placement: Store is required")
	}
	if strings.Contains(c.Token, ":") {
		return nil, croft.Errorf(croft.Invalid, "placement: the token %q must not contain a colon", c.Token)
	}
	c.Retry = cmp.Or(c.Retry, 200*time.Millisecond)
	s := &Server{
		store:   c.Store,
		log:     cmp.Or(c.Log, slog.Default()),
		token:   cmp.Or(c.Token, "admin"),
		config:  c,
		grown:   make(chan struct{}),
		writes:  make(chan *write),
		loaded:  make(chan struct{}),
		stopped: make(chan struct{}),
	}
	s.metrics = newMetrics(s)
	starting := errors.New("the state is not loaded yet")
	s.failing.Store(&starting)
	return s, nil
}

// Collector gives the server's metrics.
func (s *Server) Collector() prometheus.Collector { return s.metrics }

// Run loads the state and follows it until ctx ends; it may be called once. When it
// returns, every write that was under way has been answered.
func (s *Server) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	defer close(s.stopped)
	loaded := false
	for ctx.Err() == nil {
		revision, err := s.load(ctx)
		if err == nil {
			first := !loaded
			if first {
				loaded = true
				work.Go(func() { s.commitAll(ctx) })
			}
			s.failing.Store(nil)
			if first {
				close(s.loaded)
			}
			err = s.store.Watch(ctx, revision, s.follow)
		}
		if ctx.Err() != nil {
			break
		}
		s.failing.Store(&err)
		s.log.Warn("placement state is not up to date", "op", "watch", "err", err)
		select {
		case <-time.After(s.config.Retry):
		case <-ctx.Done():
		}
	}
	return nil
}

func (s *Server) load(ctx context.Context) (int64, error) {
	snapshot, err := s.store.Load(ctx)
	if err != nil {
		return 0, fmt.Errorf("load the state: %w", err)
	}
	fresh := newState(time.Now())
	if err := fresh.apply(max(snapshot.Revision, 1), snapshot.Entries); err != nil {
		return 0, fmt.Errorf("load the state: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == nil || s.state.revision < fresh.revision {
		s.state = fresh
		s.announce()
	}
	return s.state.revision, nil
}

// follow takes in what the watch tells.
func (s *Server) follow(revision int64, entries []Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.state.apply(revision, entries); err != nil {
		s.log.Error("an entry cannot be read; the rest is served", "op", "follow", "err", err)
		s.state.revision = revision
	}
	s.announce()
}

// announce wakes those who wait for a revision. The caller holds mu.
func (s *Server) announce() {
	close(s.grown)
	s.grown = make(chan struct{})
}

// Ready returns nil when the server has the state and follows it, else the reason.
func (s *Server) Ready() error {
	if err := s.failing.Load(); err != nil {
		return croft.Errorf(croft.Unavailable, "placement: %w", *err)
	}
	return nil
}

// WaitReady returns when the state has been loaded. Unavailable: it has not been
// before ctx ended, or never will be.
func (s *Server) WaitReady(ctx context.Context) error {
	select {
	case <-s.loaded:
		return nil
	case <-s.stopped:
		return croft.Errorf(croft.Unavailable, "placement: %w", errStopped)
	case <-ctx.Done():
		return croft.Errorf(croft.Unavailable, "placement: the state could not be loaded in time: %w", cmp.Or(s.Ready(), ctx.Err()))
	}
}

// Handler serves the API, /readyz (200 or 503) and /healthz (200).
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" || r.URL.Path == "/healthz" {
			mux.ServeHTTP(w, r)
			return
		}
		s.ServeHTTP(w, r)
	})
}
