package access

import (
	"fmt"
	"net/http"
	"slices"

	"croft"
)

// Members knows the roles of users in projects, by the names that identity providers use. It answers from memory.
type Members interface {
	// ProjectsOf lists the projects that a user is a member of, by name. Unavailable: they have not been read yet.
	ProjectsOf(user string) ([]croft.Project, error)
	// RolesOf lists the roles of a user in a project: as a member of it, or as an admin of a project above it.
	RolesOf(user string, p croft.Project) []Role
}

// ProjectHeader names the project of a request, for users with roles in several. It selects one of the user's projects,
// and grants no others.
const ProjectHeader = "X-Croft-Project"

// Granted is the roles of a user according to an identity provider.
type Granted struct {
	Roles map[croft.Project][]Role // by project; an operator's under the project ""
	Home  croft.Project            // the project of requests that name none; empty: the only one
	None  error                    // Denied: why these roles are empty
}

// ProjectNeededError refuses a request of a user with roles in several projects that names no project. Its kind is
// Denied.
type ProjectNeededError struct {
	User     string
	Projects []croft.Project // sorted
}

// Error implements error.
func (e *ProjectNeededError) Error() string {
	return fmt.Sprintf("%s has roles in the projects %v: name one in the header %s", e.User, e.Projects, ProjectHeader)
}

// Unwrap returns the kind.
func (e *ProjectNeededError) Unwrap() error { return croft.Denied }

// Choose sets the project of a request in a caller, and the roles there: the granted ones, and a member's. Members may
// be nil; a user unknown to them may have become a member a moment ago. Denied, Unavailable.
func Choose(c Caller, g Granted, m Members, r *http.Request) (Caller, error) {
	chosen, err := choose(c, g, m, r)
	if croft.KindOf(err) != croft.Denied || m == nil {
		return chosen, err
	}
	if err := CatchUp(r.Context(), m); err != nil {
		return Caller{}, err
	}
	return choose(c, g, m, r)
}

func choose(c Caller, g Granted, m Members, r *http.Request) (Caller, error) {
	wanted := r.Header.Values(ProjectHeader)
	if len(wanted) > 1 {
		return Caller{}, croft.Errorf(croft.Denied, "the request has %d headers %s: send one", len(wanted),
			ProjectHeader)
	}
	if operates := g.Roles[""]; len(operates) > 0 { // an operator needs no other role, and may name any project
		c.Roles = operates
		if len(wanted) == 1 {
			if c.Project = croft.Project(wanted[0]); c.Project.Check() != nil {
				return Caller{}, croft.Errorf(croft.Denied, "the header %s: %s", ProjectHeader, c.Project.Check())
			}
		}
		return c, nil
	}
	in := func(p croft.Project) []Role {
		roles := slices.Clone(g.Roles[p])
		if m != nil {
			roles = append(roles, m.RolesOf(c.User, p)...)
		}
		slices.SortFunc(roles, func(a, b Role) int { return slices.Index(Roles, a) - slices.Index(Roles, b) })
		return slices.Compact(roles)
	}
	projects, err := projectsOf(c.User, g, m)
	switch {
	case err != nil:
		return Caller{}, err
	case len(wanted) == 1:
		c.Project = croft.Project(wanted[0])
	case slices.Contains(projects, g.Home):
		c.Project = g.Home
	case len(projects) == 0:
		return Caller{}, g.None
	case len(projects) == 1:
		c.Project = projects[0]
	default:
		return Caller{}, &ProjectNeededError{User: c.User, Projects: projects}
	}
	if c.Project != "" {
		c.Roles = in(c.Project)
	}
	switch {
	case len(c.Roles) > 0:
		return c, nil
	case len(projects) == 0:
		return Caller{}, g.None
	}
	return Caller{}, croft.Errorf(croft.Denied, "%s has no role in the project %.80q that the header %s names", c.User,
		string(c.Project), ProjectHeader)
}

// projectsOf lists the projects in which a user has a role, sorted, without those where it comes only from a project
// above.
func projectsOf(user string, g Granted, m Members) (all []croft.Project, err error) {
	if m != nil {
		if all, err = m.ProjectsOf(user); err != nil {
			return nil, err
		}
	}
	all = slices.Clone(all)
	for p, roles := range g.Roles {
		if len(roles) > 0 {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
