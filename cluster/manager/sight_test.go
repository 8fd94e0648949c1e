package manager

import (
	"context"
	"testing"
	"time"

	"croft/cluster"
)

// TestASightFromBeforeAnActDoesNotCount: a look that started before a resize ended may show the state before the
// resize.
func TestASightFromBeforeAnActDoesNotCount(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	now := time.Now()
	for _, c := range []struct {
		name         string
		begun, acted time.Time
		counts       bool
	}{
		{"begun after the act", now, now.Add(-time.Second), true},
		{"begun before the act was over", now.Add(-time.Second), now, false},
		{"long ago", now.Add(-2 * pause), now.Add(-3 * pause), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &Manager{sites: &sites{}}
			m.looks = &looks{sites: m.sites, queues: map[place]*queue{}, run: func() context.Context { return ended }}
			defer m.looks.wait()
			seen := &cluster.Seen{Phase: cluster.Standing}
			e := &entry{acted: c.acted, fresh: &sight{seen: seen, begun: c.begun}}
			got, _ := m.look(ended, e, cluster.Cluster{ID: "c"})
			if counts := got == seen; counts != c.counts {
				t.Errorf("it counts: %t", counts)
			}
		})
	}
}
