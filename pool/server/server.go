package server

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"croft"
	"croft/internal/egress"
	"croft/pool"
)

// Config is the configuration of a Server.
type Config struct {
	Manager *pool.Manager // required
	// Tokens of authorized clients; nil: every request is an admin's.
	Tokens *PoolTokens
	// Quota of clients whose tokens have none; DefaultQuota by default.
	Quota Quota
	// Local says that the server is for this machine only. Requests for another host's name are refused, so that no web
	// page reaches the server by DNS rebinding.
	Local bool
	// Page is the address of the pools in the page of the cloud, to which browsers are led; empty: the server's own
	// page is served.
	Page string
	// Peers is the transport to other servers; nil: an internal one.
	Peers http.RoundTripper
	// RPC is a second protocol for tickets; nil: no second protocol is served.
	RPC RPC
	Log *slog.Logger // discards by default
}

// Server serves a manager over HTTP.
type Server struct {
	Config
	metrics *metrics
	quotas  quotas
	streams chan struct{} // one per live page
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
		c.Peers = egress.Internal()
	}
	if err := c.Quota.Check(); err != nil {
		return nil, err
	}
	s := &Server{Config: c, streams: make(chan struct{}, maxStreams), quotas: quotas{rate: map[string]*rate.Limiter{}}}
	s.metrics = newMetrics(c.Manager, func() int { return len(s.streams) })
	return s, nil
}

// Ready returns nil if a server leads, this one or another.
func (s *Server) Ready() error {
	if leader, here := s.Manager.Leader(); !here && !s.isOther(leader) {
		return errors.New("no server acts for the pools; one does within seconds, if etcd answers")
	}
	return nil
}

// Collector returns the metrics.
func (s *Server) Collector() prometheus.Collector { return s.metrics }
