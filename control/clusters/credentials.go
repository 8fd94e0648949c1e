package clusters

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
func (c Call) administers(project croft.Project) bool {
	return c.Caller.Operator() || c.Caller.Has(access.ProjectAdmin) && c.Scope.Sees(project)
}

// credential finds the credential that the path names among the caller's. With others set, it also finds, by UUID,
// credentials that the caller administers.
func credential(ctx context.Context, c Call, othersToo bool) (cluster.Credential, error) {
	name := c.R.PathValue("id")
	have, err := c.Cloud.Credentials.Find(ctx, c.Project, c.Caller.User, name)
	if errors.Is(err, croft.NotFound) && othersToo {
		have, err = administered(ctx, c, cluster.CredentialID(name))
	}
	if errors.Is(err, croft.NotFound) {
		return have, api.Hidden("credential", name)
	}
	if err != nil {
		return have, err
	}
	c.about(have.Project, actions.Credential, string(have.ID), have.Name)
	return have, c.May(have.Project)
}

// administered finds a credential that the caller administers. NotFound.
func administered(ctx context.Context, c Call, id cluster.CredentialID) (cluster.Credential, error) {
	projects := []croft.Project{""}
	if !c.Scope.All() {
		projects = c.Scope.Projects()
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
func credentialsIn(ctx context.Context, c Call, project croft.Project) ([]cluster.Credential, error) {
	if project == "" {
		return c.Cloud.Credentials.List(ctx, "", "")
	}
	return c.Cloud.Credentials.List(ctx, project, cluster.AnyUser)
}

func listCredentials(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	list := api.CredentialList{Credentials: []api.Credential{}}
	add := func(some []cluster.Credential, err error) error {
		for _, one := range some {
			list.Credentials = append(list.Credentials, api.CredentialOf(one))
		}
		return err
	}
	if !c.flag("all") {
		if err := add(c.Cloud.Credentials.List(ctx, c.Project, c.Caller.User)); err != nil {
			return err
		}
		return c.answer(http.StatusOK, list)
	}
	if !c.administers(c.Project) {
		return api.NewProblem(api.ForbiddenVerb, "only admins of the project list the credentials of all its users")
	}
	projects := []croft.Project{c.Given}
	if c.Given == "" && !c.Scope.All() {
		projects = c.Scope.Projects()
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

func createCredential(c Call) error {
	var given api.NewCredential
	if err := c.Body(&given); err != nil {
		return err
	}
	c.about(c.Project, actions.Credential, "", given.Name)
	wanted := given.Plain(c.Project, c.Caller.User)
	wanted.Unverified = c.Query.Get("verify") == "false"
	ctx, cancel := c.Brief()
	defer cancel()
	made, err := c.Cloud.Credentials.Create(ctx, wanted)
	if err != nil {
		return told(taken(err))
	}
	c.about(made.Project, actions.Credential, string(made.ID), made.Name)
	c.W.Header().Set("Location", "/v1/credentials/"+string(made.ID))
	return c.tagged(http.StatusCreated, made.Generation, api.CredentialOf(made))
}

func getCredential(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := credential(ctx, c, true)
	if err != nil {
		return err
	}
	return c.tagged(http.StatusOK, have.Generation, api.CredentialOf(have))
}

func changeCredential(c Call) error {
	var given api.CredentialChange
	if err := c.Body(&given); err != nil {
		return err
	}
	base, err := api.Match(c.R.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := credential(ctx, c, false)
	if err != nil {
		return err
	}
	change := given.Plain()
	change.Unverified = c.Query.Get("verify") == "false"
	have, err = c.Cloud.Credentials.Change(ctx, have.Project, have.User, string(have.ID), change, base)
	if err != nil {
		return told(mismatch(err, base))
	}
	return c.tagged(http.StatusOK, have.Generation, api.CredentialOf(have))
}

func removeCredential(c Call) error {
	ctx, cancel := c.Brief()
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

func rewrapSecrets(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	n, err := c.Cloud.Seals.Rewrap(ctx)
	if err != nil {
		return told(err)
	}
	return c.answer(http.StatusOK, api.Rewrapped{Secrets: n})
}
