package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"croft"
	"croft/etcdstore"
	"croft/internal/endpoint"
	"croft/placementclient"
	"croft/trust/pki"
)

// follow keeps up with which hosts serve etcd and Placement, until ctx ends: what this
// process asks, and what its next start will, are the places of all of them.
func (h *host) follow(ctx context.Context, store *etcdstore.Store, of *membership) error {
	return store.WatchEtcdMembers(ctx, func(all []croft.EtcdMember) {
		next, changed := of.with(all, h.store.Partition())
		if !changed {
			return
		}
		of = next
		store.SetEndpoints(of.Etcd.Endpoints)
		if claims, ok := h.inventory.(*placementclient.Client); ok && !of.Etcd.Member && of.Placement.Endpoint != "" {
			claims.SetEndpoints(strings.Split(of.Placement.Endpoint, ","))
		}
		if err := errors.Join(of.write(h.dir.Path), h.tellLocally(of)); err != nil {
			h.log.Warn("which hosts serve this cloud is not kept, and the next start will not know of those that came", "host", h.id, "err", err)
			return
		}
		h.log.Info("etcd is served by", "host", h.id, "endpoints", of.Etcd.Endpoints)
	})
}

// tellLocally notes for commands on this machine where all are that serve.
func (h *host) tellLocally(of *membership) error {
	s := h.settings
	s.Etcd.Endpoints = of.Etcd.Endpoints
	if of.Placement.Endpoint != "" {
		s.Placement.Endpoint = of.Placement.Endpoint
	}
	return s.writeLocal(h.trust)
}

// with is what a host has joined once these serve, and whether that is another thing
// than before. Where only one serves, and none was joined, there is nothing to join.
func (j *membership) with(all []croft.EtcdMember, p croft.PartitionID) (*membership, bool) {
	var etcd, placement []string
	for _, m := range all {
		etcd = append(etcd, m.Clients...)
		if m.Placement != "" {
			placement = append(placement, m.Placement)
		}
	}
	if len(etcd) == 0 || j.Partition == "" && len(etcd) < 2 {
		return j, false
	}
	next := *j
	next.Partition, next.Etcd.Endpoints = p, etcd
	if next.Placement.Token != "" {
		next.Placement.Endpoint = strings.Join(placement, ",")
	}
	return &next, j.Partition == "" || !slices.Equal(next.Etcd.Endpoints, j.Etcd.Endpoints) || next.Placement.Endpoint != j.Placement.Endpoint
}

// founding is what the first host would have joined, had it not begun the cloud itself.
func (s *serving) founding() (*membership, error) {
	j := &membership{}
	j.Etcd.Member, j.Etcd.Insecure = true, s.settings.Etcd.Insecure
	if s.settings.servesPlacement() {
		j.Placement.Token = s.settings.Placement.Token
	}
	if listen := s.settings.controlListen(); s.trust.has(pki.Etcd) && listen != "" {
		j.Control = []string{endpoint.Outside(listen)}
	}
	var err error
	j.Etcd.CA, err = s.settings.Etcd.Authority()
	return j, err
}
