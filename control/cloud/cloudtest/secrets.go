package cloudtest

import (
	"croft/control/api"
	"croft/etcdstore/etcdtest"
)

// createToken creates an access token, and registers its secret, so that dumps of etcd are searched for it.
func (s *suite) createToken(in api.NewToken) (api.AccessToken, error) {
	made, err := s.Client.CreateToken(s.ctx, in)
	etcdtest.Issued(made.Secret)
	return made, err
}

// invite creates a join token that holds the addresses in use, and registers its secret.
func (s *suite) invite(in api.NewInvitation) (api.Invitation, error) {
	in.Life, in.SameEtcd, in.SamePlacement = "1h", true, true // only this machine reaches the cloud
	made, err := s.Client.CreateInvitation(s.ctx, in)
	etcdtest.Issued(made.Token)
	return made, err
}
