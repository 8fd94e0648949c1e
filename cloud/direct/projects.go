package direct

import (
	"context"

	"croft/access"
	"croft/etcdstore/tenants"
	"croft/etcdstore/usages"
	"croft/tenant"
	"croft/usage"
)

// projects implements cloud.Projects for operators, who see all.
type projects struct{ *tenants.Projects }

// List implements cloud.Projects.
func (p projects) List(ctx context.Context) ([]tenant.Tenant, error) {
	return p.Projects.List(ctx, access.Everything())
}

// usageHistory implements cloud.Usage for operators, who see all.
type usageHistory struct{ *usages.History }

// List implements cloud.Usage.
func (u usageHistory) List(ctx context.Context, f usage.Filter) (usage.Report, error) {
	if err := f.Check(); err != nil {
		return usage.Report{}, err
	}
	return u.History.List(ctx, access.Everything(), f)
}
