package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"croft"
)

// Storage is a shared storage, as operators see it.
type Storage struct {
	ID    croft.StorageID `json:"id" format:"uuid"` // its UUID
	Name  string          `json:"name"`             // the name under which requests ask for it
	Hosts []string        `json:"hosts"`            // names of the hosts that mount it now
	// GiB that can be claimed: without files of others, and without blocks that only root may use.
	TotalGB   int64 `json:"total_gb"`
	ClaimedGB int64 `json:"claimed_gb"` // GiB that disks claim
	FreeGB    int64 `json:"free_gb"`    // GiB that can still be claimed
}

// Storages returns the shared storage that hosts mount now, by name.
func (f *Fleet) Storages(ctx context.Context) ([]Storage, error) {
	hosts, err := f.Hosts.Hosts(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the shared storage: %w", err)
	}
	all := map[croft.StorageID]Storage{}
	for _, h := range hosts {
		if !h.Alive {
			continue
		}
		for _, m := range h.Storages {
			s := all[m.ID]
			s.ID, s.Name, s.Hosts = m.ID, m.Name, append(s.Hosts, h.Name)
			all[m.ID] = s
		}
	}
	list := []Storage{}
	for _, s := range all {
		p, err := f.Claims.Provider(ctx, s.ID.Provider())
		switch {
		case err == nil:
			s.TotalGB, s.ClaimedGB = p.Inventories[croft.DiskGB].Capacity(), p.Used[croft.DiskGB]
			s.FreeGB = max(0, s.TotalGB-s.ClaimedGB)
		case !errors.Is(err, croft.NotFound): // else no agent has made it yet
			return nil, fmt.Errorf("list the shared storage: %w", err)
		}
		slices.Sort(s.Hosts)
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Storage) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}
