package schedule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"croft"
	"croft/schedule/topology"
)

// maxNear is the maximum number of locations that an instance can be near to or far from.
const maxNear = 8

// locate finds the locations of the instances, aggregates, hosts and locations that a request names. NotFound: one of
// them does not exist, or no distance of the type is stated. Conflict: the instance has no host yet. Invalid: there are
// too many, or a host's location has no valid form.
func (s *Scheduler) locate(ctx context.Context, project croft.Project, all []croft.Near) ([]croft.Near, error) {
	if len(all) > maxNear {
		return nil, croft.Errorf(croft.Invalid, "near to or far from %d: %d at most", len(all), maxNear)
	}
	kind, err := croft.NearType(all)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		stated, err := s.Distances.List(ctx)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(stated, func(d croft.Distances) bool { return d.Type == kind }) {
			return nil, croft.NoDistances(kind, stated)
		}
	}
	located := slices.Clone(all)
	for i, near := range all {
		word := "near"
		if near.Far {
			word = "far from"
		}
		if located[i], err = s.whereIs(ctx, project, near); err != nil {
			return nil, fmt.Errorf("%s %s: %w", word, near.To, err)
		}
	}
	return located, nil
}

// whereIs finds an instance of the project, else an aggregate, a host or a location.
func (s *Scheduler) whereIs(ctx context.Context, project croft.Project, near croft.Near) (croft.Near, error) {
	at := func(path topology.Path, err error) (croft.Near, error) {
		near.Location = path.String()
		return near, err
	}
	st, err := s.View.Find(ctx, project, near.To)
	switch {
	case err == nil && st.Host == nil:
		return near, croft.Errorf(croft.Conflict, "the instance has no host yet, or one that is not on record")
	case err == nil:
		return at(topology.Of(*st.Host))
	case !errors.Is(err, croft.NotFound) && !errors.Is(err, croft.Invalid):
		return near, err
	}
	aggregates, err := s.Aggregates.Named(ctx, near.To)
	if _, there := aggregates[near.To]; err != nil || there {
		near.Location, near.Aggregate = near.To, there
		return near, err
	}
	hosts, err := s.Registry.Hosts(ctx)
	if err != nil {
		return near, err
	}
	switch h, err := croft.HostCalled(maps.Values(hosts), near.To); {
	case err == nil:
		return at(topology.Of(h))
	case !errors.Is(err, croft.NotFound):
		return near, err
	}
	path, err := topology.Locate(near.To, slices.Collect(maps.Values(hosts)))
	if err != nil {
		return near, croft.Errorf(croft.NotFound, "there is no instance of that name, no aggregate, no host, and no "+
			"location in which a host is; `croft host show` has the location of a host")
	}
	return at(path, nil)
}

// stated returns the stated distances that near uses, by type.
func (s *Scheduler) stated(ctx context.Context, near []croft.Near) (map[string]croft.Distances, error) {
	if len(near) == 0 {
		return nil, nil
	}
	return s.Distances.Stated(ctx, near[0].Kind()) // all entries have one type
}
