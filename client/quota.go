package client

import (
	"context"

	"croft/control/api"
	"croft/tenant"
)

// QuotaChain returns the accounts of a project and of those above it that the caller may see, and the limits of
// projects that have none of their own.
func (c *Client) QuotaChain(ctx context.Context, p tenant.Tenant) (chain []tenant.Account, defaults tenant.Limits,
	err error) {
	all, err := c.GetDefaultQuota(ctx)
	if err != nil {
		return nil, nil, err
	}
	for len(chain) < tenant.MaxDepth {
		account, err := c.GetQuota(ctx, api.ProjectNamed{Project: p.Name})
		if err != nil && len(chain) == 0 {
			return nil, nil, err
		}
		if err != nil {
			break // this one is not the caller's to see
		}
		chain = append(chain, account)
		if p.Parent == "" {
			break
		}
		if p, err = c.GetProject(ctx, api.ProjectNamed{Project: p.Parent}); err != nil {
			break
		}
	}
	return chain, all.Limits, nil
}
