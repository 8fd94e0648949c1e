package clusters

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
)

func (s *ApplianceStore) implementations() shelf.Shelf[cluster.Implementation] {
	return shelf.Shelf[cluster.Implementation]{Conn: s.conn, Noun: "implementation",
		Prefix: s.keys().implementations(),
		Stamp:  func(v *cluster.Implementation, generation, _ int64) { v.Generation = generation },
		Charge: chargeOfImplementation, Projects: s.projects}
}

// Implementations implements cluster.ApplianceStore.
func (s *ApplianceStore) Implementations(ctx context.Context, appliance string) ([]cluster.Implementation, error) {
	var all []cluster.Implementation
	err := s.index(ctx)
	switch {
	case err != nil:
		return nil, err
	case appliance == "":
		all, err = s.implementations().List(ctx, 0)
	default:
		all, err = s.implementations().Indexed(ctx, s.keys().implemented(appliance),
			func(key *mvccpb.KeyValue) string { return kv.Last(key.Key) })
	}
	slices.SortFunc(all, func(a, b cluster.Implementation) int {
		return cmp.Or(cmp.Compare(a.Appliance, b.Appliance), cmp.Compare(a.Site, b.Site),
			cmp.Compare(a.Revision, b.Revision))
	})
	return all, err
}

// index maintains the index of implementations by appliance, because programs of earlier versions do not: it writes the
// missing keys of implementations that they stored, and removes the keys of the implementations that they removed. Each
// process compares all keys at its first use and then once a minute; in between it does so only if the numbers of keys
// and implementations differ.
func (s *ApplianceStore) index(ctx context.Context) error {
	k := s.keys()
	counts, err := s.conn.Etcd.Txn(ctx).
		Then(clientv3.OpGet(k.implementations(), clientv3.WithPrefix(), clientv3.WithCountOnly()),
			clientv3.OpGet(k.allImplemented(), clientv3.WithPrefix(), clientv3.WithCountOnly())).Commit()
	if err != nil {
		return s.conn.Wrap(err, "count the implementations")
	}
	s.mu.Lock()
	due := time.Since(s.compared) > compareEvery
	s.mu.Unlock()
	if !due && counts.Responses[0].GetResponseRange().Count == counts.Responses[1].GetResponseRange().Count {
		return nil
	}
	begun := time.Now()
	unindexed, stale := map[cluster.ImplementationID]bool{}, []string{}
	err = s.conn.ReadRange(
		ctx,
		"list the implementations",
		k.implementations(),
		0,
		func(stored *mvccpb.KeyValue) error {
			unindexed[cluster.ImplementationID(kv.Last(stored.Key))] = true
			return nil
		},
		clientv3.WithKeysOnly(),
	)
	if err != nil {
		return err
	}
	err = s.conn.ReadRange(ctx, "list the implementations", k.allImplemented(), 0, func(stored *mvccpb.KeyValue) error {
		id := cluster.ImplementationID(kv.Last(stored.Key))
		if !unindexed[id] {
			stale = append(stale, string(stored.Key))
		}
		delete(unindexed, id)
		return nil
	}, clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	for id := range unindexed {
		i, err := s.Implementation(ctx, id)
		if croft.KindOf(err) == croft.NotFound { // it has been removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		_, err = s.conn.Etcd.Txn(ctx).
			// Existence is enough: the server generates the UUIDs of implementations, and their entries never change.
			If(kv.Exists(k.implementation(id))).
			Then(clientv3.OpPut(k.implementedBy(i), "")).
			Commit()
		if err != nil {
			return s.conn.Wrap(err, "index an implementation")
		}
	}
	for _, key := range stale {
		record := k.implementation(cluster.ImplementationID(kv.Last([]byte(key))))
		_, err := s.conn.Etcd.Txn(ctx).If(kv.Absent(record)).Then(clientv3.OpDelete(key)).Commit()
		if err != nil {
			return s.conn.Wrap(err, "index an implementation")
		}
	}
	s.mu.Lock()
	s.compared = begun
	s.mu.Unlock()
	return nil
}

// compareEvery is how often all keys of the index are compared with the implementations.
const compareEvery = time.Minute

// Implementation implements cluster.ApplianceStore.
func (s *ApplianceStore) Implementation(
	ctx context.Context,
	id cluster.ImplementationID,
) (cluster.Implementation, error) {
	return s.implementations().Find(ctx, string(id))
}

// maxImplementation is the maximum size of a stored implementation in bytes: the size of its template may double in
// JSON.
const maxImplementation = 1280 << 10

// AddImplementation implements cluster.ApplianceStore. Revisions are counted in a separate record, so that no number is
// reused.
func (s *ApplianceStore) AddImplementation(ctx context.Context, i cluster.Implementation) (cluster.Implementation,
	error) {
	_, malformed := croft.ParseClusterID(string(i.ID)) // any UUID
	if err := cmp.Or(s.may(), malformed); err != nil {
		return i, err
	}
	if n := len(kv.Encode(i)); n > maxImplementation {
		return i, croft.Errorf(
			croft.Invalid,
			"the implementation has %d bytes as JSON, at most %d are stored: make its "+
				"template shorter",
			n,
			maxImplementation,
		)
	}
	i.Project, i.Generation = "", 0
	implementations := s.implementations()
	implementations.Guard = func(ctx context.Context, _ cluster.Implementation, next *cluster.Implementation) (
		shelf.Guard, error) {
		return s.revise(ctx, next)
	}
	return implementations.Set(ctx, string(i.ID), 0, i)
}

// revise sets the revision and the project of a new implementation. It returns the transaction that counts the
// revision and compares the appliance, the site and the image that the implementation names.
func (s *ApplianceStore) revise(ctx context.Context, i *cluster.Implementation) (g shelf.Guard, err error) {
	k := s.keys()
	key := k.revision(i.Appliance, i.Site)
	_, answers, err := s.conn.Commit(ctx, kv.Txn{Then: []clientv3.Op{clientv3.OpGet(key),
		clientv3.OpGet(k.appliance(i.Appliance)), clientv3.OpGet(k.site(i.Site)), clientv3.OpGet(k.image(i.Image))}},
		"read the revision of an implementation")
	if err != nil {
		return g, err
	}
	latest := int64(0)
	if i.Revision = 0; kv.First(answers[0]) != nil {
		last := kv.First(answers[0])
		if i.Revision, err = strconv.Atoi(string(last.Value)); err != nil {
			return g, croft.Errorf(croft.Invalid, "%s holds no number: %w", last.Key, err)
		}
		latest = last.ModRevision
	}
	i.Revision++
	g.If = []clientv3.Cmp{kv.Unchanged(key, latest)}
	for n, missing := range []error{s.appliances().NotFound(ctx, cluster.ApplianceName(i.Appliance)),
		sitesOf(s.conn).NotFound(ctx, i.Site), nil} {
		switch named := kv.First(answers[1+n]); {
		case named != nil:
			g.If = append(g.If, kv.Created(string(named.Key), named.CreateRevision))
		case missing != nil: // an image may also be one of the cloud
			return g, missing
		}
	}
	of, err := s.appliances().Read(kv.First(answers[1]))
	i.Project = of.Project
	g.Then = []clientv3.Op{clientv3.OpPut(key, strconv.Itoa(i.Revision)), clientv3.OpPut(k.implementedBy(*i), "")}
	return g, err
}

// EnableImplementation implements cluster.ApplianceStore.
func (s *ApplianceStore) EnableImplementation(ctx context.Context, id cluster.ImplementationID, enabled bool) (
	cluster.Implementation, error) {
	return s.implementations().Change(ctx, string(id), nil, func(i cluster.Implementation, there bool) (
		cluster.Implementation, error) {
		if !there {
			return i, s.implementations().NotFound(ctx, string(id))
		}
		i.Enabled = enabled
		return i, nil
	})
}

// RemoveImplementation implements cluster.ApplianceStore.
func (s *ApplianceStore) RemoveImplementation(ctx context.Context, id cluster.ImplementationID) error {
	k := s.keys()
	used := k.used("implementations", string(id))
	return s.implementations().Remove(ctx, string(id), nil, func(i cluster.Implementation, revision int64) (
		shelf.Guard, error) {
		n, err := s.count(ctx, used, revision)
		if err == nil && n > 0 {
			err = croft.Errorf(croft.Conflict, "%d clusters were built by implementation %s: delete those first, or "+
				"disable it", n, id)
		}
		return shelf.Guard{If: []clientv3.Cmp{kv.AbsentBelow(used)},
			Then: []clientv3.Op{clientv3.OpDelete(k.implementedBy(i))}}, err
	})
}
