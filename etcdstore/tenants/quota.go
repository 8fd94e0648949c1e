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

// What a project uses is counted under one key for each project of a chain, and changes in the transaction that
// writes a record. A transaction that removes a record cannot know the counters without reading them, and a hundred
// agents that do so at once would wait for each other. So it writes an entry instead, under a key of the instance; so
// does one that writes a record where there are no limits and others write the counters at the same time. Entries are
// settled by whoever next writes the counters. At every revision, what is counted with its entries is the sum over the
// records.

// count is the value of a project's counter.
type count struct {
	Used tenant.Amounts `json:"used"`
	// Ready: the records that there were when counting began are in Used.
	Ready bool `json:"ready"`
	// Since is the revision of the records that were counted. Earlier entries are in them.
	Since int64 `json:"since,omitempty"`
}

// link is one project of a chain, as read at one revision.
type link struct {
	name     croft.Project
	record   storedProject
	recorded int64 // revision of the record; 0: the project has none
	created  int64 // revision of its first version; 0: likewise
	count    count
	counted  int64 // revision of the counter; 0: there is none
	asOf     int64 // revision of the store at which all this was so
}

// entry is a change that is not in the counters yet: what is given back, less than nothing if a record was written.
type entry struct {
	key      []byte
	revision int64
	amounts  tenant.Amounts
}

// chain is what decides whether a project may have more: the project first, its root last.
type chain struct {
	links    []link
	defaults tenant.Defaults
	entries  []entry // of the first project, at most maxEntries
}

// maxEntries bounds the entries that one transaction settles.
const maxEntries = 16

// accounts returns the chain with its entries settled.
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

// complete reports whether the chain has all projects above the first one, and every counter can be relied on.
func (c *chain) complete() bool {
	return slices.Equal(c.links[0].record.Above, c.names()[1:]) &&
		!slices.ContainsFunc(c.links, func(l link) bool { return !l.count.Ready })
}

// at says at which revision the counters of a chain were written.
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

// less returns an amount less those entries that are not in the records counted.
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

// fill makes a chain of the answers to reads.
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

// readChain reads what decides about a project, and begins to count where nothing was counted yet.
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

// compares are the conditions under which a chain is as it was read.
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

// unlimited reports whether nothing limits how much more the first project of a chain may have.
func (c *chain) unlimited(more tenant.Amounts) bool {
	return !slices.ContainsFunc(c.links, func(l link) bool {
		return tenant.Account{Limits: l.record.Own(c.defaults.Limits)}.Limited(c.defaults.Limits, more)
	})
}

// uncounted are the conditions under which a chain still has no limits, and is counted.
func (k Keys) uncounted(c *chain) []clientv3.Cmp {
	all := []clientv3.Cmp{kv.Unchanged(k.defaults(), c.defaults.Generation)}
	for _, l := range c.links {
		// Existence is enough: the identity of the project is compared.
		all = append(all, kv.Unchanged(k.project(l.name), l.recorded), kv.Exists(k.used(l.name)))
	}
	return all
}

// charge returns the operations that count more for a chain, and settle its entries. next is the chain after them,
// but for its revisions.
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

// admitPause is how long a transaction that lost to another process waits at most before the next one.
const admitPause = 20 * time.Millisecond

// settle settles all entries. Others may write new ones meanwhile.
func (s *Projects) settle(ctx context.Context) error {
	k := s.keys()
	for {
		got, err := s.conn.Etcd.Get(ctx, k.allEntries(), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithLimit(maxEntries))
		if err != nil {
			return s.conn.Wrap(err, "read what is not counted yet")
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
			// a chain that changed meanwhile is read again by the next round
			if _, err := s.conn.Etcd.Txn(ctx).If(k.compares(c)...).Then(ops...).Commit(); err != nil {
				return s.conn.Wrap(err, "settle what project %s uses", name)
			}
		}
		if !got.More {
			return nil
		}
	}
}
