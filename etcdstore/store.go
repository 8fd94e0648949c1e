// Package etcdstore keeps the cloud's shared state in etcd. It is the only
// importer of the etcd client and of the embedded server; keys.go names every
// key. Each write is one transaction that compares what it builds on, each watch
// starts at the revision after its list and lists again after a compaction.
package etcdstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"cmp"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// schema is the version of what is stored, major.minor. A store of a newer minor
// version may hold fields that we do not know; of another major one, anything.
const schema = "1.0"

// Config says where etcd is and how long to wait for it.
type Config struct {
	Endpoints   []string      // required, such as http://127.0.0.1:2379, or Embedded
	Embedded    *Embedded     // a server in this process, which ends after the store
	DialTimeout time.Duration // of the first answer; 3 s by default
	Access                    // who we are to the endpoints
	// Mint allows Open to begin an installation where etcd holds none. Only the
	// long-running parts do; a command that finds nothing says so.
	Mint bool
	// SessionTTL is how long after this process's death what it had begun to
	// schedule is left to it; 30 s by default, whole seconds.
	SessionTTL time.Duration
}

// Store is one connection to etcd and the home partition found there. It
// implements the stores that the rooms declare. Close it.
type Store struct {
	etcd      *clientv3.Client
	endpoints string
	user      string // that we logged in as, if any
	keys      keys
	partition croft.PartitionID
	lenient   bool // written by a newer minor version: unknown fields are no error

	sessionTTL time.Duration

	mu        sync.Mutex
	session   string // see sessionKey
	sessionID clientv3.LeaseID
	work      sync.WaitGroup
}

type home struct {
	Partition croft.PartitionID `json:"partition"`
	Schema    string            `json:"schema"`
}

// Open connects and reads the home partition, minting it where c says so.
// Unavailable: etcd does not answer in time. NotFound: it holds no croft. Invalid: it
// does not let us in, or we do not take it for etcd.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Embedded != nil {
		c.Endpoints = []string{c.Embedded.Endpoint()}
	}
	if len(c.Endpoints) == 0 {
		return nil, croft.Errorf(croft.Invalid, "etcd: no endpoints are set; give etcd.endpoints")
	}
	c.DialTimeout = cmp.Or(c.DialTimeout, 3*time.Second)
	etcd, trust, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &Store{etcd: etcd, endpoints: strings.Join(c.Endpoints, ", "), user: c.User, sessionTTL: cmp.Or(c.SessionTTL, sessionTTL)}
	first, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	if err := s.enter(first, c.Mint); err != nil {
		if croft.KindOf(err) == croft.Unavailable && etcd.ActiveConnection() != nil && ctx.Err() == nil {
			err = cmp.Or(c.refusal(ctx, trust), err)
		}
		return nil, errors.Join(err, etcd.Close())
	}
	return s, nil
}

// enter finds the home partition, or makes it.
func (s *Store) enter(ctx context.Context, mint bool) error {
	got, err := s.etcd.Get(ctx, homeKey)
	if err != nil {
		return s.wrap(err, "read %s", homeKey)
	}
	if len(got.Kvs) == 0 {
		if !mint {
			return croft.Errorf(croft.NotFound, "etcd at %s holds no croft yet; start `croft up` (or `croft compute`) first", s.endpoints)
		}
		return s.mint(ctx)
	}
	var h home
	if err := json.Unmarshal(got.Kvs[0].Value, &h); err != nil || h.Partition == "" {
		return fmt.Errorf("read %s: %q is not a home record: %w", homeKey, got.Kvs[0].Value, err)
	}
	newer, err := newerMinor(h.Schema)
	if err != nil {
		return err
	}
	s.lenient, s.partition, s.keys = newer, h.Partition, keysOf(h.Partition)
	return nil
}

// mint writes a new home; of several that do so at once one wins and all read it.
func (s *Store) mint(ctx context.Context) error {
	value, err := json.Marshal(home{croft.NewPartitionID(), schema})
	if err != nil {
		return fmt.Errorf("encode home: %w", err)
	}
	_, err = s.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(homeKey), "=", 0)).
		Then(clientv3.OpPut(homeKey, string(value))).Commit()
	if err != nil {
		return s.wrap(err, "mint %s", homeKey)
	}
	return s.enter(ctx, false)
}

// newerMinor tells whether a stored schema is of a newer minor version than ours.
func newerMinor(stored string) (bool, error) {
	major, minor, ok := strings.Cut(stored, ".")
	ourMajor, ourMinor, _ := strings.Cut(schema, ".")
	n, err := strconv.Atoi(minor)
	if !ok || err != nil || major != ourMajor {
		return false, croft.Errorf(croft.Invalid, "etcd holds a croft of schema %q and this program knows %s.x; use a program of that version", stored, ourMajor)
	}
	ours, _ := strconv.Atoi(ourMinor)
	return n > ours, nil
}

// Partition is the key that everything of this installation lies under.
func (s *Store) Partition() croft.PartitionID { return s.partition }

// Close ends the session, so that what it had begun is undone by whoever sweeps,
// and the connection. Watches end with their contexts, not here.
func (s *Store) Close() error {
	s.endSession()
	err := s.etcd.Close()
	s.work.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd: %w", err)
	}
	return nil
}

// decode reads a stored value strictly: a field we do not know means that
// somebody else writes here, unless a newer minor version of croft does.
func (s *Store) decode(key, value []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(value))
	if !s.lenient {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode %s: %w", key, err)
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
