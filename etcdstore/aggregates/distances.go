package aggregates

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/internal/nearest"
)

// Distances is the store of the distances that operators state. Those of a type are one value, so that they have one
// generation, which orders compare. What they name need not exist.
type Distances struct {
	conn *kv.Conn
	may  func() error // whether programs of this cloud know of distances
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

// List returns the stated distances of all types, by type. A type of which none is stated is not among them.
func (s *Distances) List(ctx context.Context) ([]croft.Distances, error) { return s.ReadAt(ctx, 0) }

// ReadAt is List as of a revision; 0: now.
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

// Stated returns the stated distances of these types, of those of which there are any.
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

// Set states a distance, in place of the one of this pair, if those of the type are of a generation; nil: of any. It
// returns their generation. Conflict: they are of another one. Invalid.
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

// Remove removes the distance of a pair, as Set states it. NotFound: none is stated.
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

// change replaces the distances of a type by what next makes of them, as often as others change them meanwhile. Each
// failure means that another change was made: trying again ends.
func (s *Distances) change(ctx context.Context, kind string, generation *int64,
	next func(croft.Distances) (croft.Distances, error)) (int64, error) {
	for {
		now, err := s.read(ctx, kind)
		if err != nil {
			return 0, err
		}
		if generation != nil && *generation != now.Generation {
			return 0, croft.Errorf(croft.Conflict, "the distances of type %s have generation %d, not %d: somebody else "+
				"changed them; read them again", kind, now.Generation, *generation)
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
