package heat

import (
	"context"
	"time"

	novalimits "github.com/gophercloud/gophercloud/v2/openstack/compute/v2/limits"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"

	"croft"
)

// fresh is how long what a site said about its room is believed.
const fresh = 30 * time.Second

// unlimited is more than any site has.
const unlimited = 1 << 40

// limits are what a project may use and uses; negative limits are none.
type limits struct {
	read      time.Time
	compute   bool // known
	cores     amount
	memory    amount // MiB
	instances amount
	network   bool // known
	addresses amount
}

// amount is a limit and what is used of it.
type amount struct{ most, used int64 }

func (a amount) left() int64 {
	if a.most < 0 {
		return unlimited
	}
	return max(0, a.most-a.used)
}

// free returns what is left, as far as it is limited.
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

// limits returns what Nova and Neutron say, those of them that the catalogue has.
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
