package api

import (
	"croft"
	"croft/cluster"
)

// SiteList has sites.
type SiteList struct {
	Sites []cluster.Site `json:"sites"` // by name
	More
}

// SiteNamed names a site.
type SiteNamed struct {
	Name string `path:"name" json:"-"` // name of the site
}

// SiteInProject is the input of getSiteHealth.
type SiteInProject struct {
	SiteNamed
	InProject
}

// NewSite is the input of createSite.
type NewSite struct {
	// Lower-case letters, digits and dashes; starts with a letter.
	Name string `json:"name" maxLength:"63" minLength:"1"`
	// The type of the site. The site local always exists.
	Type cluster.SiteType `json:"type" enum:"openstack,croft,sim"`
	// Of Keystone, such as https://cloud.example:5000/v3; of a croft, of its API.
	AuthURL string `json:"auth_url,omitempty" maxLength:"2048"`
	// Of the catalogue of Keystone.
	Region string `json:"region,omitempty" maxLength:"255"`
	// Of the catalogue of Keystone; public by default.
	Interface string `json:"interface,omitempty" maxLength:"32"`
	// Authorities to trust in addition to the system's, in PEM. For operators.
	CACert  string `json:"ca_cert,omitempty" maxLength:"65536"`
	Enabled *bool  `json:"enabled,omitempty"` // nil: yes
	// Of equally suitable sites, the one with the highest priority is used.
	Priority int `json:"priority,omitempty" maximum:"1000" minimum:"-1000"`
	// Parameters for templates that declare them, such as network_name and flavor_name. For operators.
	Defaults     map[string]any  `json:"defaults,omitempty" maxProperties:"64"`
	BuildTimeout cluster.Seconds `json:"build_timeout,omitempty" maximum:"604800" minimum:"1"` // seconds
	// 0: no limit.
	MaxClusters int `json:"max_clusters,omitempty" maximum:"1000000" minimum:"0"`
}

// Plain returns the site to create.
func (s NewSite) Plain() cluster.Site {
	return cluster.Site{Name: s.Name, Type: s.Type, AuthURL: s.AuthURL, Region: s.Region, Interface: s.Interface,
		CACert: s.CACert, Enabled: s.Enabled == nil || *s.Enabled, Priority: s.Priority, Defaults: s.Defaults,
		BuildTimeout: s.BuildTimeout, MaxClusters: s.MaxClusters}
}

// SiteChange is the input of changeSite.
type SiteChange struct {
	SiteNamed
	cluster.SiteChange

	Base Match `header:"If-Match" json:"-"` // generation that the change builds on; left out: any
}

// CredentialNamed names a credential.
type CredentialNamed struct {
	InProject

	ID string `path:"id" json:"-"` // UUID of the credential, or its name
}

// CredentialFilter is the input of listCredentials.
type CredentialFilter struct {
	InProject

	All bool `query:"all" json:"-"` // credentials of all users; for admins of the project, and operators
}

// CredentialCheck says whether the site has to accept a credential before it is stored.
type CredentialCheck struct {
	Verify *bool `query:"verify" json:"-" default:"true"` // log in first, and store nothing that the site refuses
}

// Skipped reports whether the site need not accept the credential.
func (c CredentialCheck) Skipped() bool { return c.Verify != nil && !*c.Verify }

// NewCredential is the input of createCredential. Only clients encode its secret.
type NewCredential struct {
	InProject
	CredentialCheck

	// Lower-case letters, digits and dashes; starts with a letter. Unique for the user in the project.
	Name string `json:"name" maxLength:"63" minLength:"1"`
	// The name of the site.
	Site string `json:"site" maxLength:"63" minLength:"1"`
	// password by default; token is one of another croft.
	Kind     cluster.CredentialKind `json:"kind,omitempty" enum:"password,token"`
	Username string                 `json:"username,omitempty" maxLength:"255"` // at the site
	// Default by default.
	UserDomain string `json:"user_domain,omitempty" maxLength:"255"`
	// At the site; or project_id.
	ProjectName   string `json:"project_name,omitempty" maxLength:"255"`
	ProjectID     string `json:"project_id,omitempty" maxLength:"255"`     // UUID of the project at the site
	ProjectDomain string `json:"project_domain,omitempty" maxLength:"255"` // domain of the project at the site
	// The password or token. It goes in, and never comes out.
	Secret Given `json:"secret" maxLength:"4096" minLength:"1" writeOnly:"true"`
}

// Plain returns the credential of a user in a project.
func (n NewCredential) Plain(project croft.Project, user string) cluster.NewCredential {
	return cluster.NewCredential{Credential: cluster.Credential{Name: n.Name, Project: project, User: user,
		Site: n.Site, Kind: n.Kind, Username: n.Username, UserDomain: n.UserDomain, ProjectName: n.ProjectName,
		ProjectID: n.ProjectID, ProjectDomain: n.ProjectDomain}, Plain: n.Secret.Secret, Unverified: n.Skipped()}
}

// CredentialChange is the input of changeCredential.
type CredentialChange struct {
	CredentialNamed
	CredentialCheck
	cluster.CredentialChange

	Base Match `header:"If-Match" json:"-"` // generation that the change builds on; left out: any

	// The password or token. It goes in, and never comes out.
	Secret *Given `json:"secret,omitempty" maxLength:"4096" minLength:"1" writeOnly:"true"`
}

// CredentialList has credentials, without their secrets.
type CredentialList struct {
	Credentials []cluster.Credential `json:"credentials"` // by name
	More
}

// Rewrapped is the number of secrets that were sealed again with the first key.
type Rewrapped struct {
	Secrets int `json:"secrets"` // how many were sealed again
}
