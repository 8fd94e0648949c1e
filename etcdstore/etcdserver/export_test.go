package etcdserver

import (
	"time"

	"croft/internal/connlimit"
)

// Bounded has the listeners take so many connections, and let them so much time; ended is called for each that ends
// at the listener for clients, or that for peers.
func (c Config) Bounded(clients, peers int, greet, drain time.Duration, ended func(peer bool)) Config {
	c.bounds = bounds{
		clients: connlimit.Limits{PerSource: clients, Total: clients, Ended: func() { ended(false) }},
		peers:   connlimit.Limits{PerSource: peers, Total: peers, Ended: func() { ended(true) }},
		greet:   greet, drain: drain,
	}
	return c
}

// PeerAddress is where other members reach the server.
func (s *Server) PeerAddress() string { return s.service.peers.Addr().String() }
