package direct

import (
	"context"
	"errors"

	"croft"
	"croft/etcdstore"
	"croft/operator"
	"croft/trust"
)

// hosts implements cloud.Hosts.
type hosts struct {
	store    *etcdstore.Store
	operator *operator.Operator
}

// Records implements cloud.Hosts.
func (h hosts) Records(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return h.store.Hosts(ctx, ids...)
}

// List implements cloud.Hosts.
func (h hosts) List(ctx context.Context) ([]operator.Host, error) {
	all, err := h.operator.List(ctx)
	if all == nil && err != nil {
		return nil, err
	}
	return all, errors.Join(err, h.addOverdue(ctx, all))
}

// Find implements cloud.Hosts.
func (h hosts) Find(ctx context.Context, idOrName string) (operator.Host, error) {
	return h.operator.Find(ctx, idOrName)
}

// Problems implements cloud.Hosts.
func (h hosts) Problems(ctx context.Context) []string { return h.store.Problems(ctx) }

// addOverdue adds problems to hosts that do not renew their certificates.
func (h hosts) addOverdue(ctx context.Context, all []operator.Host) error {
	joined, err := h.store.AllJoined(ctx)
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
