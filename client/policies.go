package client

import (
	"context"

	"croft"
	"croft/control/api"
	"croft/control/cloud"
	"croft/schedule"
)

// policies implements cloud.Policies.
type policies struct{ *Client }

// List implements cloud.Policies.
func (p policies) List(ctx context.Context) ([]croft.CrushPolicy, error) {
	found, err := p.ListPolicies(ctx)
	return found.Policies, err
}

// Find implements cloud.Policies.
func (p policies) Find(ctx context.Context, name string) (croft.CrushPolicy, error) {
	return p.GetPolicy(ctx, api.PolicyNamed{Name: name})
}

// Check implements cloud.Policies.
func (p policies) Check(ctx context.Context, wanted croft.CrushPolicy) ([]string, error) {
	found, err := p.CheckPolicy(ctx, api.PolicyCheck{Name: wanted.Name, Text: wanted.Text})
	return found.Hints, err
}

// Set implements cloud.Policies.
func (p policies) Set(ctx context.Context, wanted croft.CrushPolicy, base *int64) (croft.CrushPolicy, error) {
	return p.SetPolicy(ctx, api.PolicyText{Name: wanted.Name, Base: base, Text: wanted.Text})
}

// Remove implements cloud.Policies.
func (p policies) Remove(ctx context.Context, name string, base *int64) error {
	return p.RemovePolicy(ctx, api.PolicyRemoval{Name: name, Base: base})
}

// Standing implements cloud.Policies.
func (p policies) Standing(ctx context.Context, project croft.Project, idOrName string) (*schedule.Standing, error) {
	return p.GetStanding(ctx, api.InstanceNamed{ID: idOrName, Project: project})
}

// Map implements cloud.Policies.
func (p policies) Map(ctx context.Context) (cloud.CrushMap, error) { return p.GetCrushMap(ctx) }
