package api

import (
	"croft"
	"croft/cluster"
)

// Site is a site. Lengths of time are in seconds.
type Site struct {
	cluster.Site
	BuildTimeout int64 `json:"build_timeout,omitempty"`
}

// SiteOf returns a site as the API shows it to operators.
func SiteOf(s cluster.Site) Site { return Site{s, seconds(s.BuildTimeout)} }

// Plain returns the site for a client.
func (s Site) Plain() cluster.Site {
	s.Site.BuildTimeout = lasting(s.BuildTimeout)
	return s.Site
}

// SiteList has sites.
type SiteList struct {
	Sites []Site `json:"sites"`
}

// NewSite describes a site to create.
type NewSite struct {
	Name         string           `json:"name"`
	Type         cluster.SiteType `json:"type"`
	AuthURL      string           `json:"auth_url,omitempty"`
	Region       string           `json:"region,omitempty"`
	Interface    string           `json:"interface,omitempty"`
	CACert       string           `json:"ca_cert,omitempty"`
	Enabled      *bool            `json:"enabled,omitempty"` // nil: yes
	Priority     int              `json:"priority,omitempty"`
	Defaults     map[string]any   `json:"defaults,omitempty"`
	BuildTimeout int64            `json:"build_timeout,omitempty"` // seconds
	MaxClusters  int              `json:"max_clusters,omitempty"`
}

// NewSiteOf returns the body for a site.
func NewSiteOf(s cluster.Site) NewSite {
	return NewSite{Name: s.Name, Type: s.Type, AuthURL: s.AuthURL, Region: s.Region, Interface: s.Interface,
		CACert: s.CACert, Enabled: &s.Enabled, Priority: s.Priority, Defaults: s.Defaults,
		BuildTimeout: seconds(s.BuildTimeout), MaxClusters: s.MaxClusters}
}

// Plain returns the site to create.
func (s NewSite) Plain() cluster.Site {
	return cluster.Site{Name: s.Name, Type: s.Type, AuthURL: s.AuthURL, Region: s.Region, Interface: s.Interface,
		CACert: s.CACert, Enabled: s.Enabled == nil || *s.Enabled, Priority: s.Priority, Defaults: s.Defaults,
		BuildTimeout: lasting(s.BuildTimeout), MaxClusters: s.MaxClusters}
}

// SiteChange changes a site. Omitted fields stay unchanged.
type SiteChange struct {
	AuthURL      *string        `json:"auth_url,omitempty"`
	Region       *string        `json:"region,omitempty"`
	Interface    *string        `json:"interface,omitempty"`
	CACert       *string        `json:"ca_cert,omitempty"`
	Enabled      *bool          `json:"enabled,omitempty"`
	Priority     *int           `json:"priority,omitempty"`
	Defaults     map[string]any `json:"defaults,omitzero"`       // replaces all of them
	BuildTimeout *int64         `json:"build_timeout,omitempty"` // seconds
	MaxClusters  *int           `json:"max_clusters,omitempty"`
}

// SiteChangeOf returns the body for a change.
func SiteChangeOf(c cluster.SiteChange) SiteChange {
	return SiteChange{AuthURL: c.AuthURL, Region: c.Region, Interface: c.Interface, CACert: c.CACert,
		Enabled: c.Enabled, Priority: c.Priority, Defaults: c.Defaults,
		BuildTimeout: maybe(c.BuildTimeout, seconds), MaxClusters: c.MaxClusters}
}

// Plain returns the change.
func (c SiteChange) Plain() cluster.SiteChange {
	return cluster.SiteChange{AuthURL: c.AuthURL, Region: c.Region, Interface: c.Interface, CACert: c.CACert,
		Enabled: c.Enabled, Priority: c.Priority, Defaults: c.Defaults,
		BuildTimeout: maybe(c.BuildTimeout, lasting), MaxClusters: c.MaxClusters}
}

// NewCredential describes a credential to store. Only clients encode its secret.
type NewCredential struct {
	Name          string                 `json:"name"`
	Site          string                 `json:"site"`
	Kind          cluster.CredentialKind `json:"kind,omitempty"`
	Username      string                 `json:"username,omitempty"`
	UserDomain    string                 `json:"user_domain,omitempty"`
	ProjectName   string                 `json:"project_name,omitempty"`
	ProjectID     string                 `json:"project_id,omitempty"`
	ProjectDomain string                 `json:"project_domain,omitempty"`
	Secret        Given                  `json:"secret"`
}

// NewCredentialOf returns the body for a credential.
func NewCredentialOf(n cluster.NewCredential) NewCredential {
	return NewCredential{Name: n.Name, Site: n.Site, Kind: n.Kind, Username: n.Username, UserDomain: n.UserDomain,
		ProjectName: n.ProjectName, ProjectID: n.ProjectID, ProjectDomain: n.ProjectDomain, Secret: Given{n.Plain}}
}

// Plain returns the credential of a user in a project.
func (n NewCredential) Plain(project croft.Project, user string) cluster.NewCredential {
	return cluster.NewCredential{Credential: cluster.Credential{Name: n.Name, Project: project, User: user,
		Site: n.Site, Kind: n.Kind, Username: n.Username, UserDomain: n.UserDomain, ProjectName: n.ProjectName,
		ProjectID: n.ProjectID, ProjectDomain: n.ProjectDomain}, Plain: n.Secret.Secret}
}

// CredentialChange changes a credential. Omitted fields stay unchanged.
type CredentialChange struct {
	Name          *string `json:"name,omitempty"`
	Username      *string `json:"username,omitempty"`
	UserDomain    *string `json:"user_domain,omitempty"`
	ProjectName   *string `json:"project_name,omitempty"`
	ProjectID     *string `json:"project_id,omitempty"`
	ProjectDomain *string `json:"project_domain,omitempty"`
	Secret        *Given  `json:"secret,omitempty"`
}

// CredentialChangeOf returns the body for a change.
func CredentialChangeOf(c cluster.CredentialChange) CredentialChange {
	return CredentialChange{Name: c.Name, Username: c.Username, UserDomain: c.UserDomain, ProjectName: c.ProjectName,
		ProjectID: c.ProjectID, ProjectDomain: c.ProjectDomain,
		Secret: maybe(c.Plain, func(s cluster.Secret) Given { return Given{s} })}
}

// Plain returns the change.
func (c CredentialChange) Plain() cluster.CredentialChange {
	return cluster.CredentialChange{Name: c.Name, Username: c.Username, UserDomain: c.UserDomain,
		ProjectName: c.ProjectName, ProjectID: c.ProjectID, ProjectDomain: c.ProjectDomain,
		Plain: maybe(c.Secret, func(s Given) cluster.Secret { return s.Secret })}
}

// Credential is a credential without its secret.
type Credential struct {
	cluster.Credential
}

// CredentialOf returns a credential as the API shows it.
func CredentialOf(c cluster.Credential) Credential {
	c.Secret = nil
	return Credential{c}
}

// CredentialList has credentials.
type CredentialList struct {
	Credentials []Credential `json:"credentials"`
}

// Rewrapped is the number of secrets that were sealed again with the first key.
type Rewrapped struct {
	Secrets int `json:"secrets"`
}
