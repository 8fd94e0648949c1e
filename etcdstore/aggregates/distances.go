package aggregates

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
	"croft/internal/nearest"
)

// Distances is the store of the stated distances. All distances of a type are one value, so that they have one
// generation, which orders compare. The aggregates, locations and hosts that they name need not exist.
type Distances struct {
	may       func() error // whether all programs of this cloud know distances
	distances shelf.Shelf[croft.Distances]
}

// NewDistances makes the store of distances, which writes if may returns nil.
func NewDistances(c *kv.Conn, may func() error) *Distances {
	return &Distances{may, shelf.Shelf[croft.Distances]{Conn: c, Noun: "distances", Plural: "distances",
		Prefix: Keys(c.Prefix).based(croft.DistancesKey("")),
		Decode: func(entry *mvccpb.KeyValue) (croft.Distances, error) {
			d := croft.Distances{Type: kv.Last(entry.Key), Distances: []croft.Distance{}, Generation: entry.ModRevision}
			return d, c.Decode(entry.Key, entry.Value, &d.Distances)
		},
		Encode: func(d croft.Distances) string { return kv.Encode(d.Distances) },
		Empty:  func(d croft.Distances) bool { return len(d.Distances) == 0 },
		Stamp:  func(d *croft.Distances, generation, _ int64) { d.Generation = generation },
		Differs: func(kind string, now, wanted int64) error {
			return croft.Errorf(croft.Conflict, "the distances of type %s have generation %d, not %d: another "+
				"request changed them; read them again", kind, now, wanted)
		},
		Most: croft.MaxDistanceTypes, TooMany: func(n int64) error {
			return croft.Errorf(croft.Invalid, "there are %d types of distances, and may not be more: remove "+
				"the distances of one", n)
		}}}
}

// List returns the stated distances of all types, by type. Types without stated distances are omitted.
func (s *Distances) List(ctx context.Context) ([]croft.Distances, error) { return s.ReadAt(ctx, 0) }

// ReadAt is like List, at a revision; 0: the current one.
func (s *Distances) ReadAt(ctx context.Context, revision int64) ([]croft.Distances, error) {
	return s.distances.List(ctx, revision)
}

// Stated returns the stated distances of these types; types without stated distances are omitted.
func (s *Distances) Stated(ctx context.Context, kinds ...string) (map[string]croft.Distances, error) {
	for _, kind := range kinds {
		if err := croft.CheckDistanceType(kind); err != nil {
			return nil, err
		}
	}
	all, err := s.distances.Named(ctx, kinds...)
	found := map[string]croft.Distances{}
	for _, d := range all {
		found[d.Type] = d
	}
	return found, err
}

// Set states a distance, and replaces the one of this pair, if the distances of the type have a generation; nil: any.
// It returns their new generation. Conflict: they have another generation. Invalid.
func (s *Distances) Set(ctx context.Context, kind string, d croft.Distance, generation *int64) (int64, error) {
	if err := s.may(); err != nil {
		return 0, err
	}
	return s.change(ctx, kind, generation, func(now croft.Distances) (croft.Distances, error) {
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

// change replaces the distances of a type by the result of next, and returns their generation.
func (s *Distances) change(ctx context.Context, kind string, generation *int64,
	next func(croft.Distances) (croft.Distances, error)) (int64, error) {
	if err := croft.CheckDistanceType(kind); err != nil {
		return 0, err
	}
	d, err := s.distances.Change(ctx, kind, generation, func(now croft.Distances, there bool) (croft.Distances, error) {
		if !there {
			now = croft.Distances{Type: kind, Distances: []croft.Distance{}}
		}
		changed, err := next(now)
		if err == nil && s.distances.Text(changed) == s.distances.Text(now) {
			err = shelf.ErrSame
		}
		return changed, err
	})
	return d.Generation, err
}
