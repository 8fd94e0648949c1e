// Package mdserver tells instances who they are: over HTTP, as the EC2 and the
// OpenStack tree of metadata, and as the files of a NoCloud or config-2 disk. It
// takes what they report of themselves.
//
// A guest is known by the bridge and the source address of its TCP connection, and
// the address must be at one of the guest's own network cards, and that card at its own
// port of the bridge; no header is believed. What does not exist is answered at once with 404,
// since guests wait for that while they boot; what cannot be answered in time
// with 503. A guest that opens many connections, or slow ones, loses its own
// oldest and nobody else's.
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

// Config of a Server. Guests and Log are required.
type Config struct {
	Guests Guests
	Log    *slog.Logger

	Partition croft.PartitionID // the cloud whose guests are served; one without it passes for any

	Reports   Reports // takes what guests tell; nil: nobody listens, and they learn that at once
	Passwords bool    // guests may post a password once, encrypted with a key of theirs, and read it

	LookupTimeout time.Duration // of one question to Guests; 2 s
	Lookups       int           // questions to Guests at once; 32
	PerGuest      int           // connections of one source address; 32
	Connections   int           // connections in all; 4096, or this listener's share of what the process may open
}

// Server answers guests.
type Server struct {
	config  Config
	lookups chan struct{} // holds one value for each question that is being asked
	seed    func() []byte // random bytes for a guest's own random number generator
	tokens  tokens
	recent  recent // reports of guests
	warned  recent // warnings about addresses
	metrics *metrics
	trouble atomic.Pointer[error] // why Address is not served; nil where it is
}

// New returns a server that does nothing yet.
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

// Collector gives the server's metrics.
func (s *Server) Collector() prometheus.Collector { return s.metrics }

// errNotServing is so until the first attempt.
var errNotServing = croft.Errorf(croft.Unavailable, "guests are not served yet")

// Serve answers on l until ctx ends, which is no error, or l does. It closes l
// and returns when all its connections and requests have ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error { return s.serve(ctx, l, nil) }

// serve is Serve, with a way to find where on the bridge an address is.
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

// serveGuest answers a guest that is known.
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

// tree is everything that a guest can read. client is what the reader calls itself.
func tree(g Guest, client string, seed func() []byte) node {
	nodes := append(ec2(g, client), lazyDir("openstack", func() []node { return openstack(g, seed) }))
	if files := g.croftFiles(); files != nil {
		nodes = append(nodes, dir(croftDir, files...))
	}
	return dir("", nodes...)
}

// guest asks whose addr is, when its turn comes, and gives up in time.
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

// warnPause is how long an address is in no other warning, since whoever uses it can
// bring about as many as it likes; the metrics count all.
const warnPause = time.Minute

// warn logs a warning about an address, unless there was one within warnPause.
func (s *Server) warn(addr netip.Addr, sentence string, args ...any) {
	if s.warned.enter(addr.String()) {
		s.config.Log.Warn(sentence, args...)
	}
}

// refuseGuest answers for an address that is nobody's, or whose owner cannot be
// told now; only the latter is worth a line in the log.
func (s *Server) refuseGuest(w http.ResponseWriter, addr netip.Addr, err error) {
	if errors.Is(err, errSpoofed) {
		s.metrics.spoofed.Inc()
		s.warn(addr, "metadata: a guest uses the address of another and got nothing", "op", "lookup", "err", err)
	}
	if errors.Is(err, croft.NotFound) {
		refuse(w, http.StatusNotFound, "no instance of this host has the address "+addr.String())
		return
	}
	if !errors.Is(err, context.Canceled) { // else who asked has gone
		s.warn(addr, "metadata: cannot tell whose address this is", "op", "lookup", "reason", addr.String(), "err", err)
	}
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, "the instance with the address "+addr.String()+
		" cannot be looked up now; ask again")
}
