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
	"croft/internal/nearest"
)

// Aggregates is the store of aggregates.
type Aggregates struct {
	conn  *kv.Conn
	hosts string // prefix of the records of hosts
}

// New makes the store of aggregates.
func New(c *kv.Conn, hosts string) *Aggregates { return &Aggregates{c, hosts} }

// stored is the value of an aggregate's key.
type stored struct {
	Note   string         `json:"note,omitempty"`
	Public bool           `json:"public,omitempty"`
	Hosts  []croft.HostID `json:"hosts,omitempty"`
}

func encode(a croft.Aggregate) string { return kv.Encode(stored{a.Note, a.Public, a.Hosts}) }

func (s *Aggregates) keys() Keys { return Keys(s.conn.Prefix) }

func (s *Aggregates) decode(entry *mvccpb.KeyValue) (croft.Aggregate, error) {
	var v stored
	err := s.conn.Decode(entry.Key, entry.Value, &v)
	if v.Hosts == nil {
		v.Hosts = []croft.HostID{}
	}
	return croft.Aggregate{Name: kv.Last(entry.Key), Note: v.Note, Public: v.Public, Hosts: v.Hosts,
		Generation: entry.ModRevision}, err
}

// List returns all aggregates, by name.
func (s *Aggregates) List(ctx context.Context) ([]croft.Aggregate, error) {
	all, _, err := s.list(ctx)
	return all, err
}

// list returns all aggregates, by name, and the revision at which they were read.
func (s *Aggregates) list(ctx context.Context) (all []croft.Aggregate, revision int64, err error) {
	got, err := s.conn.Etcd.Get(ctx, s.keys().all(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, 0, s.conn.Wrap(err, "read the aggregates")
	}
	all, err = s.ReadAt(ctx, got.Header.Revision)
	return all, got.Header.Revision, err
}

// ReadAt returns all aggregates, by name, at a revision.
func (s *Aggregates) ReadAt(ctx context.Context, revision int64) ([]croft.Aggregate, error) {
	all := []croft.Aggregate{}
	err := s.conn.ReadRange(ctx, "read the aggregates", s.keys().all(), revision, func(entry *mvccpb.KeyValue) error {
		a, err := s.decode(entry)
		all = append(all, a)
		return err
	})
	return all, err
}

// Named returns the aggregates with these names that exist, as of one moment.
func (s *Aggregates) Named(ctx context.Context, names ...string) (map[string]croft.Aggregate, error) {
	found := map[string]croft.Aggregate{}
	var ops []clientv3.Op
	for _, name := range names {
		if croft.CheckAggregateName(name) == nil { // other names, which may be locations, would give wrong keys
			ops = append(ops, clientv3.OpGet(s.keys().Aggregate(name)))
		}
	}
	if len(ops) == 0 {
		return found, nil
	}
	got, err := s.conn.Etcd.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, s.conn.Wrap(err, "read aggregates")
	}
	for _, answer := range got.Responses {
		if entry := kv.First(answer); entry != nil {
			a, err := s.decode(entry)
			if err != nil {
				return nil, err
			}
			found[a.Name] = a
		}
	}
	return found, nil
}

// Find returns an aggregate. NotFound.
func (s *Aggregates) Find(ctx context.Context, name string) (croft.Aggregate, error) {
	if err := croft.CheckAggregateName(name); err != nil {
		return croft.Aggregate{}, err
	}
	found, err := s.Named(ctx, name)
	if err != nil {
		return croft.Aggregate{}, err
	}
	if a, there := found[name]; there {
		return a, nil
	}
	return croft.Aggregate{}, s.missing(ctx, name)
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
	for {
		done, err := s.write(ctx, a, hosts)
		if err != nil || done.Succeeded {
			a.Generation = done.generation()
			return a, err
		}
		if kv.First(done.Responses[0]) != nil {
			return a, croft.Errorf(croft.Conflict,
				"there is an aggregate %s already; `croft aggregate show %[1]s` shows it", a.Name)
		}
		if err := unknown(hosts, done.Responses[1:]); err != nil {
			return a, err
		}
	}
}

// answer is the answer to a write.
type answer struct{ *clientv3.TxnResponse }

func (a answer) generation() int64 {
	if a.TxnResponse == nil {
		return 0
	}
	return a.Header.Revision
}

// write replaces the aggregate of this name and generation, and compares that the added hosts exist. If it does not
// succeed, the answers are the aggregate and these hosts.
func (s *Aggregates) write(ctx context.Context, a croft.Aggregate, added []croft.HostID) (answer, error) {
	key := s.keys().Aggregate(a.Name)
	compares, reads := []clientv3.Cmp{kv.Unchanged(key, a.Generation)}, []clientv3.Op{clientv3.OpGet(key)}
	for _, host := range added {
		// Existence is enough: a host that returns with its UUID is the same machine.
		compares = append(compares, kv.Exists(s.hosts+string(host)))
		reads = append(reads, clientv3.OpGet(s.hosts+string(host), clientv3.WithKeysOnly()))
	}
	done, err := s.conn.Etcd.Txn(ctx).If(compares...).Then(clientv3.OpPut(key, encode(a))).Else(reads...).Commit()
	if err != nil {
		return answer{}, s.conn.Wrap(err, "write aggregate %s", a.Name)
	}
	return answer{done}, nil
}

// unknown returns the error about the first of the hosts that does not exist, according to the reads of write.
func unknown(hosts []croft.HostID, read []*etcdserverpb.ResponseOp) error {
	for i, host := range hosts {
		if kv.First(read[i]) == nil {
			return croft.Errorf(croft.NotFound, "there is no host %s; `croft host list` lists all hosts", host)
		}
	}
	return nil
}

// Change changes an aggregate and returns it. NotFound: the aggregate or a host to add does not exist. Conflict: the
// aggregate has another generation than the change names. Invalid.
func (s *Aggregates) Change(ctx context.Context, name string, c croft.AggregateChange) (croft.Aggregate, error) {
	for {
		now, err := s.Find(ctx, name)
		if err != nil {
			return now, err
		}
		next, err := c.Apply(now)
		if err != nil {
			return now, err
		}
		if encode(next) == encode(now) {
			return now, nil
		}
		done, err := s.write(ctx, next, c.Add)
		if err != nil || done.Succeeded {
			next.Generation = done.generation()
			return next, err
		}
		// Each failure means that another change was made, or that a host to be added was removed, so the retries end.
		if err := unknown(c.Add, done.Responses[1:]); err != nil {
			return now, err
		}
	}
}

// Remove removes an aggregate of a generation; nil: of any. Its hosts stay. NotFound; Conflict: it has another
// generation.
func (s *Aggregates) Remove(ctx context.Context, name string, generation *int64) error {
	if err := croft.CheckAggregateName(name); err != nil {
		return err
	}
	key := s.keys().Aggregate(name)
	// existence is enough if the caller names no generation: it means the present aggregate
	compare := kv.Exists(key)
	if generation != nil {
		compare = kv.Unchanged(key, *generation)
	}
	done, err := s.conn.Etcd.Txn(ctx).If(compare).Then(clientv3.OpDelete(key)).Else(clientv3.OpGet(key)).Commit()
	switch {
	case err != nil:
		return s.conn.Wrap(err, "remove aggregate %s", name)
	case done.Succeeded && (generation == nil || *generation > 0):
		return nil
	case !done.Succeeded && kv.First(done.Responses[0]) != nil:
		return croft.Errorf(croft.Conflict, "aggregate %s was changed by another request; read it again", name)
	}
	return s.missing(ctx, name)
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
	all, revision, err := s.list(ctx)
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
		value := encode(a)
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
