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

// Put stores an aggregate, and replaces the one of this name; without hosts it removes the aggregate.
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

// note holds the properties of a host, as words; each word is also the filter that selects the host.
type note struct {
	words      []string
	generation int64
}

// HostProperties are the properties of hosts of a Memory.
type HostProperties struct{ *Memory }

var _ schedule.Properties = HostProperties{}

// SetTags replaces the words of a host.
func (m HostProperties) SetTags(ctx context.Context, host croft.HostID, words ...string) error {
	return m.write(ctx, func() error {
		m.properties[host] = note{words, m.revision}
		return nil
	})
}

// FilterHosts implements schedule.Properties. An empty word is no filter.
func (m HostProperties) FilterHosts(ctx context.Context, where, whereNot, hidden []string) (croft.FilteredHosts,
	error) {
	if slices.Contains(slices.Concat(where, whereNot), "") {
		return croft.FilteredHosts{}, croft.Errorf(croft.Invalid, "a filter is empty")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := croft.FilteredHosts{Wanted: map[croft.HostID]bool{}, Barred: map[croft.HostID]bool{},
		Generations: map[croft.HostID]int64{}}
	for host, note := range m.properties {
		n.Generations[host] = note.generation
		for _, word := range note.words {
			if !slices.Contains(hidden, word) {
				n.Wanted[host] = n.Wanted[host] || slices.Contains(where, word)
				n.Barred[host] = n.Barred[host] || slices.Contains(whereNot, word)
			}
		}
	}
	return n, ctx.Err()
}

// Distances are the stated distances of a Memory.
type Distances struct{ *Memory }

var _ schedule.Distances = Distances{}

// Put states distances, and replaces all distances of their type.
func (m Distances) Put(ctx context.Context, kind string, stated ...croft.Distance) error {
	return m.write(ctx, func() (err error) {
		all := croft.Distances{Type: kind, Generation: m.revision}
		for _, d := range stated {
			if all, err = all.With(d); err != nil {
				return err
			}
		}
		m.distances[kind] = all
		return nil
	})
}

// Stated implements schedule.Distances.
func (m Distances) Stated(ctx context.Context, kinds ...string) (map[string]croft.Distances, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := maps.Clone(m.distances)
	maps.DeleteFunc(found, func(kind string, _ croft.Distances) bool { return !slices.Contains(kinds, kind) })
	return found, ctx.Err()
}

// List implements schedule.Distances.
func (m Distances) List(ctx context.Context) ([]croft.Distances, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.distances)), ctx.Err()
}
