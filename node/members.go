package node

import (
	"context"
	"errors"
	"strings"

	"croft"
	"croft/etcdstore"
	"croft/internal/endpoint"
	"croft/placementclient"
	"croft/trust"
	"croft/trust/pki"
)

// follow watches which hosts serve etcd and Placement until ctx ends. This process uses all of them, and so does
// its next start.
func (h *host) follow(ctx context.Context, store *etcdstore.Store, of *trust.Membership) error {
	return store.Cluster.WatchEtcdMembers(ctx, func(all []croft.EtcdMember) {
		next, changed := of.With(all, h.store.Partition())
		if !changed {
			return
		}
		of = next
		store.Cluster.SetEndpoints(of.Etcd.Endpoints)
		if claims, ok := h.inventory.(*placementclient.Client); ok && !of.Etcd.Member && of.Placement.Endpoint != "" {
			claims.SetEndpoints(strings.Split(of.Placement.Endpoint, ","))
		}
		if err := errors.Join(of.Write(h.dir.Path), h.noteLocally(of)); err != nil {
			h.log.Warn("the list of hosts that serve this cloud is not stored: the next start will not know the new ones",
				"host", h.id, "err", err)
			return
		}
		h.log.Info("etcd is served by", "host", h.id, "endpoints", of.Etcd.Endpoints)
	})
}

// noteLocally notes for commands on this machine which hosts serve.
func (h *host) noteLocally(of *trust.Membership) error {
	r := h.reach
	r.Etcd.Endpoints = of.Etcd.Endpoints
	if of.Placement.Endpoint != "" {
		r.Placement.Endpoint = of.Placement.Endpoint
	}
	return writeLocal(h.dir.Path, r, h.trust)
}

// founding returns the membership of the host on which the cloud was created.
func (s *serving) founding() (*trust.Membership, error) {
	j := &trust.Membership{}
	j.Etcd.Member, j.Etcd.Insecure = true, s.settings.Etcd.Insecure
	if s.settings.ServesPlacement() {
		j.Placement.Token = s.reach.Placement.Token
	}
	if listen := s.servers.Join(); s.own.Has(pki.Etcd) && listen != "" {
		j.Servers = []string{endpoint.Outside(listen)}
	}
	var err error
	j.Etcd.CA, err = s.reach.Etcd.Authority()
	return j, err
}
