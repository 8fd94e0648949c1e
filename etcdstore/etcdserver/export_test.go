package etcdserver

import (
	"time"

	"croft/internal/connlimit"
)

// Bounded limits the listeners to these numbers of connections and these times; ended is called for each connection
// that a listener closes, for clients or peers.
func (c Config) Bounded(clients, peers int, greet, drain time.Duration, ended func(peer bool)) Config {
	c.bounds = bounds{
		clients: connlimit.Limits{PerSource: clients, Total: clients, Ended: func() { ended(false) }},
		peers:   connlimit.Limits{PerSource: peers, Total: peers, Ended: func() { ended(true) }},
		greet:   greet, drain: drain,
	}
	return c
}

// PeerAddress returns the address at which other members reach the server.
func (s *Server) PeerAddress() string { return s.service.peers.Addr().String() }

// BelongTogether calls compare for a log and a database with this content: the member whose log it is, the entry on
// which the log is based, the members that its entries add, and the members in the database.
func BelongTogether(member string, from uint64, added, members []string) error {
	log := &logged{member: member, from: from, last: from + 10, added: map[string]bool{}}
	for _, id := range added {
		log.added[id] = true
	}
	db := &contents{applied: from + 5, members: map[string]bool{}}
	for _, id := range members {
		db.members[id] = true
	}
	return compare("etcd", log, db)
}
