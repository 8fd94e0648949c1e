package direct

import (
	"context"
	"errors"

	"croft"
	"croft/operator"
	"croft/trust"
)

// Hosts implements cloud.Hosts.
func (c *Cloud) Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return c.store.Hosts(ctx, ids...)
}

// ListHosts implements cloud.Hosts.
func (c *Cloud) ListHosts(ctx context.Context) ([]operator.Host, error) {
	all, err := c.operator.List(ctx)
	if all == nil && err != nil {
		return nil, err
	}
	return all, errors.Join(err, c.addOverdue(ctx, all))
}

// FindHost implements cloud.Hosts.
func (c *Cloud) FindHost(ctx context.Context, idOrName string) (operator.Host, error) {
	return c.operator.Find(ctx, idOrName)
}

// Problems implements cloud.Hosts.
func (c *Cloud) Problems(ctx context.Context) []string { return c.store.Problems(ctx) }

// Drain implements cloud.Maintenance.
func (c *Cloud) Drain(ctx context.Context, idOrName string) (operator.Host, error) {
	return c.operator.Drain(ctx, idOrName)
}

// Enable implements cloud.Maintenance.
func (c *Cloud) Enable(ctx context.Context, idOrName string) (operator.Host, error) {
	return c.operator.Enable(ctx, idOrName)
}

// Accept implements cloud.Maintenance.
func (c *Cloud) Accept(ctx context.Context, idOrName string) (operator.Host, error) {
	return c.operator.Accept(ctx, idOrName)
}

// Forget implements cloud.Maintenance.
func (c *Cloud) Forget(ctx context.Context, idOrName string, force bool) (operator.Host, error) {
	return c.operator.Forget(ctx, idOrName, force)
}

// MoveAll implements cloud.Maintenance.
func (c *Cloud) MoveAll(ctx context.Context, h operator.Host) ([]operator.Moved, error) {
	return c.operator.MoveAll(ctx, h)
}

// RemoveMember implements cloud.Maintenance.
func (c *Cloud) RemoveMember(ctx context.Context, h operator.Host) error {
	return c.operator.RemoveMember(ctx, h)
}

// addOverdue adds problems to hosts that do not renew their certificates.
func (c *Cloud) addOverdue(ctx context.Context, all []operator.Host) error {
	joined, err := c.store.AllJoined(ctx)
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
