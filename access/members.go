package access

import (
	"net/http"
	"slices"

	"croft"
)

// Members knows what users are to projects, by the names by which identity providers know them. It answers from memory.
type Members interface {
	// ProjectsOf lists the projects that a user is a member of, by name. Unavailable: they have not been read yet.
	ProjectsOf(user string) ([]croft.Project, error)
	// RolesOf lists what a user is to a project: as a member there, or as an admin of a project above it.
	RolesOf(user string, p croft.Project) []Role
}

// ProjectHeader names the project that a request is about, for users with roles in several. It chooses among the
// projects of the user, and adds none.
const ProjectHeader = "X-Croft-Project"

// Granted is what an identity provider says of a user.
type Granted struct {
	Roles map[croft.Project][]Role // by project; of the project "", those of an operator
	Home  croft.Project            // the project that is meant if the request names none; empty: the only one
	None  error                    // Denied: why the user has no role by this
}

// Choose adds to a caller the project that a request is about, and the roles there: those that are granted, and those
// of a member. Members may be nil; a user whom they do not know may have become a member just now. Denied, Unavailable.
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
		return Caller{}, croft.Errorf(croft.Denied, "%s has roles in the projects %v: name one in the header %s",
			c.User, projects, ProjectHeader)
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

// projectsOf lists the projects where a user has a role without being the admin of one above, sorted.
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
