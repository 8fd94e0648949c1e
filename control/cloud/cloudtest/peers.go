package cloudtest

import (
	"croft"
	"croft/control/api"
	"croft/control/federation"
	"croft/tenant/access"
)

// neighbour is the card of another cloud.
var neighbour = federation.Card{Format: federation.CardFormat, Partition: "33333333-3333-4333-8333-333333333333",
	Name: "south", Endpoint: "https://south.example:8781",
	Keys: []federation.PublicKey{"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}

func peersAreKept(s *suite) {
	p := s.Cloud.Peers
	_, err := p.Card(s.ctx, "a b", "")
	s.is(err, croft.Invalid, "a card under a name that is none")
	_, err = p.AddPeer(s.ctx, federation.NewPeer{Card: neighbour})
	s.is(err, croft.Invalid, "a peer without roles")
	_, err = p.AddPeer(s.ctx, federation.NewPeer{Card: neighbour, Alias: "home", Roles: federation.PeerRoles})
	s.is(err, croft.Invalid, "a peer with the alias of home")
	added, err := p.AddPeer(s.ctx, federation.NewPeer{Card: neighbour, Roles: []access.Role{access.Member}})
	s.must(err)
	found, err := s.Cloud.Partitions.Find(s.ctx, "south")
	s.must(err)
	if added.Alias != "south" || found.Peer == nil || found.Peer.Endpoint != neighbour.Endpoint ||
		found.Imported != nil {
		s.Errorf("added %+v, found %+v", added, found)
	}
	s.project("mapped", "")
	m := federation.Mapping{Project: "mapped", Peer: "south", Theirs: "web", Role: access.Member}
	set, err := p.Map(s.ctx, m)
	if err != nil || set.Peer != neighbour.Partition || set.Alias != "south" {
		s.Errorf("mapped %+v, %v", set, err)
	}
	all, err := p.Mappings(s.ctx, "mapped")
	if err != nil || len(all) != 1 || all[0] != set {
		s.Errorf("the mappings are %+v, %v", all, err)
	}
	other := m
	other.Peer = "north"
	_, err = p.Map(s.ctx, other)
	s.is(err, croft.NotFound, "a project of an unknown peer")
	s.must(p.Unmap(s.ctx, m))
	s.is(p.Unmap(s.ctx, m), croft.NotFound, "a mapping that is gone")
	if keys, err := p.Signers(s.ctx); err != nil || len(keys) != 0 {
		s.Errorf("the keys are %+v, %v", keys, err)
	}
	s.is(p.RetireSigner(s.ctx, "0123456789abcdef"), croft.NotFound, "an unknown key")
	was, err := p.RemovePeer(s.ctx, "south")
	if err != nil || was.ID != neighbour.Partition {
		s.Errorf("removed %+v, %v", was, err)
	}
	_, err = p.RemovePeer(s.ctx, "south")
	s.is(err, croft.NotFound, "the removal of a peer that was removed")
	_, err = s.Cloud.Partitions.Find(s.ctx, "south")
	s.is(err, croft.NotFound, "a partition that was a peer alone")
	s.must(s.Client.RemoveProject(s.ctx, api.ProjectNamed{Project: "mapped"}))
}
