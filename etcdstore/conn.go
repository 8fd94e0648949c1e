package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
)

// conn is the connection and the state that the types of a Store share. A Store has one type for each kind of record.
type conn struct {
	etcd      *clientv3.Client
	endpoints string
	user      string // the user that we logged in as; may be empty
	keys      keys
	partition croft.PartitionID
	minor     atomic.Int64 // of the stored schema, as last read
	unknown   unknownFields

	sessionTTL time.Duration
	metrics    *metrics
	conns      *connections
	growth     growth
	watches    atomic.Int64 // number of long-lived watches
	waiters    waiters
	kept       atomic.Pointer[feed] // of Instances.Follow; nil: it does not run, or has not begun
	endLook    context.CancelFunc   // ends the search for hung members

	mu         sync.Mutex
	session    string // see sessionKey
	sessionID  clientv3.LeaseID
	sessionEnd context.CancelFunc // ends its keepalive, so that it expires
	work       sync.WaitGroup
}

// Partition returns the key below which everything of this installation is stored.
func (s *conn) Partition() croft.PartitionID { return s.partition }

// Close closes the connection and ends the session, so that the next sweep undoes its unfinished requests. Watches end
// with their contexts, not here.
func (s *conn) Close() error {
	s.endSession()
	s.endLook()
	err := s.etcd.Close()
	s.work.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd: %w", err)
	}
	return nil
}

// Collector returns the store's metrics.
func (s *conn) Collector() prometheus.Collector { return s.metrics }

// The packages below etcdstore use the same functions.
var (
	encode    = kv.Encode
	exists    = kv.Exists
	created   = kv.Created
	absent    = kv.Absent
	unchanged = kv.Unchanged
	last      = kv.Last // the ID at the end of a key
)

// readAll reads everything below a prefix at one revision; 0: at the current revision.
func readAll[T any](ctx context.Context, s *conn, what, prefix string, revision int64) (all []T, err error) {
	return kv.ReadAll[T](ctx, s.shared(), what, prefix, revision)
}

// shared returns the part of the connection that the packages below etcdstore use.
func (s *conn) shared() *kv.Conn {
	return &kv.Conn{Etcd: s.etcd, Prefix: s.keys.prefix, Wrap: s.wrap, Decode: s.decode, Newer: s.isNewer,
		KeepUnknown: s.keepUnknown, Follow: s.follow,
		FollowWhole: s.followWhole, MayGrow: s.mayGrow}
}
