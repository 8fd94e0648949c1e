package aggregates

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/internal/nearest"
)

// Distances is the store of the stated distances. All distances of a type are one value, so that they have one
// generation, which orders compare. The aggregates, locations and hosts that they name need not exist.
type Distances struct {
	conn *kv.Conn
	may  func() error // whether all programs of this cloud know distances
}

// NewDistances makes the store of distances, which writes if may returns nil.
func NewDistances(c *kv.Conn, may func() error) *Distances { return &Distances{c, may} }

func (s *Distances) key(kind string) string {
	return Keys(s.conn.Prefix).based(croft.DistancesKey(kind))
}

func (s *Distances) decode(entry *mvccpb.KeyValue) (croft.Distances, error) {
	d := croft.Distances{Type: kv.Last(entry.Key), Distances: []croft.Distance{}, Generation: entry.ModRevision}
	return d, s.conn.Decode(entry.Key, entry.Value, &d.Distances)
}

// List returns the stated distances of all types, by type. Types without stated distances are omitted.
func (s *Distances) List(ctx context.Context) ([]croft.Distances, error) { return s.ReadAt(ctx, 0) }

// ReadAt is like List, at a revision; 0: the current one.
func (s *Distances) ReadAt(ctx context.Context, revision int64) ([]croft.Distances, error) {
	got, err := s.conn.Etcd.Get(ctx, s.key(""), clientv3.WithPrefix(), clientv3.WithRev(revision))
	if err != nil {
		return nil, s.conn.Wrap(err, "read the distances")
	}
	all := []croft.Distances{}
	for _, entry := range got.Kvs {
		d, err := s.decode(entry)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// Stated returns the stated distances of these types; types without stated distances are omitted.
func (s *Distances) Stated(ctx context.Context, kinds ...string) (map[string]croft.Distances, error) {
	found := map[string]croft.Distances{}
	for _, kind := range kinds {
		d, err := s.read(ctx, kind)
		if err != nil {
			return nil, err
		}
		if d.Generation != 0 {
			found[kind] = d
		}
	}
	return found, nil
}

func (s *Distances) read(ctx context.Context, kind string) (croft.Distances, error) {
	if err := croft.CheckDistanceType(kind); err != nil {
		return croft.Distances{}, err
	}
	got, err := s.conn.Etcd.Get(ctx, s.key(kind))
	if err != nil {
		return croft.Distances{}, s.conn.Wrap(err, "read the distances of type %s", kind)
	}
	if len(got.Kvs) == 0 {
		return croft.Distances{Type: kind, Distances: []croft.Distance{}}, nil
	}
	return s.decode(got.Kvs[0])
}

// Set states a distance, and replaces the one of this pair, if the distances of the type have a generation; nil: any.
// It returns their new generation. Conflict: they have another generation. Invalid.
func (s *Distances) Set(ctx context.Context, kind string, d croft.Distance, generation *int64) (int64, error) {
	if err := s.may(); err != nil {
		return 0, err
	}
	return s.change(ctx, kind, generation, func(now croft.Distances) (croft.Distances, error) {
		if now.Generation == 0 {
			all, err := s.List(ctx)
			if err != nil {
				return now, err
			}
			if len(all) >= croft.MaxDistanceTypes {
				return now, croft.Errorf(croft.Invalid, "there are %d types of distances, and may not be more: remove "+
					"the distances of one", len(all))
			}
		}
		return now.With(d)
	})
}

// Remove removes the distance of a pair, under the conditions of Set. NotFound: no distance of the pair is stated.
func (s *Distances) Remove(ctx context.Context, kind, a, b string, generation *int64) error {
	_, err := s.change(ctx, kind, generation, func(now croft.Distances) (croft.Distances, error) {
		next, there := now.Without(a, b)
		if there {
			return next, nil
		}
		if now.Generation == 0 {
			if all, err := s.List(ctx); err == nil {
				return now, croft.NoDistances(kind, all)
			}
		}
		return now, croft.Errorf(croft.NotFound, "no distance of type %s is stated between %s and %s%s", kind, a, b,
			nearest.Hint(a+" "+b, pairs(now)))
	})
	return err
}

// pairs lists the pairs of distances, for a hint.
func pairs(all croft.Distances) (texts []string) {
	for _, d := range all.Distances {
		texts = append(texts, d.A+" "+d.B)
	}
	return texts
}

// change replaces the distances of a type by the result of next, and retries after each concurrent change. Each failure
// means that another change was made, so the retries end.
func (s *Distances) change(ctx context.Context, kind string, generation *int64,
	next func(croft.Distances) (croft.Distances, error)) (int64, error) {
	for {
		now, err := s.read(ctx, kind)
		if err != nil {
			return 0, err
		}
		if generation != nil && *generation != now.Generation {
			return 0, croft.Errorf(croft.Conflict, "the distances of type %s have generation %d, not %d: another "+
				"request changed them; read them again", kind, now.Generation, *generation)
		}
		changed, err := next(now)
		if err != nil {
			return 0, err
		}
		if kv.Encode(changed.Distances) == kv.Encode(now.Distances) {
			return now.Generation, nil
		}
		op := clientv3.OpPut(s.key(kind), kv.Encode(changed.Distances))
		if len(changed.Distances) == 0 {
			op = clientv3.OpDelete(s.key(kind))
		}
		done, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(s.key(kind), now.Generation)).Then(op).Commit()
		switch {
		case err != nil:
			return 0, s.conn.Wrap(err, "write the distances of type %s", kind)
		case done.Succeeded:
			return done.Header.Revision, nil
		}
	}
}
