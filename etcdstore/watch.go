package etcdstore

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"
)

// watchRetry is the pause before a watch that lost its server lists again, plus a random time of up to the same length,
// so that many watches do not return at once.
const watchRetry = 500 * time.Millisecond

// follow calls seen for every existing key below prefix, then for every key that changes or disappears (value
// nil). After a compaction or a lost watch it lists again, and calls listed first, so that the caller can
// notice keys that disappeared in the meantime. It returns only when ctx ends.
func (s *conn) follow(ctx context.Context, prefix string, listed func(), seen func(*mvccpb.KeyValue, bool)) error {
	return s.followWhole(ctx, prefix, func(all []*mvccpb.KeyValue) {
		listed()
		for _, kv := range all {
			seen(kv, true)
		}
	}, seen)
}

// followWhole is like follow, for a caller that replaces its whole state by each list: listed gets all existing keys,
// and seen only later changes.
func (s *conn) followWhole(ctx context.Context, prefix string, listed func([]*mvccpb.KeyValue),
	seen func(*mvccpb.KeyValue, bool)) error {
	return s.keepWatching(ctx, func(ctx context.Context) {
		got, err := s.etcd.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return
		}
		listed(got.Kvs)
		for answer := range s.etcd.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(got.Header.Revision+1)) {
			if answer.Err() != nil {
				return
			}
			for _, event := range answer.Events {
				seen(event.Kv, event.Type == clientv3.EventTypePut)
			}
		}
	})
}

// keepWatching calls once until ctx ends. once lists and watches until its watch breaks for any reason; the next call
// is the retry.
func (s *conn) keepWatching(ctx context.Context, once func(context.Context)) error {
	for {
		s.watchOnce(ctx, once)
		if ctx.Err() == nil {
			s.metrics.broken.Inc()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watchRetry + rand.N(watchRetry)):
		}
	}
}

func (s *conn) watchOnce(ctx context.Context, once func(context.Context)) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel() // also ends the watch at the server
	defer s.watching()()
	once(ctx)
}

// disconnected returns as soon as no server can be reached, or when ctx ends. A client that waits for answers would
// notice late or never, because requests and watches wait for the connection to be restored.
func (s *conn) disconnected(ctx context.Context) error {
	conn := s.etcd.ActiveConnection()
	if conn == nil { // a server in this process
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for state := conn.GetState(); state != connectivity.TransientFailure &&
		state != connectivity.Shutdown; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			return context.Cause(ctx)
		}
	}
	return clientv3.ErrNoAvailableEndpoints
}

// awaitFree returns when a key has been deleted since the revision, or the watch broke.
func (s *conn) awaitFree(ctx context.Context, key string, from int64) {
	s.watchOnce(ctx, func(ctx context.Context) {
		for answer := range s.etcd.Watch(ctx, key, clientv3.WithRev(from)) {
			if answer.Err() != nil || slices.ContainsFunc(answer.Events, func(e *clientv3.Event) bool {
				return e.Type == clientv3.EventTypeDelete
			}) {
				return
			}
		}
	})
}
