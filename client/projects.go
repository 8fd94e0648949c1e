package client

import (
	"context"
	"maps"

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
		list, err := p.ListProjects(ctx)
		return list.Projects, err
	}
	for _, name := range names {
		one, err := p.GetProject(ctx, api.ProjectNamed{Project: name})
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
func (p projects) Create(ctx context.Context, t tenant.Tenant) (tenant.Tenant, error) {
	made, err := p.CreateProject(ctx, api.NewProject{Name: t.Name, Parent: t.Parent, Note: t.Note})
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
	named := api.ProjectNamed{Project: t.Name}
	now, err := p.GetProject(ctx, named)
	if err != nil {
		return t, err
	}
	now.Generation = t.Generation
	base := func() api.ProjectBase { return api.ProjectBase{ProjectNamed: named, Base: &now.Generation} }
	if !maps.Equal(now.Members, t.Members) {
		now, err = p.SetMembers(ctx, api.Members{ProjectBase: base(), Members: t.Members})
	}
	if err == nil && !maps.Equal(now.Limits, t.Limits) {
		now, err = p.SetQuota(ctx, api.Limits{ProjectBase: base(), Limits: t.Limits})
	}
	if err == nil && now.Note != t.Note {
		now, err = p.ChangeProject(ctx, api.ProjectChange{ProjectBase: base(), Note: t.Note})
	}
	return now, err
}

// Remove implements cloud.Projects.
func (p projects) Remove(ctx context.Context, name croft.Project) error {
	return p.RemoveProject(ctx, api.ProjectNamed{Project: name})
}

// Defaults implements cloud.Projects.
func (p projects) Defaults(ctx context.Context) (tenant.Defaults, error) {
	return p.GetDefaultQuota(ctx)
}

// SetDefaults implements cloud.Projects.
func (p projects) SetDefaults(ctx context.Context, d tenant.Defaults) (tenant.Defaults, error) {
	if d.Limits == nil {
		d.Limits = tenant.Limits{}
	}
	return p.SetDefaultQuota(ctx, d)
}

// Accounts implements cloud.Projects.
func (p projects) Accounts(ctx context.Context, names ...croft.Project) (all []tenant.Account, err error) {
	for _, name := range names {
		a, err := p.GetQuota(ctx, api.ProjectNamed{Project: name})
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// Check implements cloud.Projects.
func (p projects) Check(ctx context.Context) ([]tenant.Discrepancy, error) {
	list, err := p.CheckQuotas(ctx)
	return list.Discrepancies, err
}

// Recount implements cloud.Projects.
func (p projects) Recount(ctx context.Context, name croft.Project) error {
	_, err := p.RecountQuota(ctx, api.ProjectNamed{Project: name})
	return err
}

// usageHistory implements cloud.Usage.
type usageHistory struct{ *Client }

// List implements cloud.Usage, with one request for all projects, or one for each named project.
func (u usageHistory) List(ctx context.Context, f usage.Filter) (usage.Report, error) {
	days := api.Days{Since: f.Since, Until: f.Until, Former: f.Former}
	if f.Projects == nil {
		return u.ListUsage(ctx, days)
	}
	all := usage.Report{Projects: []usage.Account{}}
	for _, name := range f.Projects {
		if err := name.Check(); err != nil {
			return all, err
		}
		one, err := u.GetUsage(ctx, api.ProjectDays{ProjectNamed: api.ProjectNamed{Project: name}, Days: days})
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
