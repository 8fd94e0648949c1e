package schedule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"croft"
	"croft/topology"
)

// maxNear bounds the locations that an instance is to be near to.
const maxNear = 8

// locate says where the instances, hosts and locations are that a request names. NotFound; Conflict: the instance has
// no host yet. Invalid: there are too many, or a host's location has no valid form.
func (s *Scheduler) locate(ctx context.Context, project croft.Project, all []croft.Near) ([]croft.Near, error) {
	if len(all) > maxNear {
		return nil, croft.Errorf(croft.Invalid, "near to %d: %d at most", len(all), maxNear)
	}
	located := slices.Clone(all)
	for i, near := range all {
		path, err := s.whereIs(ctx, project, near.To)
		if err != nil {
			return nil, fmt.Errorf("near %s: %w", near.To, err)
		}
		located[i].Location = path.String()
	}
	return located, nil
}

// whereIs finds an instance of the project, else a host, else a location.
func (s *Scheduler) whereIs(ctx context.Context, project croft.Project, name string) (topology.Path, error) {
	st, err := s.View.Find(ctx, project, name)
	switch {
	case err == nil && st.Host == nil:
		return topology.Path{}, croft.Errorf(croft.Conflict,
			"the instance has no host yet, or one that is not on record")
	case err == nil:
		return topology.Of(*st.Host)
	case !errors.Is(err, croft.NotFound) && !errors.Is(err, croft.Invalid):
		return topology.Path{}, err
	}
	hosts, err := s.Registry.Hosts(ctx)
	if err != nil {
		return topology.Path{}, err
	}
	for _, h := range hosts {
		if h.Name == name || string(h.ID) == name {
			return topology.Of(h)
		}
	}
	path, err := topology.Locate(name, slices.Collect(maps.Values(hosts)))
	if err != nil {
		return path, croft.Errorf(croft.NotFound, "there is no instance of that name, no host, and no location in "+
			"which a host is; `croft host show` has the location of a host")
	}
	return path, nil
}
