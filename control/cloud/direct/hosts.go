package direct

import (
	"context"
	"errors"

	"croft"
	"croft/etcdstore"
	"croft/hosts"
	"croft/trust"
)

// hostList implements cloud.Hosts.
type hostList struct {
	store *etcdstore.Store
	fleet *hosts.Fleet
}

// Records implements cloud.Hosts.
func (h hostList) Records(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return h.store.Registry.Hosts(ctx, ids...)
}

// List implements cloud.Hosts.
func (h hostList) List(ctx context.Context) ([]hosts.Host, error) {
	all, err := h.fleet.List(ctx)
	if all == nil && err != nil {
		return nil, err
	}
	return all, errors.Join(err, h.addOverdue(ctx, all))
}

// Find implements cloud.Hosts.
func (h hostList) Find(ctx context.Context, idOrName string) (hosts.Host, error) {
	return h.fleet.Find(ctx, idOrName)
}

// Problems implements cloud.Hosts.
func (h hostList) Problems(ctx context.Context) []string { return h.store.Cluster.Problems(ctx) }

// addOverdue adds problems to hosts whose certificates are overdue for renewal.
func (h hostList) addOverdue(ctx context.Context, all []hosts.Host) error {
	joined, err := h.store.Trust.AllJoined(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if problem := trust.OverdueOf(joined[all[i].ID]); problem != "" {
			all[i].Problems = append(all[i].Problems, problem)
		}
	}
	return nil
}
