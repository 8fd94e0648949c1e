// Code generated from the table of operations by TestTheClientIsMadeFromTheTable. DO NOT EDIT.

package client

import (
	"context"
	"croft"
	"croft/cloud"
	"croft/control/api"
	"croft/schedule"
)

// ListAggregates: List the aggregates of hosts that requests may name.
func (c *Client) ListAggregates(ctx context.Context) (api.AggregateList, error) {
	return call[api.AggregateList](ctx, c, "GET /v1/aggregates", nil)
}

// CreateAggregate: Put hosts together under a name.
func (c *Client) CreateAggregate(ctx context.Context, in api.NewAggregate) (croft.Aggregate, error) {
	return call[croft.Aggregate](ctx, c, "POST /v1/aggregates", in)
}

// GetAggregate: Get an aggregate.
func (c *Client) GetAggregate(ctx context.Context, in api.AggregateNamed) (croft.Aggregate, error) {
	return call[croft.Aggregate](ctx, c, "GET /v1/aggregates/{name}", in)
}

// ChangeAggregate: Change an aggregate, as a whole or not at all.
func (c *Client) ChangeAggregate(ctx context.Context, in api.AggregateChange) (croft.Aggregate, error) {
	return call[croft.Aggregate](ctx, c, "PATCH /v1/aggregates/{name}", in)
}

// RemoveAggregate: Remove an aggregate; its hosts stay.
func (c *Client) RemoveAggregate(ctx context.Context, in api.AggregateRemoval) error {
	return c.do(ctx, "DELETE /v1/aggregates/{name}", in)
}

// ListDistances: List the distances that operators have stated.
func (c *Client) ListDistances(ctx context.Context) (api.DistanceList, error) {
	return call[api.DistanceList](ctx, c, "GET /v1/distances", nil)
}

// SetDistance: State a distance between two aggregates, locations or hosts, either way.
func (c *Client) SetDistance(ctx context.Context, in api.NewDistance) (croft.Distances, error) {
	return call[croft.Distances](ctx, c, "PUT /v1/distances", in)
}

// RemoveDistance: Remove a stated distance.
func (c *Client) RemoveDistance(ctx context.Context, in api.DistanceRemoval) error {
	return c.do(ctx, "DELETE /v1/distances", in)
}

// GetDistance: Get the distance between two aggregates, locations or hosts.
func (c *Client) GetDistance(ctx context.Context, in api.DistanceBetween) (croft.Between, error) {
	return call[croft.Between](ctx, c, "GET /v1/distances/between", in)
}

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
