package tenants

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/tenant"
)

// The usage of a project is counted under one key for each project of a chain, which changes in the transaction that
// writes a record. A transaction that removes a record would have to read the counters first, and a hundred agents that
// do so at once would wait for each other. So it writes an entry instead, under a key of the instance. A transaction
// that writes a record does the same if there are no limits and other processes write the counters at the same time.
// The next writer of the counters settles the entries. At every revision, counters and entries together equal the sum
// over the records.

// count is the value of a project's counter.
type count struct {
	Used tenant.Amounts `json:"used"`
	// Ready says that Used includes the records that existed when counting started.
	Ready bool `json:"ready"`
	// Since is the revision of the counted records, which include earlier entries.
	Since int64 `json:"since,omitempty"`
}

// link is one project of a chain, as read at one revision.
type link struct {
	name     croft.Project
	record   storedProject
	recorded int64 // revision of the record; 0: the project has none
	created  int64 // revision at which the record was created; 0: the project has no record
	count    count
	counted  int64 // revision of the counter; 0: there is no counter
	asOf     int64 // revision of the store at which the fields were read
}

// entry is a change that the counters do not include yet: a reduction of the usage, negative if a record was written.
type entry struct {
	key      []byte
	revision int64
	amounts  tenant.Amounts
}

// chain is the data that decides whether a project may have more: the project first, its root last.
type chain struct {
	links    []link
	defaults tenant.Defaults
	entries  []entry // of the first project, at most maxEntries
}

// maxEntries is the maximum number of entries that one transaction settles.
const maxEntries = 16

// accounts returns the accounts of the chain, with its entries settled.
func (c *chain) accounts() []tenant.Account {
	var all []tenant.Account
	for i, l := range c.links {
		all = append(all, tenant.Account{Project: l.name, ID: l.record.ID, Limits: l.record.Own(c.defaults.Limits),
			Used: c.used(i).Plus(nil)})
	}
	return all
}

func (c *chain) names() []croft.Project {
	var all []croft.Project
	for _, l := range c.links {
		all = append(all, l.name)
	}
	return all
}

// complete reports whether the chain contains all ancestors of the first project, and every counter is ready.
func (c *chain) complete() bool {
	return slices.Equal(c.links[0].record.Above, c.names()[1:]) &&
		!slices.ContainsFunc(c.links, func(l link) bool { return !l.count.Ready })
}

// at sets the revision at which the counters of a chain were written.
func (c *chain) at(revision int64) *chain {
	for i := range c.links {
		c.links[i].counted = revision
	}
	return c
}

func (c *chain) used(i int) tenant.Amounts {
	n := c.links[i].count
	return n.less(n.Used, c.entries)
}

// less returns an amount minus the entries that the counted records do not include.
func (n count) less(used tenant.Amounts, entries []entry) tenant.Amounts {
	for _, r := range entries {
		if r.revision > n.Since {
			used = used.Minus(r.amounts)
		}
	}
	return used
}

// reads returns the operations that read a chain; see fill.
func (k Keys) reads(names []croft.Project) []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpGet(k.defaults()),
		clientv3.OpGet(k.entriesOf(names[0]), clientv3.WithPrefix(), clientv3.WithLimit(maxEntries))}
	for _, name := range names {
		ops = append(ops, clientv3.OpGet(k.project(name)), clientv3.OpGet(k.used(name)))
	}
	return ops
}

// fill makes a chain from the answers to reads.
func (s *Projects) fill(names []croft.Project, answers []*etcdserverpb.ResponseOp) (*chain, error) {
	c := &chain{}
	if d := kv.First(answers[0]); d != nil {
		if err := s.conn.Decode(d.Key, d.Value, &c.defaults); err != nil {
			return nil, err
		}
		c.defaults.Generation = d.ModRevision
	}
	for _, stored := range answers[1].GetResponseRange().Kvs {
		r, err := s.decodeEntry(stored)
		if err != nil {
			return nil, err
		}
		c.entries = append(c.entries, r)
	}
	for i, name := range names {
		l := link{name: name, asOf: answers[2+2*i].GetResponseRange().Header.GetRevision()}
		if r := kv.First(answers[2+2*i]); r != nil {
			if err := s.conn.Decode(r.Key, r.Value, &l.record); err != nil {
				return nil, err
			}
			l.recorded, l.created = r.ModRevision, r.CreateRevision
			l.record.ID = s.identify(l.record.Tenant, r.CreateRevision)
		}
		if n := kv.First(answers[3+2*i]); n != nil {
			if err := s.conn.Decode(n.Key, n.Value, &l.count); err != nil {
				return nil, err
			}
			l.counted = n.ModRevision
		}
		c.links = append(c.links, l)
	}
	return c, nil
}

func (s *Projects) decodeEntry(stored *mvccpb.KeyValue) (entry, error) {
	r := entry{key: stored.Key, revision: stored.ModRevision}
	return r, s.conn.Decode(stored.Key, stored.Value, &r.amounts)
}

// readChain reads the chain of a project, and creates counters that do not exist yet.
func (s *Projects) readChain(ctx context.Context, name croft.Project) (*chain, error) {
	if err := name.Check(); err != nil {
		return nil, croft.Errorf(croft.Invalid, "read the quota of a project: %w", err)
	}
	names := []croft.Project{name}
	for {
		got, err := s.conn.Etcd.Txn(ctx).Then(s.keys().reads(names)...).Commit()
		if err != nil {
			return nil, s.conn.Wrap(err, "read the quota of project %s", name)
		}
		c, err := s.fill(names, got.Responses)
		if err != nil {
			return nil, err
		}
		if all := append([]croft.Project{name}, c.links[0].record.Above...); !slices.Equal(all, names) {
			names = all
			continue
		}
		i := slices.IndexFunc(c.links, func(l link) bool { return !l.count.Ready })
		if i < 0 {
			return c, nil
		}
		if err := s.Recount(ctx, c.links[i].name); err != nil {
			return nil, err
		}
	}
}

// compares returns the conditions under which a chain is unchanged since it was read.
func (k Keys) compares(c *chain) []clientv3.Cmp {
	all := []clientv3.Cmp{kv.Unchanged(k.defaults(), c.defaults.Generation)}
	for _, l := range c.links {
		all = append(all, kv.Unchanged(k.project(l.name), l.recorded), kv.Unchanged(k.used(l.name), l.counted))
	}
	for _, r := range c.entries {
		all = append(all, kv.Unchanged(string(r.key), r.revision))
	}
	return all
}

// unlimited reports whether no limit applies to an increase of the usage of a chain's first project.
func (c *chain) unlimited(more tenant.Amounts) bool {
	return !slices.ContainsFunc(c.links, func(l link) bool {
		return tenant.Account{Limits: l.record.Own(c.defaults.Limits)}.Limited(c.defaults.Limits, more)
	})
}

// uncounted returns the conditions under which a chain still has no limits, and has counters.
func (k Keys) uncounted(c *chain) []clientv3.Cmp {
	all := []clientv3.Cmp{kv.Unchanged(k.defaults(), c.defaults.Generation)}
	for _, l := range c.links {
		// Existence is enough: the identity of the project is compared.
		all = append(all, kv.Unchanged(k.project(l.name), l.recorded), kv.Exists(k.used(l.name)))
	}
	return all
}

// charge returns the operations that add more to the counters of a chain, and settle its entries. next is the chain
// after them, without its new revisions.
func (k Keys) charge(c *chain, more tenant.Amounts) (next *chain, ops []clientv3.Op) {
	next = &chain{links: slices.Clone(c.links), defaults: c.defaults}
	for i := range next.links {
		l := &next.links[i]
		l.count.Used = c.used(i).Plus(more)
		ops = append(ops, clientv3.OpPut(k.used(l.name), kv.Encode(l.count)))
	}
	for _, r := range c.entries {
		ops = append(ops, clientv3.OpDelete(string(r.key)))
	}
	return next, ops
}

// admitPause is the maximum pause before a transaction is retried that conflicted with another process.
const admitPause = 20 * time.Millisecond

// settle settles all entries. New entries may be written meanwhile.
func (s *Projects) settle(ctx context.Context) error {
	k := s.keys()
	for {
		got, err := s.conn.Etcd.Get(ctx, k.allEntries(), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithLimit(maxEntries))
		if err != nil {
			return s.conn.Wrap(err, "read the records that are not counted yet")
		}
		projects := map[croft.Project]bool{}
		for _, r := range got.Kvs {
			projects[k.entryOf(r.Key)] = true
		}
		for name := range projects {
			c, err := s.readChain(ctx, name)
			if err != nil {
				return err
			}
			_, ops := k.charge(c, nil)
			// a chain that changed meanwhile is read again in the next round
			if _, err := s.conn.Etcd.Txn(ctx).If(k.compares(c)...).Then(ops...).Commit(); err != nil {
				return s.conn.Wrap(err, "settle the usage of project %s", name)
			}
		}
		if !got.More {
			return nil
		}
	}
}
