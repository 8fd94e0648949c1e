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

// Config is the configuration of a Server.
type Config struct {
	Manager *pool.Manager // required
	// Tokens of authorized clients; nil: every request is an admin's.
	Tokens *Tokens
	// Quota of clients whose tokens have none; DefaultQuota by default.
	Quota Quota
	// Local: the server is for this machine only. Requests for another host's name are
	// refused, so that no web page reaches the server by DNS rebinding.
	Local bool
	// Peers is the transport to other servers, http.DefaultTransport by default.
	Peers http.RoundTripper
	// RPC is a second protocol for tickets; nil: there is none.
	RPC RPC
	Log *slog.Logger // discards by default
}

// Server serves a manager over HTTP.
type Server struct {
	Config
	metrics *metrics
	quotas  quotas
	streams chan struct{} // one for each page that is live
}

// maxStreams bounds the live pages.
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

// Handler serves the API and the page; see docs/pools-api.md.
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

// guard refuses requests that a web page of another origin makes.
func (s *Server) guard(next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := foreign.Check(r); err != nil {
			fail(w, croft.Errorf(croft.Invalid, "a web page from elsewhere asks for this: %w", err))
			return
		}
		if s.Local && r.Host != "" && !isLocal(r.Host) { // browsers name a host, old clients need not
			fail(w,
				croft.Errorf(croft.Invalid,
					"this server is for its own machine, and %q is no name of that: ask localhost, or give the server tokens", r.Host))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		next.ServeHTTP(w, r)
	})
}

// maxRequest bounds the body of any request; handlers have lower limits.
const maxRequest = 2 << 20

// Ready returns nil where a server acts, this one or another.
func (s *Server) Ready() error {
	if leader, here := s.Manager.Leader(); !here && !s.isOther(leader) {
		return errors.New("no server acts for the pools; one does within seconds, if etcd answers")
	}
	return nil
}

// Collector returns the metrics.
func (s *Server) Collector() prometheus.Collector { return s.metrics }

// leaderPatience is how long a request waits for a server to act, as during a takeover.
const leaderPatience = 10 * time.Second
