package schedule

import (
	"context"
	"maps"
	"slices"

	"croft"
	"croft/internal/nearest"
	"croft/schedule/topology"
)

// checkBounds rejects malformed filters, and bounds that name neither an aggregate nor a location of a host. Invalid,
// NotFound.
func (s *Scheduler) checkBounds(ctx context.Context, spec croft.Spec, hidden []string) error {
	if spec.HasPropertyFilters() {
		if _, err := s.Properties.FilterHosts(ctx, spec.Where, spec.WhereNot, hidden); err != nil {
			return err
		}
	}
	if len(spec.In) == 0 {
		return nil
	}
	names := croft.NamesIn(spec.In)
	aggregates, err := s.Aggregates.Named(ctx, names...)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { _, there := aggregates[name]; return there })
	if len(names) == 0 {
		return nil
	}
	hosts, err := s.allHosts(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := topology.Locate(name, slices.Collect(maps.Values(hosts))); err != nil {
			return s.nowhere(ctx, name, hosts)
		}
	}
	return nil
}

// nowhere returns the error for a name that is neither an aggregate nor a location.
func (s *Scheduler) nowhere(ctx context.Context, name string, hosts map[croft.HostID]croft.Host) error {
	all, _ := s.Aggregates.List(ctx) // only a hint: an error is ignored
	known := topology.Names(slices.Collect(maps.Values(hosts)))
	for _, a := range all {
		known = append(known, a.Name)
	}
	return croft.Errorf(croft.NotFound, "there is no aggregate %q, and no host is in a location of that name%s", name,
		nearest.Hint(name, known))
}
