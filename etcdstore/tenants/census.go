package tenants

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/tenant"
)

// Charge is the charge of a project for a record while the record is stored in its present form.
type Charge struct {
	Project croft.Project // empty: no project is charged
	Amounts tenant.Amounts
}

// Source is a prefix of records that projects are charged for.
type Source struct {
	Prefix string
	// Charge returns the charge for a record.
	Charge func(key, value []byte) (Charge, error)
}

// chargeOfToken is the charge for a token.
var chargeOfToken = tenant.Amounts{tenant.CountTokens: 1}

// census holds the sums over the records of each project at one revision.
type census struct {
	revision int64
	tree     tenant.Tree
	owned    map[croft.Project]tenant.Amounts // of each project without its descendants
}

// takeCensus counts at a revision; 0: the current one.
func (s *Projects) takeCensus(ctx context.Context, revision int64) (*census, error) {
	got, err := s.conn.Etcd.Get(ctx, s.instances, clientv3.WithPrefix(), clientv3.WithCountOnly(),
		clientv3.WithRev(revision))
	if err != nil {
		return nil, s.conn.Wrap(err, "count the instances")
	}
	n := &census{revision: cmp.Or(revision, got.Header.Revision), owned: map[croft.Project]tenant.Amounts{}}
	projects, err := s.readProjects(ctx, n.revision)
	if err != nil {
		return nil, err
	}
	n.tree = tenant.NewTree(projects)
	if err := s.countTokens(ctx, n); err != nil {
		return n, err
	}
	for _, from := range s.sources {
		if err := s.countFrom(ctx, from, n); err != nil {
			return n, err
		}
	}
	if got.Count == 0 {
		return n, nil
	}
	all, err := kv.ReadAll[croft.Instance](ctx, s.conn, "count the instances", s.instances, n.revision)
	for _, inst := range all {
		n.add(inst.Project, tenant.AmountsOf(inst))
	}
	return n, err
}

func (n *census) add(name croft.Project, more tenant.Amounts) {
	n.owned[name] = n.owned[name].Plus(more)
}

func (s *Projects) countFrom(ctx context.Context, from Source, n *census) error {
	return s.conn.ReadRange(ctx, "count the records of projects", from.Prefix, n.revision,
		func(stored *mvccpb.KeyValue) error {
			c, err := from.Charge(stored.Key, stored.Value)
			if c.Project != "" {
				n.add(c.Project, c.Amounts)
			}
			return err
		})
}

func (s *Projects) countTokens(ctx context.Context, n *census) error {
	return s.conn.ReadRange(ctx, "count the tokens", s.keys().tokens(), n.revision,
		func(stored *mvccpb.KeyValue) error {
			if name := s.keys().ofToken(stored.Key); name != "" {
				n.add(name, chargeOfToken)
			}
			return nil
		}, clientv3.WithKeysOnly())
}

// of returns the sum of a project and its descendants.
func (n *census) of(name croft.Project) tenant.Amounts {
	sum := tenant.Amounts{}
	for _, below := range n.tree.Below(name) {
		sum = sum.Plus(n.owned[below])
	}
	return sum
}

// Recount implements tenant.Projects. It creates the counter before it reads the records, so that each later removal
// writes an entry. A process that adds a record waits until the counter is ready, or changes it, and then Recount
// counts again.
func (s *Projects) Recount(ctx context.Context, name croft.Project) error {
	key := s.keys().used(name)
	for {
		done, err := s.conn.Etcd.Txn(ctx).If(kv.Absent(key)).Then(clientv3.OpPut(key, kv.Encode(count{}))).
			Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return s.conn.Wrap(err, "start to count the usage of project %s", name)
		}
		revision := done.Header.Revision
		if !done.Succeeded {
			revision = kv.First(done.Responses[0]).ModRevision
		}
		census, err := s.takeCensus(ctx, 0)
		if err != nil {
			return err
		}
		n := count{Used: census.of(name), Ready: true, Since: census.revision}
		done, err = s.conn.Etcd.Txn(ctx).If(kv.Unchanged(key, revision)).Then(clientv3.OpPut(key, kv.Encode(n))).
			Commit()
		if err != nil {
			return s.conn.Wrap(err, "write the usage of project %s", name)
		}
		if done.Succeeded {
			return s.recountStored(ctx, name)
		}
	}
}

// Check implements tenant.Projects. It compares counters, entries and records at one revision.
func (s *Projects) Check(ctx context.Context) ([]tenant.Discrepancy, error) { return s.CheckAt(ctx, 0) }

// CheckAt is like Check, at an earlier revision of etcd; 0: the current one.
func (s *Projects) CheckAt(ctx context.Context, revision int64) ([]tenant.Discrepancy, error) {
	census, err := s.takeCensus(ctx, revision)
	if err != nil {
		return nil, err
	}
	k := s.keys()
	entries := map[croft.Project][]entry{}
	err = s.conn.ReadRange(ctx, "read the records that are not counted yet", k.allEntries(), census.revision,
		func(stored *mvccpb.KeyValue) error {
			r, err := s.decodeEntry(stored)
			name := k.entryOf(stored.Key)
			entries[name] = append(entries[name], r)
			return err
		})
	if err != nil {
		return nil, err
	}
	var all []tenant.Discrepancy
	err = s.conn.ReadRange(ctx, "read the usage of projects", k.allUsed(), census.revision,
		func(stored *mvccpb.KeyValue) error {
			var n count
			if err := s.conn.Decode(stored.Key, stored.Value, &n); err != nil || !n.Ready {
				return err
			}
			name, counted := croft.Project(strings.TrimPrefix(string(stored.Key), k.allUsed())), n.Used
			for _, below := range census.tree.Below(name) {
				counted = n.less(counted, entries[below])
			}
			if records := census.of(name); !maps.Equal(counted.Plus(nil), records) {
				all = append(all, tenant.Discrepancy{Project: name, Counted: counted, Records: records})
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	stored, err := s.discrepanciesStored(ctx, census.revision, census.tree)
	all = append(all, stored...)
	slices.SortFunc(all, func(a, b tenant.Discrepancy) int { return cmp.Compare(a.Project, b.Project) })
	return all, err
}
