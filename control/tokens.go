package control

import (
	"net/http"
	"slices"
	"strconv"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/cloud"
	"croft/internal/wording"
	"croft/tenant/access"
)

// listTokens lists access tokens. Only operators see tokens without a project.
func listTokens(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Access.List(ctx, c.project)
	if err != nil {
		return err
	}
	list := api.TokenList{Tokens: []cloud.AccessToken{}}
	for _, t := range all {
		if c.scope.Sees(t.Project) {
			list.Tokens = append(list.Tokens, t)
		}
	}
	return c.answer(http.StatusOK, list)
}

// createToken creates a token with a role that the caller may grant.
func createToken(c *call) error {
	var given api.NewToken
	if err := c.body(&given); err != nil {
		return err
	}
	if err := access.AuthorizeRoles(c.caller, []access.Role{given.Role}); err != nil {
		return err
	}
	life, err := wording.ParseDuration(given.Life)
	if err != nil {
		return croft.Errorf(croft.Invalid, "life is %.40q: use a duration such as 30d", given.Life)
	}
	ctx, cancel := c.brief()
	defer cancel()
	parent := c.caller.Token
	if c.caller.Operator() { // tokens from operators outlast the operators' own tokens
		parent = ""
	}
	c.action.about(c.project, actions.Object{Kind: actions.Token, For: given.User})
	made, err := c.Cloud.Access.Create(
		ctx,
		cloud.NewAccess{Parent: parent, User: given.User, Project: c.project, Role: given.Role,
			Note: given.Note, Life: life, By: c.caller.User, Within: !c.caller.Operator()},
	)
	if err != nil {
		return err
	}
	about := actions.TokenNamed(string(made.ID))
	about.For = made.User
	c.action.about(c.project, about)
	return c.answer(http.StatusCreated, made)
}

// revokeToken revokes a token that the caller sees.
func revokeToken(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	id := c.r.PathValue("id")
	all, err := c.Cloud.Access.List(ctx, c.project)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(t cloud.AccessToken) bool { return string(t.ID) == id && c.scope.Sees(t.Project) })
	if i < 0 {
		return c.hidden("token", id, api.NewProblem(api.NotFound, "there is no token "+strconv.Quote(api.Clip(id))))
	}
	c.action.about(all[i].Project, actions.TokenNamed(id))
	if err := c.authorize(all[i].Project); err != nil {
		return err
	}
	ended, err := c.Cloud.Access.Revoke(ctx, all[i].ID)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, ended)
}
