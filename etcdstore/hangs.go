package etcdstore

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// closeHung closes connections to hung members, so that requests and watches switch to another member. It closes no
// connection if no other member answers, since that would not help.
func (s *conn) closeHung(ctx context.Context) {
	endpoints := s.etcd.Endpoints()
	suspects := s.conns.silent()
	if len(suspects) == 0 || len(endpoints) < 2 {
		return
	}
	answering, silent := s.statuses(ctx, endpoints)
	hung := map[string]bool{}
	for _, endpoint := range silent {
		hung[address(endpoint)] = len(answering) > 0
	}
	for conn, since := range suspects {
		if !hung[conn.address] {
			conn.excuse(since)
		} else if conn.owes().Equal(since) && ctx.Err() == nil {
			s.metrics.hung.Inc()
			_ = conn.Close()
		}
	}
}

// address returns the address that dial receives for an endpoint.
func address(endpoint string) string {
	if _, after, ok := strings.Cut(endpoint, "://"); ok && !strings.HasPrefix(endpoint, "unix") {
		return after
	}
	return endpoint
}

// pokeWatches makes the member that serves the watches answer, if there are any watches: it starts another watch, which
// uses the same stream.
func (s *conn) pokeWatches(ctx context.Context) {
	if s.watches.Load() == 0 || len(s.etcd.Endpoints()) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), watchPoke)
	defer cancel()
	<-s.etcd.Watch(ctx, homeKey, clientv3.WithCreatedNotify())
}

// watching registers a long-lived watch until the returned function is called.
func (s *conn) watching() (end func()) {
	s.watches.Add(1)
	return func() { s.watches.Add(-1) }
}
