package heat

import (
	"context"
	"fmt"
	"strings"

	"croft"
	"croft/cluster"
)

// Room implements cluster.Driver. The room is known if the catalogue has Nova and the implementation has the resources
// of a member. If the cluster certainly does not fit, Room says so even without these.
func (d *Driver) Room(ctx context.Context, at cluster.SiteAccess, b cluster.Build) (cluster.Room, error) {
	s, err := d.sessions.session(ctx, at)
	if err != nil {
		return cluster.Room{}, err
	}
	a, err := s.heat()
	if err != nil {
		return cluster.Room{}, err
	}
	l, err := s.limits(ctx)
	if err != nil {
		return cluster.Room{}, err
	}
	if !l.compute && !l.network { // then check at least that Heat answers
		if _, err := a.page(ctx, clusterTag(b.Cluster), ""); err != nil {
			return cluster.Room{}, s.explain("list stacks", err)
		}
	}
	return l.room(b), nil
}

// need is an amount that a cluster needs of a limited resource.
type need struct {
	what   string
	amount int64
	of     amount
}

// room compares the needs of a cluster with the unused amounts.
func (l *limits) room(b cluster.Build) cluster.Room {
	var needs []need
	if l.compute {
		needs = append(needs, need{"instances", int64(masters(b) + len(b.Indexes)), l.instances},
			need{"VCPU", total(b, croft.VCPU), l.cores}, need{"MEMORY_MB", total(b, croft.MemoryMB), l.memory})
	}
	if l.network && masters(b) > 0 {
		needs = append(needs, need{"floating IPs", int64(strings.Count(text(b.Implementation),
			"OS::Neutron::FloatingIP")),
			l.addresses})
	}
	r := cluster.Room{Known: l.compute && len(b.Implementation.Resources) > 0, Fits: true, Free: 1}
	for _, n := range needs {
		if left := n.of.left(); n.amount > left {
			return cluster.Room{Known: true, Why: fmt.Sprintf("needs %d %s, %d are left", n.amount, n.what, left)}
		}
		if n.of.most > 0 {
			r.Free = min(r.Free, float64(n.of.left()-n.amount)/float64(n.of.most))
		}
	}
	if !r.Known {
		return cluster.Room{}
	}
	return r
}

// total returns the sum of a resource class over all new members of a build.
func total(b cluster.Build, class croft.ResourceClass) int64 {
	r := b.Implementation.Resources
	return int64(masters(b))*r[cluster.Master][class] + int64(len(b.Indexes))*r[cluster.Slave][class]
}

// masters returns the number of masters to add.
func masters(b cluster.Build) int {
	if b.Growth {
		return 0
	}
	return 1
}
