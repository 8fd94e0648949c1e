package client

import (
	"context"

	"croft"
	"croft/control/api"
	"croft/control/federation"
)

// peers implements cloud.Peers.
type peers struct{ *Client }

// Card implements cloud.Peers.
func (p peers) Card(ctx context.Context, name, at string) (federation.Card, error) {
	return p.GetCard(ctx, api.CardRequest{Name: name, Endpoint: at})
}

// RemovePeer implements cloud.Peers.
func (p peers) RemovePeer(ctx context.Context, idOrAlias string) (federation.Partition, error) {
	return p.Client.RemovePeer(ctx, api.PartitionNamed{ID: idOrAlias})
}

// Map implements cloud.Peers.
func (p peers) Map(ctx context.Context, m federation.Mapping) (federation.Mapping, error) {
	if err := m.Project.Check(); err != nil {
		return m, err
	}
	return p.SetMapping(ctx, api.NewMapping{ProjectNamed: api.ProjectNamed{Project: m.Project}, Peer: m.Peer,
		Theirs: m.Theirs, TheirsID: m.TheirsID, Role: m.Role})
}

// Unmap implements cloud.Peers.
func (p peers) Unmap(ctx context.Context, m federation.Mapping) error {
	if err := m.Project.Check(); err != nil {
		return err
	}
	return p.RemoveMapping(ctx, api.MappingNamed{ProjectNamed: api.ProjectNamed{Project: m.Project}, Peer: m.Peer,
		Theirs: m.Theirs})
}

// Mappings implements cloud.Peers.
func (p peers) Mappings(ctx context.Context, project croft.Project) ([]federation.Mapping, error) {
	if err := project.Check(); err != nil {
		return nil, err
	}
	list, err := p.ListMappings(ctx, api.ProjectNamed{Project: project})
	return list.Mappings, err
}

// Signers implements cloud.Peers.
func (p peers) Signers(ctx context.Context) ([]federation.Signer, error) {
	list, err := p.ListSigners(ctx)
	return list.Signers, err
}

// RetireSigner implements cloud.Peers.
func (p peers) RetireSigner(ctx context.Context, id string) error {
	return p.Client.RetireSigner(ctx, api.SignerNamed{ID: id})
}
