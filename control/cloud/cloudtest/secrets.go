package cloudtest

import (
	"context"

	"croft/control/cloud"
	"croft/etcdstore/etcdtest"
)

// noting registers the secrets that a cloud gives to the suite, so that dumps of etcd are searched for them.
func noting(f Fixture) Fixture {
	f.Cloud.Access, f.Cloud.Tokens = notedAccess{f.Cloud.Access}, notedTokens{f.Cloud.Tokens}
	return f
}

type notedAccess struct{ cloud.Access }

// Create implements cloud.Access.
func (a notedAccess) Create(ctx context.Context, wanted cloud.NewAccess) (cloud.AccessToken, error) {
	made, err := a.Access.Create(ctx, wanted)
	etcdtest.Issued(made.Secret)
	return made, err
}

type notedTokens struct{ cloud.Tokens }

// Invite implements cloud.Tokens.
func (n notedTokens) Invite(ctx context.Context, i cloud.Invitation) (cloud.Token, error) {
	made, err := n.Tokens.Invite(ctx, i)
	etcdtest.Issued(made.Secret)
	return made, err
}
