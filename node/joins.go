package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"

	"croft/etcdstore"
	"croft/hosts/audit"
	"croft/internal/endpoint"
	"croft/trust"
	"croft/trust/gate"
	"croft/trust/pki"
)

// startJoins runs the join server, if configured.
func (s *serving) startJoins(ctx context.Context, p *Parts, store *etcdstore.Store) error {
	if s.servers.Join() == "" {
		return store.Trust.PutJoinServer(ctx, s.host, trust.JoinServer{})
	}
	l, at, err := s.listenForHosts(ctx)
	if err != nil {
		return err
	}
	strict := s.settings.Trust == trust.Strict
	server := &trust.Server{Credentials: s.own, Store: store.Trust, Admission: s.admitted, Strict: strict, Log: s.log}
	is := trust.JoinServer{Addresses: []string{at}, Trust: s.joinMode()}
	mux := http.NewServeMux()
	mux.Handle("/", server.Handler())
	if strict {
		agents, err := s.startGate(ctx, p, store)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		mux.Handle(gate.Prefix, agents)
		is.Agents = is.Addresses
	}
	if err := store.Trust.PutJoinServer(ctx, s.host, is); err != nil {
		return errors.Join(err, l.Close())
	}
	s.serveHosts(ctx, p, l, mux)
	return nil
}

// listenForHosts listens at join.listen, and returns the address by which hosts reach it.
func (s *serving) listenForHosts(ctx context.Context) (l net.Listener, at string, err error) {
	if l, err = Listen(ctx, s.servers.Join(), "join.listen"); err != nil {
		return nil, "", err
	}
	return l, hostPort(endpoint.Outward("https://" + l.Addr().String())), nil
}

// serveHosts serves mux to hosts over TLS.
func (s *serving) serveHosts(ctx context.Context, p *Parts, l net.Listener, mux *http.ServeMux) {
	p.Self.Serves(mux, s.servers.Join())
	l, _ = s.own.Listener(l, true)
	p.Start(ctx, "the join server", func(ctx context.Context) error { return Serve(ctx, l, mux) })
}

// joinMode returns the service that joining hosts may reach: the gate, or an etcd that accepts certificates of the
// cloud's authority; empty: no host may join.
func (s *serving) joinMode() string {
	if s.settings.Trust == trust.Strict || s.own.Has(pki.Etcd) {
		return s.settings.Trust
	}
	return ""
}

// hostPort returns HOST:PORT of a URL.
func hostPort(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	return u.Host
}

// startOtherGate starts a gate on a host that serves etcd but on which the cloud was not created, if agents have no
// access to etcd, so that agents can continue when the first host is down.
func (s *serving) startOtherGate(ctx context.Context, p *Parts, store *etcdstore.Store) error {
	if s.own == nil {
		return nil
	}
	servers, err := store.Trust.JoinServers(ctx)
	if err != nil {
		return err
	}
	if !trust.AnyStrict(servers) || s.servers.Join() == "" {
		return store.Trust.PutJoinServer(ctx, s.host, trust.JoinServer{})
	}
	l, at, err := s.listenForHosts(ctx)
	if err != nil {
		return err
	}
	agents, err := s.startGate(ctx, p, store)
	if err == nil {
		err = store.Trust.PutJoinServer(ctx, s.host, trust.JoinServer{Agents: []string{at}})
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	mux.Handle(gate.Prefix, agents)
	s.serveHosts(ctx, p, l, mux)
	return nil
}

// startGate returns the handler that serves agents without access to etcd and Placement, and starts the caretaker
// of the records that those agents may not see.
func (s *serving) startGate(ctx context.Context, p *Parts, store *etcdstore.Store) (http.Handler, error) {
	claims, err := s.reach.Placement.Client()
	if err != nil {
		return nil, err
	}
	server, err := gate.NewServer(gate.ServerConfig{
		Caller: s.admitted.Agent, Orders: store.Orders, Registry: store.Registry, Records: store.Records,
		Volumes: store.Volumes, Backups: store.Backups, Images: store.Images, Inventory: claims,
		Usable: store.Usable,
		Gates:  func(ctx context.Context) ([]string, error) { return gatesOf(ctx, store) }, Log: s.log,
	})
	if err != nil {
		return nil, err
	}
	p.Start(ctx, "the gate", func(ctx context.Context) error {
		<-ctx.Done() // the join server, started later, has ended
		server.Wait()
		claims.Close()
		return nil
	})
	caretaker := &audit.Caretaker{
		Host: s.host, Records: store.Records, Shared: store.Turn, Inventory: claims, Every: s.settings.Sweep,
		Volumes: volumeRequests(store, claims, s.log), Resizes: resizes(store, claims, s.log),
		Images:   catalog(store, claims, s.log),
		Announce: expiryHook(s.settings.Expiry.Hook), Log: s.log,
	}
	p.Start(ctx, "the caretaker", caretaker.Run)
	return server, nil
}

// gatesOf lists the addresses where agents of this cloud are served.
func gatesOf(ctx context.Context, store *etcdstore.Store) (all []string, err error) {
	servers, err := store.Trust.JoinServers(ctx)
	for _, j := range servers {
		all = append(all, j.ServesAgents()...)
	}
	return all, err
}
