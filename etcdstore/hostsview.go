package etcdstore

import (
	"context"
	"maps"

	"croft"
	"croft/schedule"
)

// HostsView is a Registry for a scheduler with many requests. While it runs, it reads hosts that accept orders from a
// copy in memory. The copy may be outdated. Whether a host accepts orders is taken from the copy, since Assign compares
// it again; whether a host refuses orders is read from etcd, since an outdated copy would not be noticed.
type HostsView struct {
	registry *Registry
	mirror   *Mirror
}

var _ schedule.Registry = (*HostsView)(nil)

// NewHostsView returns a view that reads everything from etcd until it runs.
func (s *conn) NewHostsView() *HostsView {
	return &HostsView{&Registry{conn: s}, s.mirrorOf(s.keys.hosts(), s.keys.allAlive(), s.keys.allDrained())}
}

// Run keeps the copy up to date until ctx ends.
func (v *HostsView) Run(ctx context.Context) error { return v.mirror.Run(ctx, nil) }

// Hosts implements schedule.Registry.
func (v *HostsView) Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	if len(ids) == 0 {
		return v.registry.Hosts(ctx)
	}
	found, others := v.mirror.open(ids)
	if len(others) == 0 {
		return found, nil
	}
	read, err := v.registry.Hosts(ctx, others...)
	if err != nil {
		return nil, err
	}
	maps.Copy(found, read)
	return found, nil
}

// open returns the hosts that accept orders, and the IDs of the others.
func (m *Mirror) open(ids []croft.HostID) (found map[croft.HostID]croft.Host, others []croft.HostID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.conn.keys
	found = make(map[croft.HostID]croft.Host, len(ids))
	for _, id := range ids {
		host, known := m.values[k.hosts()][k.host(id)].(croft.Host)
		agent, alive := m.values[k.allAlive()][k.alive(id)].(string)
		_, drained := m.values[k.allDrained()][k.drained(id)]
		if !known || !alive || drained || !m.listed[k.allDrained()] {
			others = append(others, id)
			continue
		}
		host.Alive, host.Traces = true, knows([]byte(agent), tracesMinor)
		host.Vacates, host.Volumes = knows([]byte(agent), vacatesMinor), knows([]byte(agent), volumesMinor)
		host.Images = knows([]byte(agent), imagesMinor)
		host.Carries, host.Resizes = knows([]byte(agent), movesMinor), knows([]byte(agent), resizeMinor)
		found[id] = host
	}
	return found, others
}
