package client

import (
	"context"
	"net/http"

	"croft"
	"croft/control/api"
	"croft/control/federation"
)

// peers implements cloud.Peers.
type peers struct{ *Client }

// Card implements cloud.Peers.
func (p peers) Card(ctx context.Context, name, at string) (c federation.Card, err error) {
	return c, p.ask(ctx, http.MethodGet, path("", []string{"v1", "card"}, "name", name, "endpoint", at), nil, &c)
}

// AddPeer implements cloud.Peers.
func (p peers) AddPeer(ctx context.Context, n federation.NewPeer) (added federation.Partition, err error) {
	return added, p.ask(ctx, http.MethodPost, "/v1/peers", n, &added)
}

// RemovePeer implements cloud.Peers.
func (p peers) RemovePeer(ctx context.Context, idOrAlias string) (was federation.Partition, err error) {
	return was, p.ask(ctx, http.MethodDelete, path("", []string{"v1", "peers", idOrAlias}), nil, &was)
}

// ofProject returns the path of a project's mappings. Invalid.
func ofProject(project croft.Project, more ...string) (string, error) {
	if err := project.Check(); err != nil {
		return "", err
	}
	return path("", append([]string{"v1", "projects", string(project), "mappings"}, more...)), nil
}

// Map implements cloud.Peers.
func (p peers) Map(ctx context.Context, m federation.Mapping) (set federation.Mapping, err error) {
	at, err := ofProject(m.Project)
	if err == nil {
		err = p.ask(ctx, http.MethodPost, at,
			api.NewMapping{Peer: m.Peer, Theirs: m.Theirs, TheirsID: m.TheirsID, Role: m.Role}, &set)
	}
	return set, err
}

// Unmap implements cloud.Peers.
func (p peers) Unmap(ctx context.Context, m federation.Mapping) error {
	at, err := ofProject(m.Project, string(m.Peer), string(m.Theirs))
	if err == nil {
		err = p.ask(ctx, http.MethodDelete, at, nil, nil)
	}
	return err
}

// Mappings implements cloud.Peers.
func (p peers) Mappings(ctx context.Context, project croft.Project) ([]federation.Mapping, error) {
	at, err := ofProject(project)
	if err != nil {
		return nil, err
	}
	var list api.MappingList
	err = p.ask(ctx, http.MethodGet, at, nil, &list)
	return list.Mappings, err
}

// Signers implements cloud.Peers.
func (p peers) Signers(ctx context.Context) ([]federation.Signer, error) {
	var list api.SignerList
	err := p.ask(ctx, http.MethodGet, "/v1/signers", nil, &list)
	return list.Signers, err
}

// RetireSigner implements cloud.Peers.
func (p peers) RetireSigner(ctx context.Context, id string) error {
	return p.ask(ctx, http.MethodDelete, path("", []string{"v1", "signers", id}), nil, nil)
}
