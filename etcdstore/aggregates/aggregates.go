// Package aggregates stores in etcd the aggregates of hosts, and the stated distances between aggregates, locations and
// hosts. Hosts in an aggregate exist: the transaction that adds a host compares the host's record, and the transaction
// that forgets a host removes it from all aggregates.
package aggregates

import (
	"context"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
	"croft/internal/nearest"
)

// Aggregates is the store of aggregates.
type Aggregates struct {
	conn       *kv.Conn
	hosts      string // prefix of the records of hosts
	aggregates shelf.Shelf[croft.Aggregate]
}

// stored is the value of an aggregate's key.
type stored struct {
	Note   string         `json:"note,omitempty"`
	Public bool           `json:"public,omitempty"`
	Hosts  []croft.HostID `json:"hosts,omitempty"`
}

// New makes the store of aggregates.
func New(c *kv.Conn, hosts string) *Aggregates {
	s := &Aggregates{conn: c, hosts: hosts}
	s.aggregates = shelf.Shelf[croft.Aggregate]{Conn: c, Noun: "aggregate", Prefix: s.keys().all(),
		Decode: func(entry *mvccpb.KeyValue) (croft.Aggregate, error) {
			v := stored{Hosts: []croft.HostID{}}
			err := c.Decode(entry.Key, entry.Value, &v)
			return croft.Aggregate{Name: kv.Last(entry.Key), Note: v.Note, Public: v.Public, Hosts: v.Hosts,
				Generation: entry.ModRevision}, err
		},
		Encode:  func(a croft.Aggregate) string { return kv.Encode(stored{a.Note, a.Public, a.Hosts}) },
		Stamp:   func(a *croft.Aggregate, generation, _ int64) { a.Generation = generation },
		Missing: s.missing, Differs: differs, Guard: s.guard}
	return s
}

func (s *Aggregates) keys() Keys { return Keys(s.conn.Prefix) }

func differs(name string, _, wanted int64) error {
	if wanted == 0 {
		return croft.Errorf(croft.Conflict, "there is an aggregate %s already; `croft aggregate show %[1]s` shows it", name)
	}
	return croft.Errorf(croft.Conflict, "aggregate %s was changed by another request; read it again", name)
}

// missing returns the error about an aggregate that does not exist.
func (s *Aggregates) missing(ctx context.Context, name string) error {
	all, _ := s.List(ctx) // only a hint: an error is ignored
	var names []string
	for _, a := range all {
		names = append(names, a.Name)
	}
	return croft.Errorf(croft.NotFound, "there is no aggregate %q%s", name, nearest.Hint(name, names))
}

// guard compares that the hosts that are added exist.
func (s *Aggregates) guard(_ context.Context, now croft.Aggregate, next *croft.Aggregate) (g shelf.Guard, err error) {
	var added []croft.HostID
	for _, host := range next.Hosts {
		if !now.Has(host) {
			// Existence is enough: a host that returns with its UUID is the same machine.
			g.If = append(g.If, kv.Exists(s.hosts+string(host)))
			g.Else = append(g.Else, clientv3.OpGet(s.hosts+string(host), clientv3.WithKeysOnly()))
			added = append(added, host)
		}
	}
	g.Refused = func(read []*etcdserverpb.ResponseOp) error {
		for i, host := range added {
			if kv.First(read[i]) == nil {
				return croft.Errorf(croft.NotFound, "there is no host %s; `croft host list` lists all hosts", host)
			}
		}
		return nil
	}
	return g, nil
}

// List returns all aggregates, by name.
func (s *Aggregates) List(ctx context.Context) ([]croft.Aggregate, error) { return s.ReadAt(ctx, 0) }

// ReadAt returns all aggregates, by name, at a revision; 0: the current one.
func (s *Aggregates) ReadAt(ctx context.Context, revision int64) ([]croft.Aggregate, error) {
	return s.aggregates.List(ctx, revision)
}

// Named returns the aggregates with these names that exist, as of one moment.
func (s *Aggregates) Named(ctx context.Context, names ...string) (map[string]croft.Aggregate, error) {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return croft.CheckAggregateName(name) != nil // it may be a location, which would give a wrong key
	})
	all, err := s.aggregates.Named(ctx, names...)
	found := map[string]croft.Aggregate{}
	for _, a := range all {
		found[a.Name] = a
	}
	return found, err
}

// Find returns an aggregate. NotFound.
func (s *Aggregates) Find(ctx context.Context, name string) (croft.Aggregate, error) {
	if err := croft.CheckAggregateName(name); err != nil {
		return croft.Aggregate{}, err
	}
	return s.aggregates.Find(ctx, name)
}

// Create makes an aggregate, and returns it with its generation. Invalid. Conflict: the name is taken. NotFound: one of
// its hosts does not exist.
func (s *Aggregates) Create(ctx context.Context, a croft.Aggregate) (croft.Aggregate, error) {
	a.Generation = 0
	hosts := a.Hosts
	a.Hosts = nil
	a, err := croft.AggregateChange{Add: hosts}.Apply(a)
	if err != nil {
		return a, err
	}
	return s.aggregates.Set(ctx, a.Name, 0, a)
}

// Change changes an aggregate and returns it. NotFound: the aggregate or a host to add does not exist. Conflict: the
// aggregate has another generation than the change names. Invalid.
func (s *Aggregates) Change(ctx context.Context, name string, c croft.AggregateChange) (croft.Aggregate, error) {
	if err := croft.CheckAggregateName(name); err != nil {
		return croft.Aggregate{}, err
	}
	return s.aggregates.Change(ctx, name, nil, func(now croft.Aggregate, there bool) (croft.Aggregate, error) {
		if !there {
			return now, s.missing(ctx, name)
		}
		next, err := c.Apply(now)
		if err == nil && s.aggregates.Text(next) == s.aggregates.Text(now) {
			err = shelf.ErrSame
		}
		return next, err
	})
}

// Remove removes an aggregate of a generation; nil: of any. Its hosts stay. NotFound; Conflict: it has another
// generation.
func (s *Aggregates) Remove(ctx context.Context, name string, generation *int64) error {
	if err := croft.CheckAggregateName(name); err != nil {
		return err
	}
	return s.aggregates.Remove(ctx, name, generation, nil)
}

// Limits of one transaction of Forget.
const (
	mostForgotten   = 64      // aggregates
	mostForgetBytes = 1 << 19 // total size of their values in bytes
)

// Forget returns the operations that remove a host from all aggregates, for the transaction that removes its record,
// with the comparisons, which fail if an aggregate changes meanwhile. more: they do not cover all aggregates; then the
// caller must commit them alone and call Forget again.
func (s *Aggregates) Forget(ctx context.Context, host croft.HostID) (compares []clientv3.Cmp, ops []clientv3.Op,
	more bool, err error) {
	got, err := s.conn.Etcd.Get(ctx, s.keys().all(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, nil, false, s.conn.Wrap(err, "read the aggregates")
	}
	revision := got.Header.Revision
	all, err := s.ReadAt(ctx, revision)
	if err != nil {
		return nil, nil, false, err
	}
	asRead := clientv3.Compare(clientv3.ModRevision(s.keys().all()), "<", revision+1).WithPrefix()
	compares = []clientv3.Cmp{asRead}
	size := 0
	for _, a := range all {
		if !a.Has(host) {
			continue
		}
		a.Hosts = slices.DeleteFunc(a.Hosts, func(one croft.HostID) bool { return one == host })
		value := s.aggregates.Text(a)
		if size += len(value); len(ops) == mostForgotten || len(ops) > 0 && size > mostForgetBytes {
			return compares, ops, true, nil
		}
		ops = append(ops, clientv3.OpPut(s.keys().Aggregate(a.Name), value))
	}
	return compares, ops, false, nil
}

// Unchanged compares that aggregates and distances have these generations, by name as in croft.Instance; 0: that they
// do not exist.
func (k Keys) Unchanged(generations map[string]int64) (compares []clientv3.Cmp) {
	for _, name := range slices.Sorted(maps.Keys(generations)) {
		compares = append(compares, kv.Unchanged(k.based(name), generations[name]))
	}
	return compares
}

// Read reads the keys that Unchanged compares.
func (k Keys) Read(generations map[string]int64) (reads []clientv3.Op) {
	for _, name := range slices.Sorted(maps.Keys(generations)) {
		reads = append(reads, clientv3.OpGet(k.based(name), clientv3.WithKeysOnly()))
	}
	return reads
}

// Changed returns the first name whose generation has changed, according to the result of Read; empty: none has.
func Changed(generations map[string]int64, read []*etcdserverpb.ResponseOp) string {
	for i, name := range slices.Sorted(maps.Keys(generations)) {
		now := int64(0)
		if entry := kv.First(read[i]); entry != nil {
			now = entry.ModRevision
		}
		if now != generations[name] {
			return name
		}
	}
	return ""
}

// Keys builds the keys of aggregates; it is the prefix of the partition. The list of all keys is in etcdstore.
type Keys string

func (k Keys) all() string { return string(k) + "aggregates/" }

// Aggregate returns the key of an aggregate.
func (k Keys) Aggregate(name string) string { return k.all() + name }

// based returns the key of an aggregate, or of distances, on which the choice of a host is based; the name has the form
// in croft.Instance.
func (k Keys) based(name string) string {
	if _, distances := croft.DistancesOf(name); distances {
		return string(k) + name
	}
	return k.Aggregate(name)
}
