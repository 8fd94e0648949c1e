package settings

import (
	"strings"

	"croft"
	"croft/tenant/access"
	"croft/tenant/access/oidc"
)

// OIDC are the settings of an OpenID Connect issuer whose tokens the API accepts.
type OIDC struct {
	Issuer      string   `yaml:"issuer"`
	Audience    string   `yaml:"audience"`
	UserClaim   string   `yaml:"user_claim"`
	GroupsClaim string   `yaml:"groups_claim"`
	Groups      []string `yaml:"groups"`
}

// Config returns the configuration of the issuer. Invalid.
func (s OIDC) Config(p croft.PartitionID) (oidc.Config, error) {
	c := oidc.Config{Partition: p, Issuer: s.Issuer, Audience: s.Audience, UserClaim: s.UserClaim,
		GroupsClaim: s.GroupsClaim, Groups: map[string]oidc.Grant{}}
	for _, text := range s.Groups {
		group, grant, ok := cutLast(text, "=")
		project, role, inProject := strings.Cut(grant, ":")
		if !inProject {
			project, role = "", grant
		}
		g := oidc.Grant{Project: croft.Project(project), Role: access.Role(role)}
		if !ok || group == "" || (g.Role == access.PartitionAdmin) == inProject {
			return c, croft.Errorf(croft.Invalid, "cloud_api.oidc.groups: %q is not GROUP=PROJECT:ROLE, or GROUP=%s", text,
				access.PartitionAdmin)
		}
		c.Groups[group] = g
	}
	return c, nil
}

// Tenants are the settings of a Keystone whose tokens the API accepts.
type Tenants struct {
	Cloud     string   `yaml:"cloud"`
	Projects  []string `yaml:"projects"`
	Roles     []string `yaml:"roles"`
	Operators []string `yaml:"operators"`
}

// Config returns the configuration without the client that queries the Keystone. Invalid.
func (s Tenants) Config(p croft.PartitionID) (access.KeystoneConfig, error) {
	c := access.KeystoneConfig{Partition: p, Projects: map[string]croft.Project{}, Roles: map[string]access.Role{},
		Operators: s.Operators}
	for _, text := range s.Projects {
		id, project, ok := cutLast(text, "=")
		if !ok || id == "" {
			return c, croft.Errorf(croft.Invalid, "cloud_api.keystone.projects: %q is not ID=PROJECT", text)
		}
		c.Projects[id] = croft.Project(project)
	}
	for _, text := range s.Roles {
		theirs, ours, ok := cutLast(text, "=")
		if !ok || theirs == "" {
			return c, croft.Errorf(croft.Invalid, "cloud_api.keystone.roles: %q is not ROLE=ROLE", text)
		}
		c.Roles[theirs] = access.Role(ours)
	}
	return c, nil
}

// GrantedProjects returns the projects in which users of other identity providers get rights. Invalid.
func GrantedProjects(issuer OIDC, keystone Tenants) ([]croft.Project, error) {
	var all []croft.Project
	groups, err := issuer.Config("")
	if err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		all = append(all, g.Project)
	}
	tenants, err := keystone.Config("")
	for _, p := range tenants.Projects {
		all = append(all, p)
	}
	return all, err
}

// cutLast is strings.Cut at the last separator: groups and roles of other systems may contain one.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}
