// Package mdserver tells instances who they are: over HTTP, as the EC2 and the
// OpenStack tree of metadata, and as the files of a NoCloud disk.
//
// A guest is known by the source address of its TCP connection and by nothing
// else; no header is believed. What does not exist is answered at once with 404,
// since guests wait for that while they boot; what cannot be answered in time
// with 503. A guest that opens many connections, or slow ones, loses its own
// oldest and nobody else's.
package mdserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"croft"
)

// Config of a Server. Guests and Log are required.
type Config struct {
	Guests Guests
	Log    *slog.Logger

	LookupTimeout time.Duration // of one question to Guests; 2 s
	Lookups       int           // questions to Guests at once; 32
	PerGuest      int           // connections of one source address; 32
	Connections   int           // connections in all; 4096
}

// Server answers guests.
type Server struct {
	config  Config
	lookups chan struct{} // holds one value for each question that is being asked
	seed    func() []byte // random bytes for a guest's own random number generator
}

// New returns a server that does nothing yet.
func New(c Config) (*Server, error) {
	if c.Guests == nil || c.Log == nil {
		return nil, croft.Errorf(croft.Invalid, "mdserver: Guests and Log are required")
	}
	c.LookupTimeout = cmp.Or(c.LookupTimeout, 2*time.Second)
	c.Lookups = cmp.Or(c.Lookups, 32)
	c.PerGuest = cmp.Or(c.PerGuest, 32)
	c.Connections = cmp.Or(c.Connections, 4096)
	return &Server{config: c, lookups: make(chan struct{}, c.Lookups), seed: randomSeed}, nil
}

func randomSeed() []byte {
	seed := make([]byte, 512) // as much as Nova gives
	rand.Read(seed)           // never fails
	return seed
}

// Serve answers on l until ctx ends, which is no error, or l does. It closes l
// and returns when all its connections and requests have ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	limited := newLimiter(l, s.config.PerGuest, s.config.Connections)
	var requests sync.WaitGroup
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			defer requests.Done()
			s.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       10 * time.Second,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
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
	limited.wait()
	requests.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve metadata on %s: %w", l.Addr(), err)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "metadata can be read, not written")
		return
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		refuse(w, http.StatusBadRequest, "the connection has no source address")
		return
	}
	addr := from.Addr().Unmap()
	if r.URL.Path == healthPath && fromHost(r.Context(), addr) {
		answer(w, []byte(healthBody), mimeText)
		return
	}
	guest, err := s.guest(r.Context(), addr)
	if err != nil {
		s.refuseGuest(w, addr, err)
		return
	}
	found, ok := tree(guest, s.seed).find(r.URL.Path)
	if !ok {
		refuse(w, http.StatusNotFound, "there is no "+strconv.QuoteToASCII(r.URL.Path)+" for this instance")
		return
	}
	body, mime := found.content()
	s.config.Log.Debug("metadata", "instance", guest.ID, "op", r.URL.Path)
	answer(w, body, mime)
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

// refuseGuest answers for an address that is nobody's, or whose owner cannot be
// told now; only the latter is worth a line in the log.
func (s *Server) refuseGuest(w http.ResponseWriter, addr netip.Addr, err error) {
	if errors.Is(err, croft.NotFound) {
		refuse(w, http.StatusNotFound, "no instance of this host has the address "+addr.String())
		return
	}
	s.config.Log.Warn("metadata: cannot tell whose address this is", "op", "lookup", "reason", addr.String(), "err", err)
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, "the instance with the address "+addr.String()+" cannot be looked up now; ask again")
}

func answer(w http.ResponseWriter, body []byte, mime string) {
	w.Header().Set("Content-Type", mime)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body) // an error means that the guest has gone
}

func refuse(w http.ResponseWriter, status int, sentence string) {
	w.Header().Set("Content-Type", mimeText)
	w.WriteHeader(status)
	fmt.Fprintln(w, sentence)
}
