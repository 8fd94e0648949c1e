package control

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/tenant"
	"croft/tenant/access"
)

func listProjects(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := visibleProjects(ctx, c)
	if err != nil {
		return err
	}
	list := api.ProjectList{Projects: []tenant.Tenant{}}
	for _, p := range all {
		if c.scope.Sees(p.Name) {
			list.Projects = append(list.Projects, visible(c, p))
		}
	}
	return c.answer(http.StatusOK, list)
}

// visibleProjects reads only the projects that the caller sees.
func visibleProjects(ctx context.Context, c *call) ([]tenant.Tenant, error) {
	if c.scope.All() {
		return c.Cloud.Projects.List(ctx)
	}
	if names := c.scope.Projects(); len(names) > 0 {
		return c.Cloud.Projects.List(ctx, names...)
	}
	return nil, nil
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

func createProject(c *call) error {
	var given api.NewProject
	if err := c.body(&given); err != nil {
		return err
	}
	c.action.about(c.caller.Project, actions.Object{Kind: actions.Project, Name: string(given.Name)})
	if given.Parent == "" && !c.caller.Operator() {
		return api.NewProblem(api.ForbiddenVerb,
			"only operators create projects that are below none: name the project above in parent")
	}
	if given.Parent != "" {
		if !c.caller.Operator() {
			if _, err := c.sees(given.Parent); err != nil {
				return err
			}
		}
		given.Parent = c.called(given.Parent)
		if err := c.authorize(given.Parent); err != nil {
			return err
		}
		c.action.project = given.Parent
		if !c.caller.Operator() {
			if given.Name == croft.DefaultProject {
				return api.NewProblem(api.NameTaken, "the project default is the operators': choose another name")
			}
			given.Name = given.Parent.Below(given.Name)
			c.action.about(given.Parent, actions.Object{Kind: actions.Project, Name: string(given.Name)})
		}
	}
	ctx, cancel := c.brief()
	defer cancel()
	if !c.caller.Operator() {
		if err := checkReserved(ctx, c, given.Name); err != nil {
			return err
		}
	}
	p, err := c.Cloud.Projects.Create(ctx, tenant.Tenant{Name: given.Name, Parent: given.Parent, Note: given.Note,
		Created: time.Now().UTC()})
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.NameTaken, err.Error())
	}
	if err != nil {
		return err
	}
	c.follow(ctx, p.Name)
	return answerProject(c, http.StatusCreated, p)
}

// checkReserved refuses a name in which an operator granted rights. Otherwise the creator of the project would get the
// host networks or the users of groups that the operator meant for another project of this name.
func checkReserved(ctx context.Context, c *call, name croft.Project) error {
	reserved := slices.Contains(c.Reserved, name)
	if !reserved {
		all, err := c.Cloud.Hosts.Records(ctx)
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

// answerProject answers with a project, and with its generation for If-Match.
func answerProject(c *call, status int, p tenant.Tenant) error {
	api.Tag(c.w.Header(), p.Generation)
	return c.answer(status, visible(c, p))
}

// namedProject reads the project in the path, which the caller sees.
func namedProject(c *call) (tenant.Tenant, error) {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Projects.List(ctx, c.project)
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

func getProject(c *call) error {
	p, err := namedProject(c)
	if err != nil {
		return err
	}
	return answerProject(c, http.StatusOK, p)
}

func changeProject(c *call) error {
	var given api.ProjectChange
	if err := c.body(&given); err != nil {
		return err
	}
	return change(c, func(p *tenant.Tenant) error {
		p.Note = given.Note
		return nil
	})
}

func setMembers(c *call) error {
	var given api.Members
	if err := c.body(&given); err != nil {
		return err
	}
	return change(c, func(p *tenant.Tenant) error {
		for user, role := range given.Members {
			if p.Members[user] == role {
				continue // an earlier caller may have had the right to grant this role
			}
			if err := access.AuthorizeRoles(c.caller, []access.Role{role}); err != nil {
				return err
			}
		}
		p.Members = given.Members
		return nil
	})
}

func setQuota(c *call) error {
	var given api.Limits
	if err := c.body(&given); err != nil {
		return err
	}
	return change(c, func(p *tenant.Tenant) error {
		p.Limits = given.Limits
		return nil
	})
}

// change changes the project in the path. The caller names its generation in If-Match.
func change(c *call, how func(*tenant.Tenant) error) error {
	match := strings.Trim(c.r.Header.Get("If-Match"), `"`)
	if match == "" {
		return api.NewProblem(api.GenerationRequired,
			"name the generation that this builds on in the header If-Match, as the answer about the project has it")
	}
	p, err := namedProject(c)
	if err != nil {
		return err
	}
	if match != strconv.FormatInt(p.Generation, 10) {
		return api.NewProblem(api.GenerationMismatch, "the project was changed by somebody else: look at it and try again")
	}
	if err := how(&p); err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	p, err = c.Cloud.Projects.Change(ctx, p)
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	if err != nil {
		return err
	}
	c.follow(ctx, p.Name)
	return answerProject(c, http.StatusOK, p)
}

// removeProject logs the action in the parent project, because the log of the project itself ends.
func removeProject(c *call) error {
	p, err := namedProject(c)
	if err != nil {
		return err
	}
	c.action.about(p.Parent, actions.Object{Kind: actions.Project, Name: string(p.Name)})
	ctx, cancel := c.brief()
	defer cancel()
	err = c.Cloud.Projects.Remove(ctx, c.project)
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.InUse, err.Error())
	}
	if err != nil {
		return err
	}
	c.follow(ctx, c.project)
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// getQuota answers with the usage of a project and the limits that apply to it.
func getQuota(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	accounts, err := c.Cloud.Projects.Accounts(ctx, c.home())
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, accounts[0])
}

func getDefaultQuota(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	d, err := c.Cloud.Projects.Defaults(ctx)
	if err != nil {
		return err
	}
	if d.Limits == nil {
		d.Limits = tenant.Limits{} // never null
	}
	return c.answer(http.StatusOK, d)
}

func setDefaultQuota(c *call) error {
	var given tenant.Defaults
	if err := c.body(&given); err != nil {
		return err
	}
	c.action.about("", actions.Object{Kind: actions.Quota, Name: "default"})
	ctx, cancel := c.brief()
	defer cancel()
	d, err := c.Cloud.Projects.SetDefaults(ctx, given)
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, d)
}
