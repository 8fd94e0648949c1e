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
)

func (s *ApplianceStore) implementations() shelf[cluster.Implementation] {
	return shelf[cluster.Implementation]{"implementation", s.keys().implementations(),
		func(v *cluster.Implementation) *int64 { return &v.Generation }, nil}
}

// Implementations implements cluster.ApplianceStore.
func (s *ApplianceStore) Implementations(ctx context.Context, appliance string) ([]cluster.Implementation, error) {
	var all []cluster.Implementation
	err := s.index(ctx)
	switch {
	case err != nil:
		return nil, err
	case appliance == "":
		all, err = s.implementations().list(ctx, s.conn, 0)
	default:
		all, err = s.implementations().indexed(ctx, s.conn, s.keys().implemented(appliance),
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
func (s *ApplianceStore) Implementation(ctx context.Context, id cluster.ImplementationID) (cluster.Implementation,
	error) {
	return s.implementations().find(ctx, s.conn, string(id))
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
	k := s.keys()
	i.Project = ""
	key, i0 := k.revision(i.Appliance, i.Site), i
	for {
		got, err := s.conn.Etcd.Txn(ctx).Then(clientv3.OpGet(key), clientv3.OpGet(k.appliance(i.Appliance)),
			clientv3.OpGet(k.site(i.Site)), clientv3.OpGet(k.image(i.Image))).Commit()
		if err != nil {
			return i, s.conn.Wrap(err, "read the revision of an implementation")
		}
		i, revision := i0, int64(0)
		if latest := kv.First(got.Responses[0]); latest != nil {
			if i.Revision, err = strconv.Atoi(string(latest.Value)); err != nil {
				return i, croft.Errorf(croft.Invalid, "%s holds no number: %w", latest.Key, err)
			}
			revision = latest.ModRevision
		} else {
			i.Revision = 0
		}
		i.Revision++
		ifs := []clientv3.Cmp{kv.Unchanged(key, revision)}
		for n, missing := range []error{s.appliances().missing(cluster.ApplianceName(i.Appliance)),
			s.sites().missing(i.Site), nil} {
			switch named := kv.First(got.Responses[1+n]); {
			case named != nil:
				ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(string(named.Key)), "=",
					named.CreateRevision))
			case missing != nil: // an image may also be one of the cloud
				return i, missing
			}
		}
		of, err := s.appliances().decode(s.conn, kv.First(got.Responses[1]))
		if err != nil {
			return i, err
		}
		i.Project, i.Generation = of.Project, 0
		written, err := s.implementations().put(ctx, s.projects, string(i.ID), &i, chargeOfImplementation(i), ifs,
			clientv3.OpPut(key, strconv.Itoa(i.Revision)), clientv3.OpPut(k.implementedBy(i), ""))
		if err != nil || written {
			return i, err
		} // otherwise something changed, so the retries end
	}
}

// EnableImplementation implements cluster.ApplianceStore.
func (s *ApplianceStore) EnableImplementation(ctx context.Context, id cluster.ImplementationID, enabled bool) (
	cluster.Implementation, error) {
	for {
		i, err := s.Implementation(ctx, id)
		if err != nil {
			return i, err
		}
		before := chargeOfImplementation(i)
		i.Enabled = enabled
		_, err = s.implementations().put(ctx, s.projects, string(id), &i,
			instead(before, chargeOfImplementation(i)), nil)
		if croft.KindOf(err) != croft.Conflict { // otherwise another process changed it, so the retries end
			return i, err
		}
	}
}

// RemoveImplementation implements cluster.ApplianceStore.
func (s *ApplianceStore) RemoveImplementation(ctx context.Context, id cluster.ImplementationID) error {
	k := s.keys()
	used := k.used("implementations", string(id))
	return s.remove(ctx, s.implementations().missing(string(id)), k.implementation(id),
		func(revision int64) (removal, error) {
			n, err := s.count(ctx, used, revision)
			if err == nil && n > 0 {
				err = croft.Errorf(
					croft.Conflict,
					"%d clusters were built by implementation %s: delete those first, or "+
						"disable it",
					n,
					id,
				)
			}
			if err != nil {
				return removal{}, err
			}
			i, err := s.Implementation(ctx, id)
			return removal{ifs: []clientv3.Cmp{kv.AbsentBelow(used), kv.Unchanged(k.implementation(id), i.Generation)},
				ops:  []clientv3.Op{clientv3.OpDelete(k.implementedBy(i))},
				paid: chargeOfImplementation(i)}, err
		})
}
