package client

import (
	"context"
	"net/http"

	"croft"
	"croft/control/api"
	"croft/control/cloud"
	"croft/internal/wording"
	"croft/tenant/access"
)

// accessTokens implements cloud.Access.
type accessTokens struct{ *Client }

// Create implements cloud.Access. The cloud determines who created the token.
func (a accessTokens) Create(ctx context.Context, wanted cloud.NewAccess) (made cloud.AccessToken, err error) {
	if wanted.Project != "" {
		if err := wanted.Project.Check(); err != nil {
			return made, err
		}
	}
	return made, a.ask(ctx, http.MethodPost, path(wanted.Project, []string{"v1", "tokens"}),
		api.NewToken{User: wanted.User, Role: wanted.Role, Note: wanted.Note, Life: wording.ForPrograms(wanted.Life)},
		&made)
}

// List implements cloud.Access.
func (a accessTokens) List(ctx context.Context, project croft.Project) ([]cloud.AccessToken, error) {
	var list api.TokenList
	err := a.ask(ctx, http.MethodGet, path(project, []string{"v1", "tokens"}), nil, &list)
	if len(list.Tokens) == 0 {
		return nil, err
	}
	return list.Tokens, err
}

// Revoke implements cloud.Access.
func (a accessTokens) Revoke(ctx context.Context, id access.TokenID) (ended cloud.AccessToken, err error) {
	if id.Check() != nil {
		return ended, croft.Errorf(croft.NotFound, "there is no token %.40q", string(id))
	}
	return ended, a.ask(ctx, http.MethodDelete, path("", []string{"v1", "tokens", string(id)}), nil, &ended)
}
