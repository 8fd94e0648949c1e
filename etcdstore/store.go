// Package etcdstore keeps the cloud's shared state in etcd. It is the only importer of the etcd client and of
// the embedded server; keys.go names every key. Each write is one transaction that compares what it builds on.
// Each watch starts at the revision after its list, and lists again after a compaction.
package etcdstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/etcdserver"
)

// Config says where etcd is and how long to wait for it.
type Config struct {
	Endpoints   []string           // required, such as http://127.0.0.1:2379, or Embedded
	Embedded    *etcdserver.Server // a server in this process, closed after the store
	DialTimeout time.Duration      // for the first answer; 3 s by default, 10 s with a login
	Access                         // credentials for the endpoints
	// Mint allows Open to begin an installation if etcd holds none. Only long-running processes do; a command
	// reports that it found nothing.
	Mint bool
	// SessionTTL is how long after this process's death its unfinished requests are left alone; 30 s by
	// default, whole seconds.
	SessionTTL time.Duration

	keepalive time.Duration // keepaliveTime by default; tests set it
}

// Store is one connection to etcd and the home partition found there, with a type for each room that stores. It
// must be closed.
type Store struct {
	*conn
	Cluster *Cluster
	Keys    *Keys
	Pools   *Pools
	Trust   *Trust
}

// conn is the connection and the state shared by the types of a Store.
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

	mu         sync.Mutex
	session    string // see sessionKey
	sessionID  clientv3.LeaseID
	sessionEnd context.CancelFunc // ends its keepalive, so that it expires
	work       sync.WaitGroup
}

// Open connects and reads the home partition, and creates it if c.Mint is set. Unavailable: etcd does not
// answer in time. NotFound: it holds no croft. Invalid: it refuses our credentials, or we do not trust its
// certificate.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Embedded != nil {
		c.Endpoints = []string{c.Embedded.Endpoint()}
	}
	if len(c.Endpoints) == 0 {
		return nil, croft.Errorf(croft.Invalid, "etcd: no endpoints are set; give etcd.endpoints")
	}
	c.DialTimeout = cmp.Or(c.DialTimeout, 3*time.Second)
	conns := newConnections()
	etcd, trust, err := c.connect(ctx, conns)
	if err != nil {
		return nil, err
	}
	s := &conn{etcd: etcd, endpoints: strings.Join(c.Endpoints, ", "), user: c.User,
		sessionTTL: cmp.Or(c.SessionTTL, sessionTTL), metrics: newMetrics(), conns: conns, endLook: func() {}}
	etcd.KV, etcd.Lease = measuredKV{etcd.KV, s.metrics}, measuredLease{etcd.Lease, s.metrics}
	first, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	if err := s.enter(first, c.Mint); err != nil {
		if croft.KindOf(err) == croft.Unavailable && etcd.ActiveConnection() != nil && ctx.Err() == nil {
			err = cmp.Or(c.refusal(ctx, trust), err)
		}
		return nil, errors.Join(err, etcd.Close())
	}
	if etcd.ActiveConnection() != nil { // otherwise the server is in this process
		looking, end := context.WithCancel(context.WithoutCancel(ctx))
		s.endLook = end
		s.work.Go(func() { s.leaveHung(looking) })
		s.work.Go(func() { s.pokeWatches(looking) })
	}
	return &Store{conn: s, Cluster: &Cluster{s}, Keys: &Keys{s}, Pools: &Pools{s}, Trust: &Trust{s}}, nil
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
