// Code generated from the table of operations by TestTheClientIsMadeFromTheTable. DO NOT EDIT.

package client

import (
	"context"
	"croft"
	"croft/cloud"
	"croft/control/api"
	"croft/schedule"
)

// ListPolicies: List the policies by which CRUSH chooses hosts.
func (c *Client) ListPolicies(ctx context.Context) (api.PolicyList, error) {
	return call[api.PolicyList](ctx, c, "GET /v1/policies", nil)
}

// CheckPolicy: Check whether a policy can choose hosts, and store nothing.
func (c *Client) CheckPolicy(ctx context.Context, in api.PolicyCheck) (api.PolicyHints, error) {
	return call[api.PolicyHints](ctx, c, "POST /v1/policies", in)
}

// GetPolicy: Get a policy.
func (c *Client) GetPolicy(ctx context.Context, in api.PolicyNamed) (croft.CrushPolicy, error) {
	return call[croft.CrushPolicy](ctx, c, "GET /v1/policies/{name}", in)
}

// SetPolicy: Store a policy, in place of the one of its name.
func (c *Client) SetPolicy(ctx context.Context, in api.PolicyText) (croft.CrushPolicy, error) {
	return call[croft.CrushPolicy](ctx, c, "PUT /v1/policies/{name}", in)
}

// RemovePolicy: Remove a policy; instances stay where they are.
func (c *Client) RemovePolicy(ctx context.Context, in api.PolicyRemoval) error {
	return c.do(ctx, "DELETE /v1/policies/{name}", in)
}

// GetStanding: Say whether an instance stands where its policy puts it, and why.
func (c *Client) GetStanding(ctx context.Context, in api.InstanceNamed) (*schedule.Standing, error) {
	return call[*schedule.Standing](ctx, c, "GET /v1/instances/{id}/standing", in)
}

// GetCrushMap: Get the CRUSH map of the hosts, with the policies as rules.
func (c *Client) GetCrushMap(ctx context.Context) (cloud.CrushMap, error) {
	return call[cloud.CrushMap](ctx, c, "GET /v1/crush", nil)
}
