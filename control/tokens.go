package control

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/cloud"
	"croft/control/page/session"
	"croft/internal/wording"
	"croft/tenant/access"
)

var tokenOperations = noun{Tag: "tokens",
	Description: "Access tokens, with which people and programs call this API. For admins of projects, and operators.",
	Operations: []Operation{
		list(
			Operation{
				ID:      "listTokens",
				At:      "GET /v1/tokens",
				May:     access.Manages,
				Summary: "List the tokens of a project",
			},
			listTokens,
		),
		do(Operation{ID: "createToken", At: "POST /v1/tokens", May: access.Manages, Lasting: true,
			Summary:     "Make a token",
			Description: "The answer has the secret, once. Admins of a project give no role of operators.",
			Status:      http.StatusCreated}, createToken),
		do(Operation{ID: "revokeToken", At: "DELETE /v1/tokens/{id}", May: access.Manages,
			Summary: "Revoke a token at once"}, revokeToken),
		do(Operation{ID: "createPageLink", At: "POST /v1/page-links", May: access.EveryHuman, Lasting: true, Log: never,
			Summary: "Make a link that logs a browser in to the page with the caller's token",
			Description: "It works once, within 60 s. Callers over the local socket get a token for it, which expires " +
				"after 12 h.",
			Status: http.StatusCreated}, createPageLink),
	},
}

// listTokens lists access tokens. Only operators see tokens without a project.
func listTokens(ctx context.Context, c *call, _ api.InProject) (api.TokenList, error) {
	all, err := c.Cloud.Access.List(ctx, c.project)
	list := api.TokenList{Tokens: []api.AccessToken{}}
	for _, t := range all {
		if c.scope.Sees(t.Project) {
			list.Tokens = append(list.Tokens, t)
		}
	}
	return list, err
}

// createToken creates a token with a role that the caller may grant.
func createToken(ctx context.Context, c *call, in api.NewToken) (made api.AccessToken, err error) {
	if err := access.AuthorizeRoles(c.caller, []access.Role{in.Role}); err != nil {
		return made, err
	}
	life, err := wording.ParseDuration(in.Life)
	if err != nil {
		return made, croft.Errorf(croft.Invalid, "life is %.40q: use a duration such as 30d", in.Life)
	}
	wanted := cloud.NewAccess{User: in.User, Project: c.project, Role: in.Role, Note: in.Note, Life: life,
		By: c.caller.User}
	if !c.caller.Operator() { // tokens from operators outlast the operators' own tokens
		wanted.Parent, wanted.Within = c.caller.Token, true
	}
	c.action.about(c.project, actions.Object{Kind: actions.Token, For: in.User})
	made, err = c.Cloud.Access.Create(ctx, wanted)
	if err == nil {
		about := actions.TokenNamed(string(made.ID))
		about.For = made.User
		c.action.about(c.project, about)
	}
	return made, err
}

// revokeToken revokes a token that the caller sees.
func revokeToken(ctx context.Context, c *call, in api.TokenNamed) (ended api.AccessToken, err error) {
	all, err := c.Cloud.Access.List(ctx, c.project)
	if err != nil {
		return ended, err
	}
	i := slices.IndexFunc(all, func(t api.AccessToken) bool {
		return string(t.ID) == in.ID && c.scope.Sees(t.Project)
	})
	if i < 0 {
		return ended, c.hidden("token", in.ID, api.NewProblem(api.NotFound,
			"there is no token "+strconv.Quote(api.Clip(in.ID))))
	}
	c.action.about(all[i].Project, actions.TokenNamed(in.ID))
	if err := c.authorize(all[i].Project); err != nil {
		return ended, err
	}
	return c.Cloud.Access.Revoke(ctx, all[i].ID)
}

// createPageLink makes a link that logs a browser in to the page with the caller's own token. A caller over the local
// socket has none, and gets one.
func createPageLink(ctx context.Context, c *call, _ nothing) (link api.PageLink, err error) {
	if c.Page == nil {
		return link, api.NewProblem(api.BackendDown, "this command reached the cloud without a server of the API, and only "+
			"a server has the page: start croft, or name its address in CROFT_URL")
	}
	credentials, has, err := access.BearerToken(c.r)
	switch {
	case err != nil:
		return link, err
	case !has && access.IsLocal(c.r) && c.caller.Operator():
		made, err := c.Cloud.Access.Create(ctx, cloud.NewAccess{User: c.caller.User, Role: access.PartitionAdmin,
			Note: "page, over the local socket", Life: session.Life, By: c.caller.User})
		if err != nil {
			return link, err
		}
		credentials = made.Secret
	case !has:
		return link, api.NewProblem(api.ForbiddenVerb, "a link to the page is for callers with a token: log in with one")
	}
	link.URL, link.Expires, err = c.Page.Link(ctx, credentials)
	return link, err
}
