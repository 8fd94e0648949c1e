package client

import (
	"context"
	"net/http"

	"croft"
	"croft/cloud"
	"croft/control/api"
	"croft/schedule"
)

// policies implements cloud.Policies.
type policies struct{ *Client }

// List implements cloud.Policies.
func (p policies) List(ctx context.Context) ([]croft.CrushPolicy, error) {
	var list api.PolicyList
	err := p.ask(ctx, http.MethodGet, "/v1/policies", nil, &list)
	return list.Policies, err
}

// Find implements cloud.Policies.
func (p policies) Find(ctx context.Context, name string) (found croft.CrushPolicy, err error) {
	if err := croft.CheckPolicyName(name); err != nil {
		return found, err
	}
	return found, p.ask(ctx, http.MethodGet, path("", []string{"v1", "policies", name}), nil, &found)
}

// Check implements cloud.Policies.
func (p policies) Check(ctx context.Context, wanted croft.CrushPolicy) ([]string, error) {
	var found api.PolicyHints
	err := p.ask(ctx, http.MethodPost, "/v1/policies", api.PolicyCheck{Name: wanted.Name, Text: wanted.Text}, &found)
	return found.Hints, err
}

// Set implements cloud.Policies.
func (p policies) Set(ctx context.Context, wanted croft.CrushPolicy, generation *int64) (set croft.CrushPolicy,
	err error) {
	if err := wanted.Check(); err != nil {
		return wanted, err
	}
	at := path("", []string{"v1", "policies", wanted.Name})
	return set, p.askWith(ctx, http.MethodPut, at, match(generation), api.PolicyText{Text: wanted.Text}, &set)
}

// Remove implements cloud.Policies.
func (p policies) Remove(ctx context.Context, name string, generation *int64) error {
	if err := croft.CheckPolicyName(name); err != nil {
		return err
	}
	return p.askWith(ctx, http.MethodDelete, path("", []string{"v1", "policies", name}), match(generation), nil, nil)
}

// Standing implements cloud.Policies.
func (p policies) Standing(ctx context.Context, project croft.Project, idOrName string) (*schedule.Standing, error) {
	found := &schedule.Standing{}
	at := path(project, []string{"v1", "instances", idOrName, "standing"})
	return found, p.ask(ctx, http.MethodGet, at, nil, found)
}

// Map implements cloud.Policies.
func (p policies) Map(ctx context.Context) (m cloud.CrushMap, err error) {
	return m, p.ask(ctx, http.MethodGet, "/v1/crush", nil, &m)
}
