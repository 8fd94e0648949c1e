package server

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"croft"
	"croft/pool"
)

// Config joins a Server to what it needs.
type Config struct {
	Manager *pool.Manager // required
	// Tokens are those who may ask; nil: whoever reaches the server may do everything.
	Tokens *Tokens
	// Quota is what clients may open whose tokens say nothing else; DefaultQuota by default.
	Quota Quota
	// Local: only this machine is to reach the server, so that a name which leads here
	// from elsewhere is refused. A web page that somebody here looks at could else
	// reach it.
	Local bool
	// Peers is how other servers are reached, http.DefaultTransport by default.
	Peers http.RoundTripper
	// RPC is a second protocol for tickets; nil: there is none.
	RPC RPC
	Log *slog.Logger // discards by default
}

// Server answers over HTTP for a manager.
type Server struct {
	Config
	metrics *metrics
	quotas  quotas
	streams chan struct{} // one for each page that is live
}

// maxStreams bounds how many pages are live at once.
const maxStreams = 200

// New checks the config. Invalid.
func New(c Config) (*Server, error) {
	if c.Manager == nil {
		return nil, croft.Errorf(croft.Invalid, "server: Manager is required")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Peers == nil {
		c.Peers = http.DefaultTransport
	}
	if err := c.Quota.Check(); err != nil {
		return nil, err
	}
	s := &Server{Config: c, streams: make(chan struct{}, maxStreams), quotas: quotas{rate: map[string]*rate.Limiter{}}}
	s.metrics = newMetrics(s)
	return s, nil
}

// Handler answers requests; see docs/pools-api.md.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /page/", pageFiles)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
	mux.Handle("GET /{$}", s.here(s.page))
	mux.Handle("GET /events", s.here(s.events))
	mux.Handle("GET /pools", http.RedirectHandler("/#pools", http.StatusSeeOther))
	mux.Handle("GET /resources", http.RedirectHandler("/#resources", http.StatusSeeOther))
	mux.Handle("GET /api/stats", s.here(s.stats))
	if s.RPC != nil {
		rpc := s.only(RoleClient, s.here(s.RPC(s.tickets()).ServeHTTP))
		mux.Handle("/RPC2", rpc)
		mux.Handle("POST /{$}", rpc)
	}
	s.addAPI(mux)
	return s.metrics.watch(mux, s.guard(mux))
}

func (s *Server) tickets() Tickets { return Tickets{s} }

// guard refuses what a web page of somebody else has a browser ask.
func (s *Server) guard(next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := foreign.Check(r); err != nil {
			fail(w, croft.Errorf(croft.Invalid, "a web page from elsewhere asks for this: %w", err))
			return
		}
		if s.Local && r.Host != "" && !isLocal(r.Host) { // browsers name a host, old clients need not
			fail(w, croft.Errorf(croft.Invalid, "this server is for its own machine, and %q is no name of that: ask localhost, or give the server tokens", r.Host))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		next.ServeHTTP(w, r)
	})
}

// maxRequest bounds what any request brings; its readers want less.
const maxRequest = 2 << 20

// Ready returns nil where requests are answered: here, or by the server that acts.
func (s *Server) Ready() error {
	if leader, here := s.Manager.Leader(); !here && !s.isOther(leader) {
		return errors.New("no server acts for the pools; one does within seconds, if etcd answers")
	}
	return nil
}

// Collector is for /metrics.
func (s *Server) Collector() prometheus.Collector { return s.metrics }

// leaderPatience is how long a request waits for a server that acts, while one takes
// over from another.
const leaderPatience = 10 * time.Second
