package etcdstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// conn is the connection and the state shared by the types that a Store has for each kind of record.
type conn struct {
	etcd      *clientv3.Client
	endpoints string
	user      string // the user that we logged in as, if any
	keys      keys
	partition croft.PartitionID
	minor     atomic.Int64 // of the stored schema, as far as known

	sessionTTL time.Duration
	metrics    *metrics
	conns      *connections
	watches    atomic.Int64       // number of long-lived watches
	endLook    context.CancelFunc // ends the search for hung members

	admissions admissions

	mu         sync.Mutex
	session    string // see sessionKey
	sessionID  clientv3.LeaseID
	sessionEnd context.CancelFunc // ends its keepalive, so that it expires
	work       sync.WaitGroup
}

// Partition returns the key below which everything of this installation is stored.
func (s *conn) Partition() croft.PartitionID { return s.partition }

// Close closes the connection and ends the session, so that its unfinished requests are undone by the next
// sweep. Watches end with their contexts, not here.
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

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("etcdstore: encode %T: %v", v, err)) // our own plain structs: cannot happen
	}
	return string(b)
}

func exists(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), ">", 0) }
func absent(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }
func unchanged(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// standDown revokes a lease, so that the next round begins with a fresh one.
func (s *conn) standDown(ctx context.Context, id clientv3.LeaseID) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, _ = s.etcd.Revoke(end, id)
}

// loadPage is how many keys are read per request: answers of etcd are limited in size.
const loadPage = 2000

// readAll reads everything below a prefix at one revision; 0: at the present one.
func readAll[T any](ctx context.Context, s *conn, what, prefix string, revision int64) (all []T, err error) {
	err = s.readRange(ctx, what, prefix, revision, func(kv *mvccpb.KeyValue) error {
		var v T
		err := s.decode(kv.Key, kv.Value, &v)
		all = append(all, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// readRange calls each with everything below a prefix, as of a revision; 0: the present one.
func (s *conn) readRange(ctx context.Context, what, prefix string, revision int64,
	each func(*mvccpb.KeyValue) error) error {
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		got, err := s.etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(loadPage),
			clientv3.WithRev(revision))
		if err != nil {
			return s.wrap(err, "%s", what)
		}
		revision = cmp.Or(revision, got.Header.Revision)
		for _, kv := range got.Kvs {
			if err := each(kv); err != nil {
				return err
			}
		}
		if !got.More {
			return nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}
