package direct

import (
	"cmp"
	"context"
	"os"
	"os/user"
	"strconv"
	"time"

	"croft"
	"croft/control/api"
	"croft/control/cloud"
	"croft/etcdstore/tenants"
	"croft/tenant/access"
)

// accessTokens implements cloud.Access for callers that can reach etcd, and therefore are operators.
type accessTokens struct{ store *tenants.AccessTokens }

// Create implements cloud.Access.
func (a accessTokens) Create(ctx context.Context, wanted cloud.NewAccess) (api.AccessToken, error) {
	now := time.Now().UTC().Truncate(time.Second)
	t, secret, err := access.NewToken(access.Token{User: wanted.User, Project: wanted.Project,
		Roles: []access.Role{wanted.Role}, Note: wanted.Note, Created: now, CreatedBy: cmp.Or(wanted.By, LocalUser()),
		Delegated: wanted.Within && wanted.User != wanted.By, Parent: wanted.Parent,
		Expires: now.Add(wanted.Life).Truncate(time.Second)})
	if err != nil {
		return api.AccessToken{}, err
	}
	// a token for a name without a record would work in any later project of that name
	create := a.store.CreateWithin
	if wanted.Project == "" || wanted.Project == croft.DefaultProject && !wanted.Within {
		create = a.store.Create
	}
	if err := create(ctx, t); err != nil {
		return api.AccessToken{}, err
	}
	made := accessTokenOf(t)
	made.Secret = secret.Text()
	return made, nil
}

// List implements cloud.Access.
func (a accessTokens) List(ctx context.Context, project croft.Project) ([]api.AccessToken, error) {
	scope := access.Everything()
	if project != "" {
		scope = access.Within(project)
	}
	all, err := a.store.List(ctx, scope)
	if err != nil {
		return nil, err
	}
	var list []api.AccessToken
	for _, t := range all {
		list = append(list, accessTokenOf(t))
	}
	return list, nil
}

// Revoke implements cloud.Access.
func (a accessTokens) Revoke(ctx context.Context, id access.TokenID) (api.AccessToken, error) {
	t, err := a.store.Revoke(ctx, access.Everything(), id)
	return accessTokenOf(t), err
}

func accessTokenOf(t access.Token) api.AccessToken {
	return api.AccessToken{ID: t.ID, User: t.User, Project: t.Project, Roles: t.Roles, Note: t.Note,
		Created: t.Created, CreatedBy: t.CreatedBy, Expires: t.Expires}
}

// LocalUser names the user of this process.
func LocalUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}
