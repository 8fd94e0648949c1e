package tenant

import (
	"cmp"
	"slices"

	"croft"
	"croft/tenant/access"
)

// User is a user with those roles that the caller may see.
type User struct {
	Name  string     `json:"name"`           // as the issuer or the project knows it
	Self  bool       `json:"self,omitempty"` // it is the caller
	Roles []UserRole `json:"roles"`          // by project
}

// UserRole is a role in a project; an empty project stands for the whole cloud.
type UserRole struct {
	// Left out for the whole cloud.
	Project croft.Project `json:"project,omitempty"`
	Role    access.Role   `json:"role"` // in the project
}

// Users returns the caller, and the members of the projects that the caller may administer, by name.
func Users(c access.Caller, all []Tenant) []User {
	byName := map[string]*User{c.User: {Name: c.User, Self: true, Roles: []UserRole{}}}
	add := func(name string, r UserRole) {
		u := byName[name]
		if u == nil {
			u = &User{Name: name}
			byName[name] = u
		}
		if !slices.Contains(u.Roles, r) {
			u.Roles = append(u.Roles, r)
		}
	}
	for _, role := range c.Roles {
		where := c.Project
		if role == access.PartitionAdmin {
			where = ""
		}
		add(c.User, UserRole{where, role})
	}
	administers := c.Operator() || c.Has(access.ProjectAdmin)
	for _, p := range all {
		for name, role := range p.Members {
			if administers && c.Scope().Sees(p.Name) {
				add(name, UserRole{p.Name, role})
			}
		}
	}
	var users []User
	for _, u := range byName {
		slices.SortFunc(u.Roles, func(a, b UserRole) int {
			return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Role, b.Role))
		})
		users = append(users, *u)
	}
	slices.SortFunc(users, func(a, b User) int { return cmp.Compare(a.Name, b.Name) })
	return users
}
