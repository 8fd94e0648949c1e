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

var credentialOperations = noun{Tag: "credentials",
	Description: "What lets the cloud act for a user at a site. Each belongs to one user in one project. Secrets " +
		"go in, sealed by a key that is not in the cloud's store, and never come out.",
	Home: true,
	Operations: []Operation{
		// Changes: one's own; admins list all of the project
		list(Operation{ID: "listCredentials", At: "GET /v1/credentials", May: access.Changes,
			Summary: "List the caller's credentials, without their secrets"}, listCredentials),
		do(Operation{ID: "createCredential", At: "POST /v1/credentials", May: access.Changes, Personal: true,
			Summary: "Store a credential, after checking that the site accepts it", Status: http.StatusCreated,
			Conflict: api.NameTaken}, createCredential),
		do(Operation{ID: "getCredential", At: "GET /v1/credentials/{id}", May: access.Changes,
			Summary: "Get a credential of the caller, without its secret"},
			func(ctx context.Context, c *call, in api.CredentialNamed) (cluster.Credential, error) {
				have, err := credential(ctx, c, in.ID, true)
				return withoutSecret(have), err
			}),
		// Changes: one's own
		do(Operation{ID: "changeCredential", At: "PATCH /v1/credentials/{id}", May: access.Changes, Personal: true,
			Summary: "Change a credential of the caller, which the site has to accept then"}, changeCredential),
		do(Operation{ID: "removeCredential", At: "DELETE /v1/credentials/{id}", May: access.Changes, Personal: true,
			Summary:     "Remove a credential that no living cluster needs",
			Description: "Admins of the project, and operators, may remove credentials of others, by their UUIDs.",
			Conflict:    api.InUse},
			func(ctx context.Context, c *call, in api.CredentialNamed) (nothing, error) {
				have, err := credential(ctx, c, in.ID, true)
				if err != nil {
					return nothing{}, err
				}
				return nothing{}, c.Cloud.Credentials.Remove(ctx, have.Project, have.User, string(have.ID))
			}),
		do(Operation{ID: "rewrapSecrets", At: "POST /v1/seals", May: access.Operates,
			Summary: "Encrypt the secrets of other keys again with the first key",
			Description: "The server's first key counts. This covers the secrets of credentials, clusters and " +
				"accounts; afterwards no other key is needed. For operators."},
			func(ctx context.Context, c *call, _ nothing) (api.Rewrapped, error) {
				n, err := c.Cloud.Credentials.Rewrap(ctx)
				return api.Rewrapped{Secrets: n}, fromSite(err)
			}),
	},
}

// administers reports whether the caller may list and remove credentials of other users in a project.
func (c *call) administers(project croft.Project) bool {
	return c.caller.Operator() || c.caller.Has(access.ProjectAdmin) && c.scope.Sees(project)
}

// withoutSecret returns a credential as callers may see it.
func withoutSecret(c cluster.Credential) cluster.Credential {
	c.Secret = nil
	return c
}

// credential finds a credential, by its UUID or name, among the caller's. With others set, it also finds, by UUID,
// credentials that the caller administers.
func credential(ctx context.Context, c *call, name string, othersToo bool) (cluster.Credential, error) {
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

func listCredentials(ctx context.Context, c *call, in api.CredentialFilter) (api.CredentialList, error) {
	list := api.CredentialList{Credentials: []cluster.Credential{}}
	add := func(some []cluster.Credential, err error) error {
		for _, one := range some {
			list.Credentials = append(list.Credentials, withoutSecret(one))
		}
		return err
	}
	if !in.All {
		return list, add(c.Cloud.Credentials.List(ctx, c.home(), c.caller.User))
	}
	if !c.administers(c.home()) {
		return list, api.NewProblem(api.ForbiddenVerb, "only admins of the project list the credentials of all its users")
	}
	projects := []croft.Project{c.project}
	if c.project == "" && !c.scope.All() {
		projects = c.scope.Projects()
	}
	for _, project := range projects {
		if err := add(credentialsIn(ctx, c, project)); err != nil {
			return list, err
		}
	}
	slices.SortFunc(list.Credentials, func(a, b cluster.Credential) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User))
	})
	return list, nil
}

func createCredential(ctx context.Context, c *call, in api.NewCredential) (cluster.Credential, error) {
	c.regarding(c.home(), actions.Credential, "", in.Name)
	made, err := c.Cloud.Credentials.Create(ctx, in.Plain(c.home(), c.caller.User))
	if err == nil {
		c.regarding(made.Project, actions.Credential, string(made.ID), made.Name)
		c.w.Header().Set("Location", "/v1/credentials/"+string(made.ID))
	}
	return withoutSecret(made), fromSite(err)
}

func changeCredential(ctx context.Context, c *call, in api.CredentialChange) (cluster.Credential, error) {
	have, err := credential(ctx, c, in.ID, false)
	if err != nil {
		return withoutSecret(have), fromSite(err)
	}
	base, err := base(in.Base, func() (int64, error) { return have.Generation, nil })
	if err != nil {
		return withoutSecret(have), err
	}
	change := in.CredentialChange
	if change.Unverified = in.Skipped(); in.Secret != nil {
		change.Plain = &in.Secret.Secret
	}
	have, err = c.Cloud.Credentials.Change(ctx, have.Project, have.User, string(have.ID), change, base)
	return withoutSecret(have), fromSite(err)
}
