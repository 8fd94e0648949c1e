package direct

import (
	"context"

	"croft/access"
	"croft/etcdstore/tenants"
	"croft/tenant"
)

// projects implements cloud.Projects for operators, who see all.
type projects struct{ *tenants.Projects }

// List implements cloud.Projects.
func (p projects) List(ctx context.Context) ([]tenant.Tenant, error) {
	return p.Projects.List(ctx, access.Everything())
}
