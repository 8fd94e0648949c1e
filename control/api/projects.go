package api

import (
	"croft"
	"croft/tenant"
	"croft/tenant/access"
)

// ProjectList lists the projects that the caller sees.
type ProjectList struct {
	Projects []tenant.Tenant `json:"projects"` // by name
	More
}

// ProjectNamed names a project in the path.
type ProjectNamed struct {
	Project croft.Project `path:"project" json:"-"` // name of the project
}

// ProjectBase names a project in the path, and the generation that a change of it builds on.
type ProjectBase struct {
	ProjectNamed

	Base Match `header:"If-Match" json:"-" required:"true"` // generation of the project, as the header ETag had it
}

// NewProject is the input of createProject.
type NewProject struct {
	Name croft.Project `json:"name" maxLength:"63" minLength:"1"` // unique below the parent
	// The project above; it cannot be changed later.
	Parent croft.Project `json:"parent,omitempty" maxLength:"63"`
	Note   string        `json:"note,omitempty" maxLength:"256" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"` // for people
}

// ProjectChange is the input of changeProject.
type ProjectChange struct {
	ProjectBase

	Note string `json:"note" maxLength:"256" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"` // replaces the note
}

// Members is the input of setMembers: all members, by the names of the users.
type Members struct {
	ProjectBase

	// All members, by the names by which the identity provider knows them.
	Members map[string]access.Role `json:"members" enum:"reader,member,project-admin" maxProperties:"500"`
}

// Limits is the input of setQuota: all limits that are set on the project itself.
type Limits struct {
	ProjectBase

	// The most that may be used, by resource class or count (`instances`, `tokens`, `tickets`, `pools`, `clusters`):
	// whole numbers from 0, or -1 for no limit, whatever the default is.
	Limits tenant.Limits `json:"limits" maxProperties:"100" minimum:"-1"`
}

// Days chooses days of the history of usage.
type Days struct {
	Since string `query:"since" json:"-" format:"date" maxLength:"10"` // first day, in UTC; by default the oldest
	Until string `query:"until" json:"-" format:"date" maxLength:"10"` // last day, in UTC; by default today

	// Former includes what was used by projects that were removed. Only operators see that.
	Former bool `query:"former" json:"-"`
}

// ProjectDays is the input of getUsage.
type ProjectDays struct {
	ProjectNamed
	Days
}
