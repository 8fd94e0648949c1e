package clusters

import (
	"context"
	"errors"
	"net/http"

	"croft"
	"croft/access"
	"croft/actions"
	"croft/cluster"
	"croft/control/api"
)

// administers reports whether the caller may list and remove credentials of others in a project.
func (c Call) administers(project croft.Project) bool {
	return c.Caller.Operator() || c.Caller.Has(access.ProjectAdmin) && c.Scope.Sees(project)
}

// credential finds the credential that the path names, among those of the caller; others, too: among those that the
// caller administers, by its UUID.
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

// administered finds a credential among those that the caller administers. NotFound.
func administered(ctx context.Context, c Call, id cluster.CredentialID) (cluster.Credential, error) {
	all, err := c.Cloud.Credentials.List(ctx, "", "")
	if err != nil {
		return cluster.Credential{}, err
	}
	for _, one := range all {
		if one.ID == id && c.administers(one.Project) {
			return one, nil
		}
	}
	return cluster.Credential{}, croft.Errorf(croft.NotFound, "there is no such credential")
}

func listCredentials(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	project, user := c.Project, c.Caller.User
	if c.flag("all") {
		if !c.administers(c.Project) {
			return api.NewProblem(api.ForbiddenVerb, "only admins of the project list the credentials of all its users")
		}
		project, user = "", ""
	}
	all, err := c.Cloud.Credentials.List(ctx, project, user)
	if err != nil {
		return err
	}
	list := api.CredentialList{Credentials: []api.Credential{}}
	for _, one := range all {
		if c.Scope.Sees(one.Project) && (c.Given == "" || one.Project == c.Project) {
			list.Credentials = append(list.Credentials, api.CredentialOf(one))
		}
	}
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
