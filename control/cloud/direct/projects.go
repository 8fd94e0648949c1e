package direct

import (
	"context"

	"croft"
	"croft/etcdstore/tenants"
	"croft/etcdstore/usages"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/usage"
)

// projects implements cloud.Projects for operators, who see all projects.
type projects struct{ *tenants.Projects }

// List implements cloud.Projects.
func (p projects) List(ctx context.Context, names ...croft.Project) ([]tenant.Tenant, error) {
	if len(names) > 0 {
		return p.Projects.List(ctx, access.Within(names...))
	}
	return p.Projects.List(ctx, access.Everything())
}

// Create implements cloud.Projects. The default limits of new projects apply where t sets none.
func (p projects) Create(ctx context.Context, t tenant.Tenant) (tenant.Tenant, error) {
	t.Started = true
	return p.Projects.Create(ctx, t)
}

// usageHistory implements cloud.Usage for operators, who see all usage.
type usageHistory struct{ *usages.History }

// List implements cloud.Usage.
func (u usageHistory) List(ctx context.Context, f usage.Filter) (usage.Report, error) {
	if err := f.Check(); err != nil {
		return usage.Report{}, err
	}
	return u.History.List(ctx, access.Everything(), f)
}
