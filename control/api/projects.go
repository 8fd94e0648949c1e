package api

import (
	"croft"
	"croft/tenant"
	"croft/tenant/access"
)

// ProjectList lists the projects that the caller sees.
type ProjectList struct {
	Projects []tenant.Tenant `json:"projects"`
}

// NewProject is the body of createProject.
type NewProject struct {
	Name   croft.Project `json:"name"`
	Parent croft.Project `json:"parent,omitempty"`
	Note   string        `json:"note,omitempty"`
}

// ProjectChange is the body of changeProject.
type ProjectChange struct {
	Note string `json:"note"`
}

// Members is the body of setMembers: all members, by the names of the users.
type Members struct {
	Members map[string]access.Role `json:"members"`
}

// Limits is the body of setQuota: all limits that are set on the project itself.
type Limits struct {
	Limits tenant.Limits `json:"limits"`
}
