package client

import (
	"context"
	"net/http"

	"croft"
	"croft/cluster"
	"croft/control/api"
)

// sites implements cloud.Sites.
type sites struct{ *Client }

func sitePath(name string, below ...string) string {
	return path("", append([]string{"v1", "sites", name}, below...))
}

// List implements cloud.Sites.
func (s sites) List(ctx context.Context) ([]cluster.Site, error) {
	var list api.SiteList
	err := s.ask(ctx, http.MethodGet, "/v1/sites", nil, &list)
	var all []cluster.Site
	for _, one := range list.Sites {
		all = append(all, one.Plain())
	}
	return all, err
}

// Find implements cloud.Sites.
func (s sites) Find(ctx context.Context, name string) (cluster.Site, error) {
	var found api.Site
	if err := cluster.CheckName("a site", name); err != nil {
		return cluster.Site{}, err
	}
	err := s.ask(ctx, http.MethodGet, sitePath(name), nil, &found)
	return found.Plain(), err
}

// Create implements cloud.Sites.
func (s sites) Create(ctx context.Context, wanted cluster.Site) (cluster.Site, error) {
	var made api.Site
	err := s.ask(ctx, http.MethodPost, "/v1/sites", api.NewSiteOf(wanted), &made)
	return made.Plain(), err
}

// Change implements cloud.Sites.
func (s sites) Change(ctx context.Context, name string, change cluster.SiteChange, generation *int64) (cluster.Site,
	error) {
	var now api.Site
	if err := cluster.CheckName("a site", name); err != nil {
		return cluster.Site{}, err
	}
	err := s.askWith(ctx, http.MethodPatch, sitePath(name), match(generation), api.SiteChangeOf(change), &now)
	return now.Plain(), err
}

// Remove implements cloud.Sites.
func (s sites) Remove(ctx context.Context, name string) error {
	if err := cluster.CheckName("a site", name); err != nil {
		return err
	}
	return s.ask(ctx, http.MethodDelete, sitePath(name), nil, nil)
}

// Health implements cloud.Sites.
func (s sites) Health(ctx context.Context, name string, project croft.Project, _ string) (h cluster.SiteHealth,
	err error) {
	if err := cluster.CheckName("a site", name); err != nil {
		return h, err
	}
	return h, s.ask(ctx, http.MethodGet, path(project, []string{"v1", "sites", name, "health"}), nil, &h)
}

// credentials implements cloud.Credentials. The token determines whose they are; a given user only filters the list.
type credentials struct{ *Client }

func credentialPath(project croft.Project, idOrName string, parameters ...string) string {
	return path(project, []string{"v1", "credentials", idOrName}, parameters...)
}

// List implements cloud.Credentials.
func (c credentials) List(ctx context.Context, project croft.Project, user string) (all []cluster.Credential,
	err error) {
	var list api.CredentialList
	err = c.ask(ctx, http.MethodGet, path(project, []string{"v1", "credentials"}, "all", yes(user == "")), nil, &list)
	for _, one := range list.Credentials {
		if user == "" || one.User == user {
			all = append(all, one.Credential)
		}
	}
	return all, err
}

// Find implements cloud.Credentials.
func (c credentials) Find(ctx context.Context, project croft.Project, _, idOrName string) (cluster.Credential, error) {
	var found api.Credential
	err := c.ask(ctx, http.MethodGet, credentialPath(project, idOrName), nil, &found)
	return found.Credential, err
}

// verify returns the parameter for a credential that is not to be tried first.
func verify(unverified bool) string {
	if unverified {
		return "false"
	}
	return ""
}

// Create implements cloud.Credentials.
func (c credentials) Create(ctx context.Context, n cluster.NewCredential) (cluster.Credential, error) {
	var made api.Credential
	at := path(n.Project, []string{"v1", "credentials"}, "verify", verify(n.Unverified))
	err := c.ask(ctx, http.MethodPost, at, api.NewCredentialOf(n), &made)
	return made.Credential, err
}

// Change implements cloud.Credentials.
func (c credentials) Change(ctx context.Context, project croft.Project, _, idOrName string,
	change cluster.CredentialChange, generation *int64) (cluster.Credential, error) {
	var now api.Credential
	at := credentialPath(project, idOrName, "verify", verify(change.Unverified))
	err := c.askWith(ctx, http.MethodPatch, at, match(generation), api.CredentialChangeOf(change), &now)
	return now.Credential, err
}

// Remove implements cloud.Credentials.
func (c credentials) Remove(ctx context.Context, project croft.Project, _, idOrName string) error {
	return c.ask(ctx, http.MethodDelete, credentialPath(project, idOrName), nil, nil)
}

// seals implements cloud.Seals.
type seals struct{ *Client }

// Rewrap implements cloud.Seals.
func (s seals) Rewrap(ctx context.Context) (int, error) {
	var done api.Rewrapped
	err := s.ask(ctx, http.MethodPost, "/v1/seals", nil, &done)
	return done.Secrets, err
}
