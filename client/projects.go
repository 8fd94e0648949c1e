package client

import (
	"context"
	"maps"
	"net/http"

	"croft"
	"croft/control/api"
	"croft/tenant"
	"croft/tenant/usage"
)

// projects implements cloud.Projects.
type projects struct{ *Client }

// List implements cloud.Projects.
func (p projects) List(ctx context.Context, names ...croft.Project) (all []tenant.Tenant, err error) {
	if len(names) == 0 {
		var list api.ProjectList
		err := p.ask(ctx, http.MethodGet, path("", []string{"v1", "projects"}), nil, &list)
		return list.Projects, err
	}
	for _, name := range names {
		var one tenant.Tenant
		err := p.ask(ctx, http.MethodGet, path("", []string{"v1", "projects", string(name)}), nil, &one)
		switch {
		case err == nil:
			all = append(all, one)
		case croft.KindOf(err) != croft.NotFound:
			return nil, err
		}
	}
	return all, nil
}

// Create implements cloud.Projects. It sets limits and members in further requests.
func (p projects) Create(ctx context.Context, t tenant.Tenant) (made tenant.Tenant, err error) {
	err = p.ask(ctx, http.MethodPost, path("", []string{"v1", "projects"}),
		api.NewProject{Name: t.Name, Parent: t.Parent, Note: t.Note}, &made)
	if err != nil || len(t.Limits)+len(t.Members) == 0 {
		return made, err
	}
	t.Generation, t.Name = made.Generation, made.Name
	if t.Limits == nil {
		t.Limits = made.Limits
	}
	return p.Change(ctx, t)
}

// Change implements cloud.Projects. Members, limits and note have separate operations, because different roles may
// change them; Change sends only the parts that differ.
func (p projects) Change(ctx context.Context, t tenant.Tenant) (tenant.Tenant, error) {
	var now tenant.Tenant
	if err := p.ask(ctx, http.MethodGet, path("", []string{"v1", "projects", string(t.Name)}), nil, &now); err != nil {
		return t, err
	}
	now.Generation = t.Generation
	change := func(method, what string, document any) error {
		segments := []string{"v1", "projects", string(t.Name)}
		if what != "" {
			segments = append(segments, what)
		}
		return p.askWith(ctx, method, path("", segments), generation(now.Generation), document, &now)
	}
	var err error
	if !maps.Equal(now.Members, t.Members) {
		err = change(http.MethodPut, "members", api.Members{Members: t.Members})
	}
	if err == nil && !maps.Equal(now.Limits, t.Limits) {
		err = change(http.MethodPut, "quota", api.Limits{Limits: t.Limits})
	}
	if err == nil && now.Note != t.Note {
		err = change(http.MethodPatch, "", api.ProjectChange{Note: t.Note})
	}
	return now, err
}

// Remove implements cloud.Projects.
func (p projects) Remove(ctx context.Context, name croft.Project) error {
	return p.ask(ctx, http.MethodDelete, path("", []string{"v1", "projects", string(name)}), nil, nil)
}

// Defaults implements cloud.Projects.
func (p projects) Defaults(ctx context.Context) (d tenant.Defaults, err error) {
	return d, p.ask(ctx, http.MethodGet, path("", []string{"v1", "quota"}), nil, &d)
}

// SetDefaults implements cloud.Projects.
func (p projects) SetDefaults(ctx context.Context, d tenant.Defaults) (set tenant.Defaults, err error) {
	if d.Limits == nil {
		d.Limits = tenant.Limits{}
	}
	return set, p.ask(ctx, http.MethodPut, path("", []string{"v1", "quota"}), d, &set)
}

// Accounts implements cloud.Projects.
func (p projects) Accounts(ctx context.Context, names ...croft.Project) ([]tenant.Account, error) {
	var all []tenant.Account
	for _, name := range names {
		var a tenant.Account
		if err := p.ask(ctx, http.MethodGet, path("", []string{"v1", "projects", string(name), "quota"}), nil,
			&a); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// Check implements cloud.Projects.
func (p projects) Check(ctx context.Context) ([]tenant.Discrepancy, error) {
	var list api.DiscrepancyList
	err := p.ask(ctx, http.MethodGet, "/v1/quota/check", nil, &list)
	return list.Discrepancies, err
}

// Recount implements cloud.Projects.
func (p projects) Recount(ctx context.Context, name croft.Project) error {
	return p.ask(ctx, http.MethodPost, path("", []string{"v1", "projects", string(name), "quota", "recount"}), nil, nil)
}

// usageHistory implements cloud.Usage.
type usageHistory struct{ *Client }

// List implements cloud.Usage, with one request for all projects, or one for each named project.
func (u usageHistory) List(ctx context.Context, f usage.Filter) (usage.Report, error) {
	former := ""
	if f.Former {
		former = "true"
	}
	read := func(segments ...string) (r usage.Report, err error) {
		days := path("", segments, "since", f.Since, "until", f.Until, "former", former)
		return r, u.ask(ctx, http.MethodGet, days, nil, &r)
	}
	if f.Projects == nil {
		return read("v1", "usage")
	}
	all := usage.Report{Projects: []usage.Account{}}
	for _, name := range f.Projects {
		if err := name.Check(); err != nil {
			return all, err
		}
		one, err := read("v1", "projects", string(name), "usage")
		if err != nil {
			return all, err
		}
		if all.Until.IsZero() || one.Until.Before(all.Until) {
			all.Until = one.Until
		}
		all.Projects = append(all.Projects, one.Projects...)
	}
	return all, nil
}
