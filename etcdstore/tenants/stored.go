package tenants

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/internal/delay"
	"croft/tenant"
)

// Rarely written records, such as SSH keys, are counted separately from instances: under one more key for each project,
// which every transaction that writes or removes such a record compares and rewrites, for the project and all its
// ancestors. Programs of earlier versions neither read nor write these counters. Recount counts the records that they
// store meanwhile.

// storedRules is the version of the rules for counting records. A counter with an earlier version is counted again
// before it is used.
const storedRules = 1

// storedCount is the value of the counter of a project's stored records.
type storedCount struct {
	Used  tenant.Amounts `json:"used,omitempty"`
	Rules int            `json:"rules,omitempty"` // 0: not counted yet
}

func (k Keys) allStored() string             { return string(k) + "quota/stored/" }
func (k Keys) stored(p croft.Project) string { return k.allStored() + string(p) }

// Change is a transaction that writes and removes records that a project is charged for.
type Change struct {
	Project croft.Project // empty: no project is charged
	Charge  tenant.Amounts
	If      []clientv3.Cmp
	Then    []clientv3.Op
	Else    []clientv3.Op // reads, whose answers the caller gets if a condition in If is not met
	What    string        // the attempted action, for errors
}

// SizeOf returns the charge for a record: one of a measure, and the bytes of its JSON. A record that is read and
// encoded again has the same size, whatever fields of other versions its stored form has.
func SizeOf(m tenant.Measure, record any) tenant.Amounts {
	return tenant.Amounts{m: 1, tenant.StoredBytes: int64(len(kv.Encode(record)))}
}

// grows reports whether a change increases any amount.
func (c Change) grows() bool {
	for _, n := range c.Charge {
		if n > 0 {
			return true
		}
	}
	return false
}

// Commit commits a change together with its charge, and returns the revision. 0: a condition in If is not met, and the
// answers to Else are returned. OverQuota: the project may not store more; the error holds a *tenant.Refusal.
func (s *Projects) Commit(ctx context.Context, c Change) (revision int64, answers []*etcdserverpb.ResponseOp,
	err error) {
	if c.grows() {
		if err := s.conn.MayGrow(ctx); err != nil {
			return 0, nil, croft.Errorf(croft.KindOf(err), "%s: %w", c.What, err)
		}
	}
	if c.Project == "" || len(c.Charge) == 0 {
		done, err := s.conn.Etcd.Txn(ctx).If(c.If...).Then(c.Then...).Else(c.Else...).Commit()
		if err != nil {
			return 0, nil, s.conn.Wrap(err, "%s", c.What)
		}
		if !done.Succeeded {
			return 0, done.Responses, nil
		}
		return done.Header.Revision, nil, nil
	}
	for {
		shelf, err := s.readShelf(ctx, c.Project)
		if err != nil {
			return 0, nil, err
		}
		if err := tenant.Admit(shelf.accounts(), shelf.defaults.Limits, c.Charge); err != nil {
			return 0, nil, err
		}
		compares, ops := s.keys().chargeShelf(shelf, c.Charge)
		again := s.keys().shelfReads(shelf.names())
		done, err := s.conn.Etcd.Txn(ctx).If(append(compares, c.If...)...).Then(append(ops, c.Then...)...).
			Else(append(again, c.Else...)...).Commit()
		if err != nil {
			return 0, nil, s.conn.Wrap(err, "%s", c.What)
		}
		if done.Succeeded {
			return done.Header.Revision, nil, nil
		}
		now, err := s.fillShelf(shelf.names(), done.Responses)
		if err != nil {
			return 0, nil, err
		}
		if now.same(shelf) {
			return 0, done.Responses[len(again):], nil
		}
		if err := delay.For(ctx, rand.N(admitPause)); err != nil { // another process wrote first
			return 0, nil, s.conn.Wrap(err, "%s", c.What)
		}
	}
}

// shelf is the data that decides whether a project may store more: the project first, its root last.
type shelf struct {
	links    []shelfLink
	defaults tenant.Defaults
}

type shelfLink struct {
	name     croft.Project
	record   storedProject
	recorded int64 // revision of the record; 0: there is no record
	count    storedCount
	counted  int64 // revision of the counter; 0: there is no counter
}

func (s *shelf) names() (all []croft.Project) {
	for _, l := range s.links {
		all = append(all, l.name)
	}
	return all
}

func (s *shelf) accounts() (all []tenant.Account) {
	for _, l := range s.links {
		all = append(all, tenant.Account{Project: l.name, Limits: l.record.Limits, Used: l.count.Used})
	}
	return all
}

// same reports whether two reads of a shelf found the same revisions.
func (s *shelf) same(other *shelf) bool {
	return s.defaults.Generation == other.defaults.Generation &&
		slices.EqualFunc(s.links, other.links, func(a, b shelfLink) bool {
			return a.recorded == b.recorded && a.counted == b.counted
		})
}

func (k Keys) shelfReads(names []croft.Project) []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpGet(k.defaults())}
	for _, name := range names {
		ops = append(ops, clientv3.OpGet(k.project(name)), clientv3.OpGet(k.stored(name)))
	}
	return ops
}

func (s *Projects) fillShelf(names []croft.Project, answers []*etcdserverpb.ResponseOp) (*shelf, error) {
	all := &shelf{}
	if d := kv.First(answers[0]); d != nil {
		if err := s.conn.Decode(d.Key, d.Value, &all.defaults); err != nil {
			return nil, err
		}
		all.defaults.Generation = d.ModRevision
	}
	for i, name := range names {
		l := shelfLink{name: name}
		if r := kv.First(answers[1+2*i]); r != nil {
			if err := s.conn.Decode(r.Key, r.Value, &l.record); err != nil {
				return nil, err
			}
			l.recorded = r.ModRevision
		}
		if n := kv.First(answers[2+2*i]); n != nil {
			if err := s.conn.Decode(n.Key, n.Value, &l.count); err != nil {
				return nil, err
			}
			l.counted = n.ModRevision
		}
		all.links = append(all.links, l)
	}
	return all, nil
}

// readShelf reads the shelf of a project, and counts records that were not counted by the present rules.
func (s *Projects) readShelf(ctx context.Context, name croft.Project) (*shelf, error) {
	if err := name.Check(); err != nil {
		return nil, croft.Errorf(croft.Invalid, "read what a project stores: %w", err)
	}
	names := []croft.Project{name}
	for {
		got, err := s.conn.Etcd.Txn(ctx).Then(s.keys().shelfReads(names)...).Commit()
		if err != nil {
			return nil, s.conn.Wrap(err, "read what project %s stores", name)
		}
		all, err := s.fillShelf(names, got.Responses)
		if err != nil {
			return nil, err
		}
		if chain := append([]croft.Project{name}, all.links[0].record.Above...); !slices.Equal(chain, names) {
			names = chain
			continue
		}
		i := slices.IndexFunc(all.links, func(l shelfLink) bool { return l.count.Rules != storedRules })
		if i < 0 {
			return all, nil
		}
		if err := s.countStored(ctx, all.links[i].name, all.links[i].counted); err != nil {
			return nil, err
		}
	}
}

// chargeShelf returns the part of a transaction that adds more to the counters of a project and all its ancestors.
func (k Keys) chargeShelf(s *shelf, more tenant.Amounts) (compares []clientv3.Cmp, ops []clientv3.Op) {
	compares = []clientv3.Cmp{kv.Unchanged(k.defaults(), s.defaults.Generation)}
	for _, l := range s.links {
		compares = append(compares, kv.Unchanged(k.project(l.name), l.recorded),
			kv.Unchanged(k.stored(l.name), l.counted))
		l.count.Used = l.count.Used.Plus(more)
		ops = append(ops, clientv3.OpPut(k.stored(l.name), kv.Encode(l.count)))
	}
	return compares, ops
}

// countStored counts the stored records of a project, if its counter still has the given revision. It first writes a
// placeholder, so that it notices any change of the counter after the records were read.
func (s *Projects) countStored(ctx context.Context, name croft.Project, before int64) error {
	key, what := s.keys().stored(name), "count what project "+string(name)+" stores"
	done, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(key, before)).
		Then(clientv3.OpPut(key, kv.Encode(storedCount{}))).Commit()
	if err != nil {
		return s.conn.Wrap(err, "%s", what)
	}
	if !done.Succeeded {
		return nil // another process counts; the caller reads again
	}
	revision := done.Header.Revision
	projects, err := s.readProjects(ctx, revision)
	if err != nil {
		return err
	}
	used, err := s.storedAt(ctx, revision, tenant.NewTree(projects).Below(name))
	if err != nil {
		return err
	}
	_, err = s.conn.Etcd.Txn(ctx).If(kv.Unchanged(key, revision)).
		Then(clientv3.OpPut(key, kv.Encode(storedCount{Used: used, Rules: storedRules}))).Commit()
	if err != nil {
		return s.conn.Wrap(err, "%s", what)
	}
	return nil
}

// storedAt returns the sum of the stored records of the given projects at a revision.
func (s *Projects) storedAt(ctx context.Context, revision int64, of []croft.Project) (tenant.Amounts, error) {
	sum := tenant.Amounts{}
	for _, from := range s.shelves() {
		err := s.conn.ReadRange(ctx, "count what projects store", from.Prefix, revision,
			func(stored *mvccpb.KeyValue) error {
				c, err := from.Charge(stored.Key, stored.Value)
				if err == nil && slices.Contains(of, c.Project) {
					sum = sum.Plus(c.Amounts)
				}
				return err
			})
		if err != nil {
			return nil, err
		}
	}
	return sum, nil
}

// storesNothing returns the condition under which a name without a record stores nothing; the caller compares that
// there are no records. Conflict: it stores something.
func (s *Projects) storesNothing(ctx context.Context, name croft.Project) (clientv3.Cmp, error) {
	return nothingCounted(ctx, s, s.keys().stored(name), "stores", name,
		func(n storedCount) tenant.Amounts { return n.Used })
}

// shelves returns the sources of the counters of stored records: projects with a parent, and the records of other
// packages.
func (s *Projects) shelves() []Source {
	return append([]Source{{Prefix: s.keys().projects(), Charge: func(key, value []byte) (Charge, error) {
		var p storedProject
		err := s.conn.Decode(key, value, &p)
		return chargeOfProject(p), err
	}}}, s.kept...)
}

// Keep adds sources of records that Commit charges. It is called before the first use.
func (s *Projects) Keep(sources ...Source) { s.kept = append(s.kept, sources...) }

// chargeOfProject returns the charge for the record of a project, which its parent pays. Only operators create projects
// without a parent.
func chargeOfProject(p storedProject) Charge {
	p.Generation, p.ID = 0, ""
	return Charge{Project: p.Parent, Amounts: SizeOf(tenant.CountProjects, p).
		Plus(tenant.Amounts{tenant.CountMembers: int64(len(p.Members))})}
}

// discrepanciesStored compares the counters of stored records with the records, at a revision.
func (s *Projects) discrepanciesStored(ctx context.Context, revision int64, tree tenant.Tree) (
	all []tenant.Discrepancy, err error) {
	counts := map[croft.Project]storedCount{}
	err = s.conn.ReadRange(ctx, "read what projects store", s.keys().allStored(), revision,
		func(stored *mvccpb.KeyValue) error {
			var n storedCount
			err := s.conn.Decode(stored.Key, stored.Value, &n)
			counts[croft.Project(kv.Last(stored.Key))] = n
			return err
		})
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name].Rules != storedRules {
			continue
		}
		records, err := s.storedAt(ctx, revision, tree.Below(name))
		if err != nil {
			return nil, err
		}
		if counted := counts[name].Used.Plus(nil); !maps.Equal(counted, records) {
			all = append(all, tenant.Discrepancy{Project: name, Counted: counted, Records: records})
		}
	}
	return all, nil
}

// recountStored marks the counter of a project's stored records, so that its next user counts them again.
func (s *Projects) recountStored(ctx context.Context, name croft.Project) error {
	key := s.keys().stored(name)
	// Existence is enough: counting again is right for whichever project has the name.
	_, err := s.conn.Etcd.Txn(ctx).If(kv.Exists(key)).Then(clientv3.OpPut(key, kv.Encode(storedCount{}))).Commit()
	if err != nil {
		return s.conn.Wrap(err, "count again what project %s stores", name)
	}
	return nil
}
