package control

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"croft"
	"croft/cluster"
	"croft/control/actions"
	"croft/control/api"
	"croft/tenant/access"
)

// administers reports whether the caller may list and remove credentials of other users in a project.
func (c *call) administers(project croft.Project) bool {
	return c.caller.Operator() || c.caller.Has(access.ProjectAdmin) && c.scope.Sees(project)
}

// credential finds the credential that the path names among the caller's. With others set, it also finds, by UUID,
// credentials that the caller administers.
func credential(ctx context.Context, c *call, othersToo bool) (cluster.Credential, error) {
	name := c.r.PathValue("id")
	have, err := c.Cloud.Credentials.Find(ctx, c.home(), c.caller.User, name)
	if errors.Is(err, croft.NotFound) && othersToo {
		have, err = administered(ctx, c, cluster.CredentialID(name))
	}
	if errors.Is(err, croft.NotFound) {
		return have, c.hidden("credential", name, err)
	}
	if err != nil {
		return have, err
	}
	c.regarding(have.Project, actions.Credential, string(have.ID), have.Name)
	return have, c.authorize(have.Project)
}

// administered finds a credential that the caller administers. NotFound.
func administered(ctx context.Context, c *call, id cluster.CredentialID) (cluster.Credential, error) {
	projects := []croft.Project{""}
	if !c.scope.All() {
		projects = c.scope.Projects()
	}
	for _, project := range projects {
		if !c.administers(project) {
			continue
		}
		all, err := credentialsIn(ctx, c, project)
		if err != nil {
			return cluster.Credential{}, err
		}
		for _, one := range all {
			if one.ID == id {
				return one, nil
			}
		}
	}
	return cluster.Credential{}, croft.Errorf(croft.NotFound, "there is no such credential")
}

// credentialsIn lists the credentials of all users of a project; empty: of the whole cloud.
func credentialsIn(ctx context.Context, c *call, project croft.Project) ([]cluster.Credential, error) {
	if project == "" {
		return c.Cloud.Credentials.List(ctx, "", "")
	}
	return c.Cloud.Credentials.List(ctx, project, cluster.AnyUser)
}

func listCredentials(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	list := api.CredentialList{Credentials: []api.Credential{}}
	add := func(some []cluster.Credential, err error) error {
		for _, one := range some {
			list.Credentials = append(list.Credentials, api.CredentialOf(one))
		}
		return err
	}
	if !c.flag("all") {
		if err := add(c.Cloud.Credentials.List(ctx, c.home(), c.caller.User)); err != nil {
			return err
		}
		return c.answer(http.StatusOK, list)
	}
	if !c.administers(c.home()) {
		return api.NewProblem(api.ForbiddenVerb, "only admins of the project list the credentials of all its users")
	}
	projects := []croft.Project{c.project}
	if c.project == "" && !c.scope.All() {
		projects = c.scope.Projects()
	}
	for _, project := range projects {
		if err := add(credentialsIn(ctx, c, project)); err != nil {
			return err
		}
	}
	slices.SortFunc(list.Credentials, func(a, b api.Credential) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User))
	})
	return c.answer(http.StatusOK, list)
}

func createCredential(c *call) error {
	var given api.NewCredential
	if err := c.body(&given); err != nil {
		return err
	}
	c.regarding(c.home(), actions.Credential, "", given.Name)
	wanted := given.Plain(c.home(), c.caller.User)
	wanted.Unverified = c.query.Get("verify") == "false"
	ctx, cancel := c.brief()
	defer cancel()
	made, err := c.Cloud.Credentials.Create(ctx, wanted)
	if err != nil {
		return fromSite(taken(err))
	}
	c.regarding(made.Project, actions.Credential, string(made.ID), made.Name)
	c.w.Header().Set("Location", "/v1/credentials/"+string(made.ID))
	return c.tagged(http.StatusCreated, made.Generation, api.CredentialOf(made))
}

func getCredential(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	have, err := credential(ctx, c, true)
	if err != nil {
		return err
	}
	return c.tagged(http.StatusOK, have.Generation, api.CredentialOf(have))
}

func changeCredential(c *call) error {
	var given api.CredentialChange
	if err := c.body(&given); err != nil {
		return err
	}
	base, err := api.Match(c.r.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	have, err := credential(ctx, c, false)
	if err != nil {
		return err
	}
	change := given.Plain()
	change.Unverified = c.query.Get("verify") == "false"
	have, err = c.Cloud.Credentials.Change(ctx, have.Project, have.User, string(have.ID), change, base)
	if err != nil {
		return fromSite(mismatch(err, base))
	}
	return c.tagged(http.StatusOK, have.Generation, api.CredentialOf(have))
}

func removeCredential(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	have, err := credential(ctx, c, true)
	if err != nil {
		return err
	}
	if err := c.Cloud.Credentials.Remove(ctx, have.Project, have.User, string(have.ID)); err != nil {
		return used(err)
	}
	return c.nothing()
}

func rewrapSecrets(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	n, err := c.Cloud.Seals.Rewrap(ctx)
	if err != nil {
		return fromSite(err)
	}
	return c.answer(http.StatusOK, api.Rewrapped{Secrets: n})
}
