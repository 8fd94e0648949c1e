package client

import (
	"context"

	"croft"
	"croft/cluster"
	"croft/control/api"
)

// sites implements cloud.Sites.
type sites struct{ *Client }

// siteNamed returns the input that names a site. Invalid.
func siteNamed(name string) (api.SiteNamed, error) {
	return api.SiteNamed{Name: name}, cluster.CheckName("a site", name)
}

// List implements cloud.Sites.
func (s sites) List(ctx context.Context) (all []cluster.Site, err error) {
	list, err := s.ListSites(ctx)
	for _, one := range list.Sites {
		all = append(all, one.Plain())
	}
	return all, err
}

// Find implements cloud.Sites.
func (s sites) Find(ctx context.Context, name string) (cluster.Site, error) {
	in, err := siteNamed(name)
	if err != nil {
		return cluster.Site{}, err
	}
	found, err := s.GetSite(ctx, in)
	return found.Plain(), err
}

// Create implements cloud.Sites.
func (s sites) Create(ctx context.Context, wanted cluster.Site) (cluster.Site, error) {
	made, err := s.CreateSite(ctx, api.NewSiteOf(wanted))
	return made.Plain(), err
}

// Change implements cloud.Sites.
func (s sites) Change(ctx context.Context, name string, change cluster.SiteChange, generation *int64) (
	now cluster.Site, err error) {
	in, err := siteNamed(name)
	if err != nil {
		return now, err
	}
	changed, err := s.ChangeSite(ctx, api.SiteChange{SiteNamed: in, SiteChange: change, Base: generation})
	return changed.Plain(), err
}

// Remove implements cloud.Sites.
func (s sites) Remove(ctx context.Context, name string) error {
	in, err := siteNamed(name)
	if err != nil {
		return err
	}
	return s.RemoveSite(ctx, in)
}

// Health implements cloud.Sites.
func (s sites) Health(ctx context.Context, name string, project croft.Project, _ string) (h cluster.SiteHealth,
	err error) {
	in, err := siteNamed(name)
	if err != nil {
		return h, err
	}
	return s.GetSiteHealth(ctx, api.SiteInProject{SiteNamed: in, InProject: api.InProject{Project: project}})
}

// credentials implements cloud.Credentials. The token determines whose they are; a given user only filters the list.
type credentials struct{ *Client }

func credentialNamed(project croft.Project, idOrName string) api.CredentialNamed {
	return api.CredentialNamed{InProject: api.InProject{Project: project}, ID: idOrName}
}

// List implements cloud.Credentials.
func (c credentials) List(ctx context.Context, project croft.Project, user string) (all []cluster.Credential,
	err error) {
	list, err := c.ListCredentials(
		ctx,
		api.CredentialFilter{InProject: api.InProject{Project: project}, All: user == ""},
	)
	for _, one := range list.Credentials {
		if user == "" || one.User == user {
			all = append(all, one.Credential)
		}
	}
	return all, err
}

// Find implements cloud.Credentials.
func (c credentials) Find(ctx context.Context, project croft.Project, _, idOrName string) (cluster.Credential, error) {
	found, err := c.GetCredential(ctx, credentialNamed(project, idOrName))
	return found.Credential, err
}

// Create implements cloud.Credentials.
func (c credentials) Create(ctx context.Context, n cluster.NewCredential) (cluster.Credential, error) {
	made, err := c.CreateCredential(ctx, api.NewCredentialOf(n))
	return made.Credential, err
}

// Change implements cloud.Credentials.
func (c credentials) Change(ctx context.Context, project croft.Project, _, idOrName string,
	change cluster.CredentialChange, generation *int64) (cluster.Credential, error) {
	verify := !change.Unverified
	in := api.CredentialChange{CredentialNamed: credentialNamed(project, idOrName),
		CredentialCheck: api.CredentialCheck{Verify: &verify}, CredentialChange: change, Base: generation}
	if change.Plain != nil {
		in.Secret = &api.Given{Secret: *change.Plain}
	}
	now, err := c.ChangeCredential(ctx, in)
	return now.Credential, err
}

// Remove implements cloud.Credentials.
func (c credentials) Remove(ctx context.Context, project croft.Project, _, idOrName string) error {
	return c.RemoveCredential(ctx, credentialNamed(project, idOrName))
}

// seals implements cloud.Seals.
type seals struct{ *Client }

// Rewrap implements cloud.Seals.
func (s seals) Rewrap(ctx context.Context) (int, error) {
	done, err := s.RewrapSecrets(ctx)
	return done.Secrets, err
}
