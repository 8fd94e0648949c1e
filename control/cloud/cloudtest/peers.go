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
	c := s.Client
	_, err := c.GetCard(s.ctx, api.CardRequest{Name: "a b"})
	s.is(err, croft.Invalid, "a card under a name that is none")
	_, err = c.AddPeer(s.ctx, federation.NewPeer{Card: neighbour})
	s.is(err, croft.Invalid, "a peer without roles")
	_, err = c.AddPeer(s.ctx, federation.NewPeer{Card: neighbour, Alias: "home", Roles: federation.PeerRoles})
	s.is(err, croft.Invalid, "a peer with the alias of home")
	added, err := c.AddPeer(s.ctx, federation.NewPeer{Card: neighbour, Roles: []access.Role{access.Member}})
	s.must(err)
	found, err := c.GetPartition(s.ctx, api.PartitionNamed{ID: "south"})
	s.must(err)
	if added.Alias != "south" || found.Peer == nil || found.Peer.Endpoint != neighbour.Endpoint ||
		found.Imported != nil {
		s.Errorf("added %+v, found %+v", added, found)
	}
	s.project("mapped", "")
	mapped := api.ProjectNamed{Project: "mapped"}
	m := api.NewMapping{ProjectNamed: mapped, Peer: "south", Theirs: "web", Role: access.Member}
	set, err := c.SetMapping(s.ctx, m)
	if err != nil || set.Peer != neighbour.Partition || set.Alias != "south" {
		s.Errorf("mapped %+v, %v", set, err)
	}
	if all, err := c.ListMappings(s.ctx, mapped); err != nil || len(all.Mappings) != 1 || all.Mappings[0] != set {
		s.Errorf("the mappings are %+v, %v", all, err)
	}
	other := m
	other.Peer = "north"
	_, err = c.SetMapping(s.ctx, other)
	s.is(err, croft.NotFound, "a project of an unknown peer")
	gone := api.MappingNamed{ProjectNamed: mapped, Peer: "south", Theirs: "web"}
	s.must(c.RemoveMapping(s.ctx, gone))
	s.is(c.RemoveMapping(s.ctx, gone), croft.NotFound, "a mapping that is gone")
	if keys, err := c.ListSigners(s.ctx); err != nil || len(keys.Signers) != 0 {
		s.Errorf("the keys are %+v, %v", keys, err)
	}
	s.is(c.RetireSigner(s.ctx, api.SignerNamed{ID: "0123456789abcdef"}), croft.NotFound, "an unknown key")
	was, err := c.RemovePeer(s.ctx, api.PartitionNamed{ID: "south"})
	if err != nil || was.ID != neighbour.Partition {
		s.Errorf("removed %+v, %v", was, err)
	}
	_, err = c.RemovePeer(s.ctx, api.PartitionNamed{ID: "south"})
	s.is(err, croft.NotFound, "the removal of a peer that was removed")
	_, err = c.GetPartition(s.ctx, api.PartitionNamed{ID: "south"})
	s.is(err, croft.NotFound, "a partition that was a peer alone")
	s.must(c.RemoveProject(s.ctx, mapped))
}
