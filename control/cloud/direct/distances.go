package direct

import (
	"context"
	"errors"
	"maps"
	"slices"

	"croft"
	"croft/etcdstore"
	"croft/internal/nearest"
	"croft/schedule/topology"
)

// distances implements cloud.Distances.
type distances struct{ store *etcdstore.Store }

// place is an end of a distance, and its name as it is stored.
type place struct {
	topology.End
	name string
}

// List implements cloud.Distances.
func (d distances) List(ctx context.Context) ([]croft.Distances, error) {
	return d.store.Distances.List(ctx)
}

// places returns what each name means: an aggregate, else a host, else a location. NotFound.
func (d distances) places(ctx context.Context, names ...string) (all []place, err error) {
	aggregates, err := d.store.Aggregates.Named(ctx, names...)
	if err != nil {
		return nil, err
	}
	hosts, err := d.store.Registry.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if a, there := aggregates[name]; there {
			all = append(all, place{topology.AggregateEnd(a, hosts), name})
			continue
		}
		p, err := locate(name, hosts)
		if errors.Is(err, croft.Conflict) {
			return nil, err
		}
		if err != nil {
			known := topology.Names(slices.Collect(maps.Values(hosts)))
			for _, h := range hosts {
				known = append(known, h.Name)
			}
			if aggregates, err := d.store.Aggregates.List(ctx); err == nil { // used only for the hint
				for _, a := range aggregates {
					known = append(known, a.Name)
				}
			}
			return nil, croft.Errorf(croft.NotFound, "there is no aggregate %q, no host, and no location in which a host "+
				"is%s", name, nearest.Hint(name, known))
		}
		all = append(all, p)
	}
	return all, nil
}

// locate finds a host or a location. Conflict: several hosts have the name.
func locate(name string, hosts map[croft.HostID]croft.Host) (place, error) {
	switch h, err := croft.HostCalled(maps.Values(hosts), name); {
	case err == nil:
		path, err := topology.Of(h)
		return place{topology.End{Path: path}, string(h.ID)}, err
	case !errors.Is(err, croft.NotFound):
		return place{}, err
	}
	path, err := topology.Locate(name, slices.Collect(maps.Values(hosts)))
	if err == nil && path.Level() == croft.LevelHost {
		return place{topology.End{Path: path}, path.Name()}, nil
	}
	return place{topology.End{Path: path}, path.String()}, err
}

// Between implements cloud.Distances.
func (d distances) Between(ctx context.Context, kind, a, b string) (croft.Between, error) {
	stated, err := d.store.Distances.Stated(ctx, kind)
	if err != nil {
		return croft.Between{}, err
	}
	if _, any := stated[kind]; !any && kind != croft.FailureDistance {
		all, err := d.List(ctx)
		return croft.Between{}, errors.Join(err, croft.NoDistances(kind, all))
	}
	ends, err := d.places(ctx, a, b)
	if err != nil {
		return croft.Between{}, err
	}
	aggregates, err := d.store.Aggregates.Named(ctx, stated[kind].Names()...)
	if err != nil {
		return croft.Between{}, err
	}
	n, isStated, known := topology.NewDistances(stated[kind], aggregates).Between(kind, ends[0].End, ends[1].End)
	if !known {
		return croft.Between{}, croft.Errorf(croft.NotFound, "no distance of type %s is stated between %s and %s", kind,
			a, b)
	}
	return croft.Between{Type: kind, A: ends[0].name, B: ends[1].name, Distance: n, Stated: isStated}, nil
}

// Set implements cloud.Distances.
func (d distances) Set(ctx context.Context, kind string, stated croft.Distance, generation *int64) (int64, error) {
	if err := croft.CheckDistanceType(kind); err != nil {
		return 0, err
	}
	ends, err := d.places(ctx, stated.A, stated.B)
	if err != nil {
		return 0, err
	}
	if topology.Holds(ends[0].End, ends[1].End) {
		return 0, croft.Errorf(croft.Invalid, "the distance between %s and %s is 0: one is in the other", stated.A,
			stated.B)
	}
	stated.A, stated.B = ends[0].name, ends[1].name
	return d.store.Distances.Set(ctx, kind, stated, generation)
}

// Remove implements cloud.Distances.
func (d distances) Remove(ctx context.Context, kind, a, b string, generation *int64) error {
	names := []string{a, b}
	for i, name := range names {
		switch ends, err := d.places(ctx, name); {
		case err == nil:
			names[i] = ends[0].name
		case !errors.Is(err, croft.NotFound): // a place that no longer exists is named as it is stored
			return err
		}
	}
	return d.store.Distances.Remove(ctx, kind, names[0], names[1], generation)
}
