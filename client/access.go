package client

import (
	"context"

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
	return a.CreateToken(ctx, api.NewToken{InProject: api.InProject{Project: wanted.Project}, User: wanted.User,
		Role: wanted.Role, Note: wanted.Note, Life: wording.ForPrograms(wanted.Life)})
}

// List implements cloud.Access.
func (a accessTokens) List(ctx context.Context, project croft.Project) ([]cloud.AccessToken, error) {
	list, err := a.ListTokens(ctx, api.InProject{Project: project})
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
	return a.RevokeToken(ctx, api.TokenNamed{ID: string(id)})
}
