package scheduletest

import (
	"context"
	"maps"
	"slices"

	"croft"
	"croft/schedule"
)

// Aggregates are the aggregates of a Memory.
type Aggregates struct{ *Memory }

var _ schedule.Aggregates = Aggregates{}

// Put stores an aggregate in place of the one of this name; without hosts it removes it.
func (m Aggregates) Put(ctx context.Context, name string, hosts ...croft.HostID) error {
	return m.write(ctx, func() error {
		if len(hosts) == 0 {
			delete(m.named, name)
			return nil
		}
		hosts = slices.Sorted(slices.Values(hosts))
		m.named[name] = croft.Aggregate{Name: name, Hosts: hosts, Generation: m.revision}
		return nil
	})
}

// Named implements schedule.Aggregates.
func (m Aggregates) Named(ctx context.Context, names ...string) (map[string]croft.Aggregate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := maps.Clone(m.named)
	maps.DeleteFunc(found, func(name string, _ croft.Aggregate) bool { return !slices.Contains(names, name) })
	return found, ctx.Err()
}

// List implements schedule.Aggregates.
func (m Aggregates) List(ctx context.Context) (all []croft.Aggregate, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.named)) {
		all = append(all, m.named[name])
	}
	return all, ctx.Err()
}
