package manager

import (
	"context"
	"errors"
	"slices"
	"time"

	"croft"
	"croft/cluster"
)

// tombstone is a deleted cluster that can still be read.
type tombstone struct {
	id    croft.ClusterID
	ended time.Time
}

// remember adds a tombstone, and forgets the oldest one if its project has too many, so that a project that creates and
// deletes clusters in a loop does not fill etcd.
func (m *Manager) remember(ctx context.Context, c cluster.Cluster) {
	surplus := m.surplus(c)
	if surplus == "" {
		return
	}
	if err := m.c.Records.Forget(ctx, surplus); err != nil && !errors.Is(err, croft.NotFound) {
		m.trouble(surplus, "forget", err)
		return
	}
	m.forget(surplus)
}

// surplus adds a tombstone, and returns the one that ended first if its project has too many, else an empty ID.
func (m *Manager) surplus(c cluster.Cluster) croft.ClusterID {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.tombstones[c.Project]
	if !slices.ContainsFunc(all, func(t tombstone) bool { return t.id == c.ID }) {
		all = append(all, tombstone{c.ID, c.Ended})
		m.tombstones[c.Project] = all
	}
	if len(all) <= cluster.MaxRemembered {
		return ""
	}
	first := slices.MinFunc(all, func(a, b tombstone) int { return a.ended.Compare(b.ended) })
	return first.id
}

// unremember drops a forgotten tombstone. Callers hold mu.
func (m *Manager) unremember(id croft.ClusterID) {
	for project, all := range m.tombstones {
		if i := slices.IndexFunc(all, func(t tombstone) bool { return t.id == id }); i >= 0 {
			if all = slices.Delete(all, i, i+1); len(all) == 0 {
				delete(m.tombstones, project)
				return
			}
			m.tombstones[project] = all
			return
		}
	}
}
