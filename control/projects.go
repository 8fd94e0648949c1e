package control

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/usage"
)

var projectOperations = noun{Tag: "projects",
	Description: "Tenants: a tree of projects with members and quotas. What a project uses counts against its own " +
		"limits and against the limits of every project above it.",
	Operations: []Operation{
		list(Operation{ID: "listProjects", At: "GET /v1/projects", May: access.Reads,
			Summary: "List the projects that the caller sees"}, listProjects),
		do(
			Operation{
				ID:          "createProject",
				At:          "POST /v1/projects",
				May:         access.Manages, // below the parent that it names
				Summary:     "Create a project below another one",
				Description: "Only operators create one that is below none.",
				Status:      http.StatusCreated,
				Conflict:    api.NameTaken,
			},
			createProject,
		),
		do(Operation{ID: "getProject", At: "GET /v1/projects/{project}", May: access.Reads,
			Summary: "Get a project with its members and limits"},
			func(ctx context.Context, c *call, _ api.ProjectNamed) (tenant.Tenant, error) {
				p, err := namedProject(ctx, c)
				return visible(c, p), err
			}),
		do(Operation{ID: "changeProject", At: "PATCH /v1/projects/{project}", May: access.FromAbove,
			Summary: "Change the note of a project"},
			func(ctx context.Context, c *call, in api.ProjectChange) (tenant.Tenant, error) {
				return change(ctx, c, in.ProjectBase, func(p *tenant.Tenant) error {
					p.Note = in.Note
					return nil
				})
			}),
		do(Operation{ID: "removeProject", At: "DELETE /v1/projects/{project}", May: access.FromAbove,
			Summary: "Remove a project that has no instances and no projects below it", Conflict: api.InUse},
			removeProject),
		do(Operation{ID: "setMembers", At: "PUT /v1/projects/{project}/members", May: access.Manages, Lasting: true,
			Summary: "Say who belongs to a project"}, setMembers),
		do(Operation{ID: "listMappings", At: "GET /v1/projects/{project}/mappings", May: access.Reads,
			Summary: "List the projects of peers whose members are members of a project"}, listMappings),
		// Manages: by operators, and by users of a peer for their own partition
		do(Operation{ID: "setMapping", At: "POST /v1/projects/{project}/mappings", May: access.Manages,
			Summary: "Make the members of a project of a peer members of a project",
			Description: "For operators, and for users of a peer about projects of their own cloud. A project of " +
				"a peer is one project here; that it is this one already changes its role.",
			Conflict: api.InUse}, setMapping),
		do(Operation{ID: "removeMapping", At: "DELETE /v1/projects/{project}/mappings/{id}/{theirs}",
			May: access.Manages, Summary: "End the membership of the members of a project of a peer",
			Description: "At once, also of requests that are under way. What they made stays with the project."},
			removeMapping),
		do(Operation{ID: "getQuota", At: "GET /v1/projects/{project}/quota", May: access.Reads,
			Summary: "Get the limits of a project and what it uses, with the projects below it"},
			func(ctx context.Context, c *call, _ api.ProjectNamed) (tenant.Account, error) {
				return account(ctx, c, c.home())
			}),
		do(Operation{ID: "setQuota", At: "PUT /v1/projects/{project}/quota", May: access.FromAbove,
			Summary: "Set the limits of a project",
			Description: "The admin of the project above decides them. A limit below the present use only refuses " +
				"growth."},
			func(ctx context.Context, c *call, in api.Limits) (tenant.Tenant, error) {
				return change(ctx, c, in.ProjectBase, func(p *tenant.Tenant) error {
					p.Limits = in.Limits
					return nil
				})
			}),
		do(Operation{ID: "getUsage", At: "GET /v1/projects/{project}/usage", May: access.Reads,
			Summary: "Get what a project used, by day, with the projects below it",
			Description: "What it was charged with, times the time. It is kept for 400 days; of very many " +
				"projects, the oldest days go sooner."},
			func(ctx context.Context, c *call, in api.ProjectDays) (usage.Report, error) {
				return history(ctx, c, []croft.Project{c.project}, in.Days)
			}),
		do(Operation{ID: "listUsage", At: "GET /v1/usage", May: access.Reads,
			Summary: "List what projects used, by day, each with the projects below it",
			Description: "Admins of a project see the projects below it too, operators all. For operators, `capacity` has what " +
				"the hosts that took instances offered."},
			func(ctx context.Context, c *call, in api.Days) (usage.Report, error) {
				report, err := history(ctx, c, c.scope.Projects(), in)
				if err == nil && c.caller.Operator() {
					report.Capacity, err = c.Cloud.Usage.Capacity(ctx, usage.Filter{Since: in.Since, Until: in.Until})
				}
				return report, err
			}),
		do(Operation{ID: "getDefaultQuota", At: "GET /v1/quota", May: access.EveryHuman,
			Summary: "Get the limits of projects that have none of their own"},
			func(ctx context.Context, c *call, _ nothing) (tenant.Defaults, error) {
				d, err := c.Cloud.Projects.Defaults(ctx)
				if d.Limits == nil {
					d.Limits = tenant.Limits{} // never null
				}
				return d, err
			}),
		do(Operation{ID: "setDefaultQuota", At: "PUT /v1/quota", May: access.Operates,
			Summary: "Set the limits of projects that have none of their own", Conflict: api.GenerationMismatch},
			func(ctx context.Context, c *call, in tenant.Defaults) (tenant.Defaults, error) {
				c.action.about("", actions.Object{Kind: actions.Quota, Name: "default"})
				return c.Cloud.Projects.SetDefaults(ctx, in)
			}),
		do(Operation{ID: "checkQuotas", At: "GET /v1/quota/check", May: access.Operates, Long: true,
			Summary:     "Compare the counters of projects with their records",
			Description: "As of one revision of etcd. For operators."},
			func(ctx context.Context, c *call, _ nothing) (api.DiscrepancyList, error) {
				ctx, cancel := context.WithTimeout(ctx, auditTime)
				defer cancel()
				found, err := c.Cloud.Projects.Check(ctx)
				return api.DiscrepancyList{Discrepancies: append([]tenant.Discrepancy{}, found...)}, err
			}),
		do(Operation{ID: "recountQuota", At: "POST /v1/projects/{project}/quota/recount", May: access.Operates,
			Summary:     "Count again what a project uses",
			Description: "For operators, where checkQuotas found a difference. Repeating it is no error."},
			func(ctx context.Context, c *call, _ api.ProjectNamed) (tenant.Account, error) {
				if err := c.Cloud.Projects.Recount(ctx, c.project); err != nil {
					return tenant.Account{}, err
				}
				return account(ctx, c, c.project)
			}),
	},
}

func listProjects(ctx context.Context, c *call, _ nothing) (api.ProjectList, error) {
	all, err := visibleProjects(ctx, c)
	list := api.ProjectList{Projects: []tenant.Tenant{}}
	for _, p := range all {
		if c.scope.Sees(p.Name) {
			list.Projects = append(list.Projects, visible(c, p))
		}
	}
	return list, err
}

// visibleProjects reads only the projects that the caller sees.
func visibleProjects(ctx context.Context, c *call) ([]tenant.Tenant, error) {
	return c.Cloud.Projects.List(ctx, c.scope)
}

// visible removes a parent that the caller does not see. Readers see no members but themselves.
func visible(c *call, p tenant.Tenant) tenant.Tenant {
	if !access.May(c.caller, access.Changes, p.Name) {
		p.Members = maps.Clone(p.Members)
		maps.DeleteFunc(p.Members, func(user string, _ access.Role) bool { return user != c.caller.User })
	}
	if !c.scope.Sees(p.Parent) {
		p.Parent = ""
	}
	return p
}

func createProject(ctx context.Context, c *call, in api.NewProject) (p tenant.Tenant, err error) {
	c.action.about(c.caller.Project, actions.Object{Kind: actions.Project, Name: string(in.Name)})
	if in.Parent == "" && !c.caller.Operator() {
		return p, api.NewProblem(api.ForbiddenVerb,
			"only operators create projects that are below none: name the project above in parent")
	}
	if in.Parent != "" {
		if !c.caller.Operator() {
			if _, err := c.sees(in.Parent); err != nil {
				return p, err
			}
		}
		in.Parent = c.called(in.Parent)
		if err := c.authorize(in.Parent); err != nil {
			return p, err
		}
		c.action.project = in.Parent
		if !c.caller.Operator() {
			if in.Name == croft.DefaultProject {
				return p, api.NewProblem(api.NameTaken, "the project default is the operators': choose another name")
			}
			in.Name = in.Parent.Below(in.Name)
			c.action.about(in.Parent, actions.Object{Kind: actions.Project, Name: string(in.Name)})
		}
	}
	if !c.caller.Operator() {
		if err := checkReserved(ctx, c, in.Name); err != nil {
			return p, err
		}
	}
	p, err = c.Cloud.Projects.Create(ctx, tenant.Tenant{Name: in.Name, Parent: in.Parent, Note: in.Note,
		Created: time.Now().UTC(), Started: true})
	if err != nil {
		return p, err
	}
	c.follow(ctx, p.Name)
	return visible(c, p), nil
}

// checkReserved refuses a name in which an operator granted rights. Otherwise the creator of the project would get the
// host networks or the users of groups that the operator meant for another project of this name.
func checkReserved(ctx context.Context, c *call, name croft.Project) error {
	reserved := slices.Contains(c.Reserved, name)
	if !reserved {
		all, err := c.Cloud.Fleet.Records(ctx)
		if err != nil {
			return err
		}
		for _, h := range all {
			for _, projects := range h.Networks {
				reserved = reserved || slices.Contains(projects, name)
			}
		}
	}
	if !reserved {
		return nil
	}
	return api.NewProblem(api.NameTaken, "create the project "+strconv.Quote(string(name))+
		": settings of this cloud give rights to the name: choose another name, or ask an operator to create it")
}

// follow makes this server read a write to a project before the answer, so that the caller's next list has the project.
// It only logs an error, because the write is done.
func (c *call) follow(ctx context.Context, p croft.Project) {
	if err := c.caller.Refresh(ctx, p); err != nil {
		c.Log.Warn("the tree of projects is behind what is stored", "project", p, "err", err)
	}
}

// namedProject reads the project in the path, which the caller sees.
func namedProject(ctx context.Context, c *call) (tenant.Tenant, error) {
	all, err := c.Cloud.Projects.List(ctx, access.Within(c.project))
	if err != nil {
		return tenant.Tenant{}, err
	}
	if len(all) == 1 && c.identity != "" && c.identity != all[0].ID { // the tree may be behind
		if err := c.caller.Refresh(ctx, c.project); err != nil {
			return tenant.Tenant{}, err
		}
		c.readmit()
	}
	for _, p := range all {
		if p.Name == c.project && (c.caller.Operator() || c.identity == "" || c.identity == p.ID) {
			return p, nil
		}
	}
	c.action.project = c.caller.Project // the log of a project starts with its record
	return tenant.Tenant{}, api.NewProblem(api.NotFound, "there is no project "+strconv.Quote(string(c.project)))
}

func setMembers(ctx context.Context, c *call, in api.Members) (tenant.Tenant, error) {
	return change(ctx, c, in.ProjectBase, func(p *tenant.Tenant) error {
		for user, role := range in.Members {
			if p.Members[user] == role {
				continue // an earlier caller may have had the right to grant this role
			}
			if err := access.AuthorizeRoles(c.caller, []access.Role{role}); err != nil {
				return err
			}
		}
		p.Members = in.Members
		return nil
	})
}

// change changes the project in the path.
func change(ctx context.Context, c *call, in api.ProjectBase, how func(*tenant.Tenant) error) (p tenant.Tenant,
	err error) {
	if p, err = namedProject(ctx, c); err != nil {
		return p, err
	}
	if _, err := base(in.Base, func() (int64, error) { return p.Generation, nil }); err != nil {
		return p, err
	}
	if err := how(&p); err != nil {
		return p, err
	}
	if p, err = c.Cloud.Projects.Change(ctx, p); err != nil {
		return p, err
	}
	c.follow(ctx, p.Name)
	return visible(c, p), nil
}

// removeProject logs the action in the parent project, because the log of the project itself ends.
func removeProject(ctx context.Context, c *call, _ api.ProjectNamed) (none nothing, err error) {
	p, err := namedProject(ctx, c)
	if err != nil {
		return none, err
	}
	c.action.about(p.Parent, actions.Object{Kind: actions.Project, Name: string(p.Name)})
	if err = c.Cloud.Projects.Remove(ctx, c.project); err == nil {
		c.follow(ctx, c.project)
	}
	return none, err
}

// account returns the usage of a project and the limits that apply to it.
func account(ctx context.Context, c *call, project croft.Project) (tenant.Account, error) {
	accounts, err := c.Cloud.Projects.Accounts(ctx, project)
	if err != nil {
		return tenant.Account{}, err
	}
	return accounts[0], nil
}

// history returns the usage history of projects; nil: all. Only operators see the usage from before a project was
// removed, because a later project of the same name may have another owner.
func history(ctx context.Context, c *call, projects []croft.Project, in api.Days) (usage.Report, error) {
	f := usage.Filter{Projects: projects, Former: in.Former && c.caller.Operator(), Since: in.Since, Until: in.Until}
	if !c.scope.All() && f.Projects == nil {
		f.Projects = []croft.Project{}
	}
	if err := f.Check(); err != nil {
		return usage.Report{}, api.NewProblem(api.BadQuery, err.Error())
	}
	return c.Cloud.Usage.List(ctx, access.Everything(), f)
}
