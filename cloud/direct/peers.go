package direct

import (
	"context"
	"time"

	"croft/cloud"
	"croft/control/actions"
	"croft/control/federation"
)

// recordedPeers records changes of peers, and of the projects that peers may use here.
type recordedPeers struct {
	cloud.Peers
	journal *journal
}

func aboutPartition(name string) actions.Object {
	return actions.Object{Kind: "partition", Name: name}
}

// AddPeer implements cloud.Peers.
func (p recordedPeers) AddPeer(ctx context.Context, n federation.NewPeer) (federation.Partition, error) {
	began := time.Now()
	added, err := p.Peers.AddPeer(ctx, n)
	o := aboutPartition(added.Alias)
	o.ID = string(n.Card.Partition)
	p.journal.tell(ctx, began, "addPeer", "", o, err)
	return added, err
}

// RemovePeer implements cloud.Peers.
func (p recordedPeers) RemovePeer(ctx context.Context, idOrAlias string) (federation.Partition, error) {
	began := time.Now()
	was, err := p.Peers.RemovePeer(ctx, idOrAlias)
	p.journal.tell(ctx, began, "removePeer", "", aboutPartition(idOrAlias), err)
	return was, err
}

// Map implements cloud.Peers.
func (p recordedPeers) Map(ctx context.Context, m federation.Mapping) (federation.Mapping, error) {
	began := time.Now()
	set, err := p.Peers.Map(ctx, m)
	p.journal.tell(ctx, began, "setMapping", m.Project, aboutProject(m.Project), err)
	return set, err
}

// Unmap implements cloud.Peers.
func (p recordedPeers) Unmap(ctx context.Context, m federation.Mapping) error {
	began := time.Now()
	err := p.Peers.Unmap(ctx, m)
	p.journal.tell(ctx, began, "removeMapping", m.Project, aboutProject(m.Project), err)
	return err
}

// RetireSigner implements cloud.Peers.
func (p recordedPeers) RetireSigner(ctx context.Context, id string) error {
	began := time.Now()
	err := p.Peers.RetireSigner(ctx, id)
	p.journal.tell(ctx, began, "retireSigner", "", actions.Object{Kind: "partition", Name: id}, err)
	return err
}

var _ cloud.Peers = recordedPeers{}
