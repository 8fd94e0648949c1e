package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"croft"
	"croft/compute"
	"croft/control/cloud/direct"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/internal/endpoint"
	"croft/node/settings"
	"croft/placement"
	"croft/placementclient/keystone"
)

// OwnEtcd is an etcd embedded in a part of the cloud: its data is below Dir, and others reach it at Listen.
type OwnEtcd struct{ Dir, Listen string }

// RunPlacement serves until ctx ends or a part fails. own is nil if the settings name an etcd.
func RunPlacement(ctx context.Context, s settings.Settings, own *OwnEtcd, log *slog.Logger, ready func()) (err error) {
	reach, servers := s.Reach(nil), s.Servers(nil).WithoutAuthority()
	err = errors.Join(prepareOwnPlacement(&s, &reach), checkToken(servers.Placement, reach.Placement.Token))
	if err != nil {
		return err // before an etcd is created
	}
	me, err := NewSelf(ctx, &s, "croft-placement", log)
	defer me.End()
	if err != nil {
		return err
	}
	p := NewParts()
	p.Self = me
	config, err := s.Etcd.Config(os.Getenv)
	if own != nil {
		servers.Etcd = own.Listen
		p.Start(ctx, "the pace of the collector", PaceCollector)
		var etcd *etcdserver.Server
		if etcd, config, err = StartEtcd(ctx, &s, servers, etcdserver.Config{Dir: filepath.Join(own.Dir, "etcd"),
			Log: log}, nil); err == nil {
			defer etcd.Close()
			me.ofEtcd(etcd)
			p.Start(ctx, "the embedded etcd", etcd.Wait)
		}
	}
	if err != nil {
		return err
	}
	config.Mint = true
	store, err := etcdstore.Open(ctx, config)
	if err != nil {
		return errors.Join(err, p.End())
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	defer func() { err = errors.Join(err, p.End()) }()
	me.OfStore(store)
	me.OfCloud(ctx, p, store)
	txnOps, err := store.MaxTxnOps(ctx)
	if err != nil {
		return err
	}
	serving := serving{settings: &s, servers: servers, reach: reach, log: log}
	if err := serving.startPlacement(ctx, p, store, txnOps); err != nil {
		return err
	}
	log.Info("serving the Placement API", "endpoint", serving.reach.Placement.Endpoint)
	ready()
	return p.Wait(ctx)
}

// startPlacement serves croft's own Placement, and sets its endpoint.
func (s *serving) startPlacement(ctx context.Context, p *Parts, store *etcdstore.Store, txnOps int) error {
	listen, token := s.servers.Placement, s.reach.Placement.Token
	guard, end, err := openKeystone(s.settings.Placement.Keystone)
	if err != nil {
		return err
	}
	c := s.settings.ForPlacement()
	c.Store, c.Partition, c.Log, c.Traces = store.Placement(txnOps), store.Partition(), s.log, p.Self.traces
	c.Token, c.Keystone = token, guard
	server, err := placement.New(c)
	if err != nil {
		return err
	}
	l, err := Listen(ctx, listen, "placement.listen")
	if err != nil {
		return err
	}
	p.Self.Counts(server)
	p.Self.Checks.Add("placement", func(context.Context) error { return server.Ready() })
	handler := server.Handler()
	l, scheme := s.own.Listener(l, s.servers.Secured(listen))
	if s.admitted != nil {
		handler = s.admitted.Guard(token, handler)
	}
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.Handle("GET /metrics", p.Self.metricsAt(listen))
	p.Start(ctx, "Placement's state", server.Run)
	names := s.settings.ServedNames(s.reach.Placement.Endpoint)
	p.Start(ctx, "Placement", func(ctx context.Context) error {
		defer end()
		return Serve(ctx, l, CalledAt(names, listen, mux))
	})
	s.placement, s.reach.Placement.Endpoint = server, fmt.Sprintf("%s://%s", scheme, l.Addr())
	return nil
}

// preparePlacement checks the access to Placement, or the settings of our own.
func preparePlacement(s *settings.Settings, v settings.Servers, r *settings.Reach) error {
	if !s.ServesPlacement() {
		return r.Placement.Check()
	}
	if !v.Secured(v.Placement) {
		if err := checkToken(v.Placement, r.Placement.Token); err != nil {
			return err
		}
	}
	return prepareOwnPlacement(s, r)
}

// ownToken gives a Placement that asks for certificates a secret token, unless one is configured. The token never
// changes.
func ownToken(s *settings.Settings, v settings.Servers, r *settings.Reach, dir *compute.StateDir) (err error) {
	if r.Placement.Token == direct.DefaultToken && s.ServesPlacement() && v.Secured(v.Placement) {
		r.Placement.Token, err = dir.Secret("placement-token", newToken)
	}
	return err
}

// checkToken restricts the well-known default token to the loopback interface.
func checkToken(address, token string) error {
	if token == direct.DefaultToken && !endpoint.IsLoopback(address) {
		return croft.Errorf(croft.Invalid,
			"placement.listen: %s can be reached from other machines and placement.token is the well-known default; set another token", address)
	}
	return nil
}

// prepareOwnPlacement checks the settings of our own Placement. If it accepts only tokens of Keystone, this process
// uses a generated token that no other process knows.
func prepareOwnPlacement(s *settings.Settings, r *settings.Reach) error {
	if s.Placement.Keystone.Only {
		r.Placement.Token = newToken()
	}
	_, err := loadKeystone(s.Placement.Keystone)
	return err
}

// loadKeystone reads the cloud; nil: none is configured.
func loadKeystone(s settings.Keystone) (*keystone.Cloud, error) {
	if s.Cloud == "" {
		return nil, nil
	}
	cloud, err := keystone.Load(s.Cloud)
	if err != nil {
		return nil, fmt.Errorf("placement.keystone.cloud: %w", err)
	}
	return cloud, nil
}

// openKeystone returns the verifier of Keystone tokens for our own Placement; nil: none is configured.
func openKeystone(s settings.Keystone) (k *placement.Keystone, end func(), err error) {
	cloud, err := loadKeystone(s)
	if cloud == nil {
		return nil, func() {}, err
	}
	tokens := keystone.NewTokens(cloud)
	return &placement.Keystone{Identity: tokens, URL: cloud.URL(), ReaderProjects: s.ReaderProjects}, tokens.Close, nil
}
