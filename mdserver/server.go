package mdserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/internal/connlimit"
)

// Config configures a Server. Guests and Log are required.
type Config struct {
	Guests Guests
	Log    *slog.Logger

	// the cloud whose guests are served; a server without it is never treated as another cloud's
	Partition croft.PartitionID
	// the host whose guests are served; a server without it is never treated as another host's
	Host croft.HostID

	// Reserved returns an instance of another host's agent on this machine that needs that agent's server on the
	// bridge, so that this server leaves the address alone; empty: no such bridge exists. nil: not checked.
	Reserved func(ctx context.Context) (croft.InstanceID, error)

	Reports   Reports // stores guests' reports; nil: reports are rejected
	Passwords bool    // guests may post a password once, encrypted with one of their keys, and read it

	LookupTimeout time.Duration // timeout of a lookup in Guests; 2 s
	Lookups       int           // concurrent lookups in Guests; 32
	PerGuest      int           // connections per source address; 32
	Connections   int           // total connections; 4096, or this listener's share of the process's limit
}

// Server answers guests.
type Server struct {
	config  Config
	lookups chan struct{} // one value per lookup in flight
	seed    func() []byte // random bytes to seed a guest's random number generator
	tokens  tokens
	recent  recent // rate limit of guests' reports
	warned  recent // rate limit of warnings about addresses
	metrics *metrics
	trouble atomic.Pointer[error] // why Address is not served; nil: it is
}

// New returns a server that is not listening yet.
func New(c Config) (*Server, error) {
	if c.Guests == nil || c.Log == nil {
		return nil, croft.Errorf(croft.Invalid, "mdserver: Guests and Log are required")
	}
	c.LookupTimeout = cmp.Or(c.LookupTimeout, 2*time.Second)
	c.Lookups = cmp.Or(c.Lookups, 32)
	c.PerGuest = cmp.Or(c.PerGuest, 32)
	c.Connections = cmp.Or(c.Connections, min(4096, connlimit.OfProcess().Total))
	s := &Server{config: c, lookups: make(chan struct{}, c.Lookups), seed: randomSeed, tokens: newTokens(),
		metrics: newMetrics()}
	s.recent.pause, s.warned.pause = reportPause, warnPause
	s.trouble.Store(&errNotServing)
	return s, nil
}

// Collector returns the server's metrics.
func (s *Server) Collector() prometheus.Collector { return s.metrics }

// errNotServing is the state before the first attempt.
var errNotServing = croft.Errorf(croft.Unavailable, "guests are not served yet")

// Serve answers on l until ctx ends, which is no error, or l fails. It closes l and returns when all its connections
// and requests have ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error { return s.serve(ctx, l, nil) }

// serve does the work of Serve, with a function that finds the place of an address on the bridge.
func (s *Server) serve(ctx context.Context, l net.Listener, places placeOf) error {
	limited := connlimit.New(l, connlimit.Limits{
		PerSource: s.config.PerGuest, Total: s.config.Connections, EachAddress: true,
		Opened: s.metrics.connections.Inc, Ended: s.metrics.connections.Dec, Dropped: s.metrics.closed.Inc,
	})
	s.metrics.serving.Inc()
	defer s.metrics.serving.Dec()
	var requests sync.WaitGroup
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			defer requests.Done()
			s.metrics.measured(w, r, s.ServeHTTP)
		}),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       10 * time.Second,
		MaxHeaderBytes:    8 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return withConnection(ctx, c, places)
		},
		ErrorLog: slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			server.Close()
		}
	})
	err := server.Serve(limited)
	if stop() {
		server.Close()
	} else {
		<-stopped
	}
	limited.Wait()
	requests.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve metadata on %s: %w", l.Addr(), err)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost:
	default:
		notAllowed(w)
		return
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		refuse(w, http.StatusBadRequest, "the connection has no source address")
		return
	}
	addr := from.Addr().Unmap()
	if r.URL.Path == healthPath && fromHost(r.Context(), addr) {
		w.Header().Set(cloudHeader, string(s.config.Partition))
		w.Header().Set(hostHeader, string(s.config.Host))
		answer(w, []byte(healthBody), mimeText)
		return
	}
	guest, err := s.guest(r.Context(), addr)
	if err == nil {
		err = connectionOf(r.Context()).belongsTo(addr, guest)
	}
	if err != nil {
		s.refuseGuest(w, addr, err)
		return
	}
	s.serveGuest(w, r, guest)
}

// serveGuest answers an identified guest.
func (s *Server) serveGuest(w http.ResponseWriter, r *http.Request, g Guest) {
	switch path := strings.TrimRight(r.URL.Path, "/"); {
	case r.Method == http.MethodPut && path == tokenPath:
		s.giveToken(w, r, g)
	case r.Method == http.MethodPost && path == reportPath && s.config.Reports != nil:
		s.takeReport(w, r, g)
	case r.Method == http.MethodPost && s.takesPassword(path):
		s.takePassword(w, r, g)
	case r.Method == http.MethodPut || r.Method == http.MethodPost:
		notAllowed(w)
	case s.mayRead(w, r, g):
		s.read(w, r, g)
	}
}

// read answers with a file or a directory of the guest's tree.
func (s *Server) read(w http.ResponseWriter, r *http.Request, g Guest) {
	if s.takesPassword(strings.TrimRight(r.URL.Path, "/")) {
		s.givePassword(w, r, g)
		return
	}
	found, ok := tree(g, r.UserAgent(), s.seed).find(r.URL.Path)
	if !ok {
		refuse(w, http.StatusNotFound, "there is no "+strconv.QuoteToASCII(r.URL.Path)+" for this instance")
		return
	}
	body, mime := found.content()
	s.config.Log.Debug("metadata", "instance", g.ID, "op", r.URL.Path)
	answer(w, body, mime)
}

// tree contains everything that a guest can read. client is the reader's User-Agent.
func tree(g Guest, client string, seed func() []byte) node {
	nodes := append(ec2(g, client), lazyDir("openstack", func() []node { return openstack(g, seed) }))
	if files := g.croftFiles(); files != nil {
		nodes = append(nodes, dir(croftDir, files...))
	}
	return dir("", nodes...)
}

// guest looks up the instance that has addr. It waits for a free slot and gives up at the timeout.
func (s *Server) guest(ctx context.Context, addr netip.Addr) (Guest, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.LookupTimeout)
	defer cancel()
	select {
	case s.lookups <- struct{}{}:
		defer func() { <-s.lookups }()
	case <-ctx.Done():
		return Guest{}, croft.Errorf(croft.Unavailable, "wait for other questions: %w", ctx.Err())
	}
	g, err := s.config.Guests.Guest(ctx, addr)
	if !g.Address.IsValid() {
		g.Address = addr
	}
	return g, err
}

// warnPause is the minimum interval between warnings about an address, since its user can cause any number of them; the
// metrics count all.
const warnPause = time.Minute

// warn logs a warning about an address, at most once per warnPause.
func (s *Server) warn(addr netip.Addr, sentence string, args ...any) {
	if s.warned.enter(addr.String()) {
		s.config.Log.Warn(sentence, args...)
	}
}

// refuseGuest answers requests from an address that has no instance, or whose lookup failed; only the latter is logged.
func (s *Server) refuseGuest(w http.ResponseWriter, addr netip.Addr, err error) {
	if errors.Is(err, errSpoofed) {
		s.metrics.spoofed.Inc()
		s.warn(addr, "metadata: a guest uses the address of another and got nothing", "op", "lookup", "err", err)
	}
	if errors.Is(err, croft.NotFound) {
		refuse(w, http.StatusNotFound, "no instance of this host has the address "+addr.String())
		return
	}
	if !errors.Is(err, context.Canceled) { // otherwise the caller has disconnected
		s.warn(addr, "metadata: cannot find the instance with this address", "op", "lookup", "reason", addr.String(),
			"err", err)
	}
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, "the instance with the address "+addr.String()+
		" cannot be looked up now; ask again")
}
