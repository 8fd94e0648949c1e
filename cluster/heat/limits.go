package heat

import (
	"context"
	"time"

	novalimits "github.com/gophercloud/gophercloud/v2/openstack/compute/v2/limits"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"

	"croft"
)

// fresh is how long the limits of a project are cached.
const fresh = 30 * time.Second

// unlimited is larger than any real amount.
const unlimited = 1 << 40

// limits are the limits of a project and their use. A negative limit means unlimited.
type limits struct {
	read      time.Time
	compute   bool // Nova's limits are known
	cores     amount
	memory    amount // MiB
	instances amount
	network   bool // Neutron's limits are known
	addresses amount
}

// amount is a limit and the used part of it.
type amount struct{ most, used int64 }

func (a amount) left() int64 {
	if a.most < 0 {
		return unlimited
	}
	return max(0, a.most-a.used)
}

// free returns the unused amounts of the limited resources.
func (l *limits) free() croft.Resources {
	free := croft.Resources{}
	if l.compute && l.cores.most >= 0 {
		free[croft.VCPU] = l.cores.left()
	}
	if l.compute && l.memory.most >= 0 {
		free[croft.MemoryMB] = l.memory.left()
	}
	return free
}

// limits returns the limits that Nova and Neutron report, as far as the catalogue has them.
func (s *session) limits(ctx context.Context) (*limits, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room != nil && time.Since(s.room.read) < fresh {
		return s.room, nil
	}
	l := &limits{read: time.Now()}
	ctx, cancel := s.brief(ctx)
	defer cancel()
	if client := s.service("compute"); client != nil {
		all, err := whole(novalimits.Get(ctx, client, nil).Extract())
		if err != nil {
			return nil, s.explain("read the limits of Nova", err)
		}
		a := all.Absolute
		l.compute, l.cores = true, amount{int64(a.MaxTotalCores), int64(a.TotalCoresUsed)}
		l.memory = amount{int64(a.MaxTotalRAMSize), int64(a.TotalRAMUsed)}
		l.instances = amount{int64(a.MaxTotalInstances), int64(a.TotalInstancesUsed)}
	}
	if client := s.service("network"); client != nil {
		client.ResourceBase = client.Endpoint + "v2.0/"
		all, err := whole(quotas.GetDetail(ctx, client, s.project).Extract())
		if err != nil {
			return nil, s.explain("read the quota of Neutron", err)
		}
		f := all.FloatingIP
		l.network, l.addresses = true, amount{int64(f.Limit), int64(f.Used + f.Reserved)}
	}
	s.room = l
	return l, nil
}
