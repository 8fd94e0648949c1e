package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"croft"
	"croft/compute/image"
	"croft/control"
	"croft/control/actions"
	"croft/control/api"
	services "croft/control/cloud"
	"croft/control/cloud/direct"
	"croft/control/page"
	"croft/etcdstore"
	"croft/etcdstore/tenants"
	"croft/hosts"
	"croft/internal/build"
	"croft/internal/delay"
	"croft/internal/httpapi"
	"croft/node/settings"
	"croft/placement"
	"croft/placementclient/keystone"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/access/oidc"
	"croft/tenant/objects"
	"croft/tenant/usage"
	"croft/trust"
)

// RunControl runs only the API of the cloud, until ctx ends or a part fails. Any number of such processes may serve at
// the same time.
func RunControl(ctx context.Context, s settings.Settings, reach settings.Reach, log *slog.Logger,
	ready func()) (err error) {
	if s.CloudAPI.Listen == "" {
		return croft.Errorf(croft.Invalid, "cloud_api.listen is empty: say where to serve, such as 127.0.0.1:8781")
	}
	me, err := NewSelf(ctx, &s, "croft-control", log)
	defer me.End()
	if err != nil {
		return err
	}
	own, err := CredentialsOnDisk(&s)
	if err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	store, err := reach.Etcd.Open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	p := NewParts()
	p.Self = me
	defer func() { err = errors.Join(err, p.End()) }()
	me.OfStore(store)
	p.Start(ctx, "the pace of the collector", PaceCollector)
	var admitted *trust.Admission
	if own != nil {
		admitted = admission(own, store)
	}
	endpoint, err := startControl(ctx, p, &s, underControl{store: store, servers: s.Servers(reach.Joined), reach: reach,
		own: own, admitted: admitted}, log)
	if err != nil {
		return err
	}
	log.Info("serving the API of the cloud", "endpoint", endpoint)
	ready()
	return p.Wait(ctx)
}

// underControl is the cloud that the API serves.
type underControl struct {
	store     *etcdstore.Store
	placement *placement.Server // of this process; nil: it has none
	servers   settings.Servers
	reach     settings.Reach
	own       *trust.Credentials // nil: this host has none
	admitted  *trust.Admission   // nil: hosts have no certificates
	first     bool               // the cloud was created on this machine
}

// startControl serves the API of the cloud and returns its endpoint.
func startControl(ctx context.Context, p *Parts, s *settings.Settings, c underControl, log *slog.Logger) (at string,
	err error) {
	store, v := c.store, c.servers
	l, scheme, err := listenControl(ctx, s, v, c.own)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	claims, err := c.reach.Placement.Client()
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			claims.Close()
		}
	}()
	tokens := access.NewBearer(store.AccessTokens.NewFeed(), store.Partition(), nil)
	callers := []access.Authenticator{tokens, access.Socket{Partition: store.Partition()}}
	recorder := actions.NewRecorder(store.Actions, log)
	tree, peers := store.Projects.NewLive(), newPeering(s, store, scheme+"://"+l.Addr().String(), log, recorder)
	callers = append(callers, peers.callers())
	issuer, err := newIssuer(s, store.Partition(), tree)
	if err != nil {
		return "", err
	}
	if issuer != nil {
		callers = append(callers, issuer)
	}
	more, end, err := otherCallers(s, store.Partition(), tree)
	if err != nil {
		return "", err
	}
	callers = append(callers, more...)
	if c.admitted != nil {
		callers = append(callers, access.Certificates{Partition: store.Partition(), Admit: c.admitted.Caller})
	}
	view, own := store.NewHostsView(), &direct.Own{}
	sender, err := actions.NewSender(s.CloudAPI.ActionsTo, log)
	if err != nil {
		return "", err
	}
	if sender != nil {
		recorder.Emit(sender.Send)
	}
	manager, err := managerOfPools(ctx, p, s, store)
	if err != nil {
		return "", err
	}
	builder, err := newBuilding(s, c.first, log)
	if err != nil {
		return "", err
	}
	server, made, err := newControl(s, c, claims, direct.Scheduling{Hosts: view, Own: own, Clusters: builder.Clusters},
		control.Config{Pools: manager, Peers: peers.forwards(), Callers: access.InTree(tree, access.First(callers...)),
			Actions: recorder, Log: log})
	if err != nil {
		return "", err
	}
	p.Start(ctx, "the action log", recorder.Run) // ends after all parts that write to it
	p.Self.Counts(server)
	p.Self.Checks.Add("api", func(context.Context) error { return server.Ready() })
	look, err := page.New(page.Config{API: server.Handler(), Sessions: store.PageSessions, Log: log,
		Address: scheme + "://" + reachable(l.Addr().String()), Issuer: issuer, Public: s.CloudAPI.Address})
	if err != nil {
		return "", err
	}
	server.Page = look
	if err := serveLocally(ctx, p, v.Socket(), s.CloudAPI.Socket != "", server.Handler(), log); err != nil {
		return "", err
	}
	mux := http.NewServeMux()
	mux.Handle("/", server.Handler())
	for _, path := range []string{"GET /{$}", page.Root, page.Root + "/"} {
		mux.Handle(path, look.Handler())
	}
	p.Self.ServesTenants(mux)
	p.Start(ctx, "the tokens of the API", tokens.Run)
	peers.start(ctx, p)
	p.Start(ctx, "the project default", func(ctx context.Context) error {
		keepDefault(ctx, store.Projects, log)
		<-ctx.Done()
		return nil
	})
	p.Start(ctx, "what projects use", store.Projects.Settle)
	p.Start(ctx, "the history of usage", usage.Recorder{Name: uuid.NewString(), Store: store.Usage, Log: log}.Run)
	p.Start(ctx, "the history of what the hosts offer", usage.Surveyor{Store: store.Usage, Offered: made.Fleet.Offered,
		Log: log}.Run)
	p.Start(ctx, "the tree of projects", tree.Run)
	p.Start(ctx, "the changes that the API tells", server.Run)
	p.Start(ctx, "the copy of the hosts", view.Run)
	p.Start(ctx, "the watch of the hosts", (&hosts.Watcher{Fleet: made.Fleet, Log: log}).Run)
	if c.placement != nil {
		own.Use(store, c.placement)
	} else {
		p.Start(ctx, "the state of Placement", func(ctx context.Context) error {
			return followPlacement(ctx, store, claims, own, log)
		})
	}
	if err := builder.start(ctx, p); err != nil {
		return "", err
	}
	if builder.seals { // it opens the access to stores
		p.Self.Counts(made.Backups)
		p.Start(ctx, "the manager of backups", made.Backups.Run)
	}
	p.Start(ctx, "the API", func(ctx context.Context) error {
		defer claims.Close()
		defer end()
		defer server.Close()
		return Serve(ctx, l, CalledAt(s.ServedNames(""), v.CloudAPI, httpapi.ExactPaths(mux, server.Handler())))
	})
	return scheme + "://" + l.Addr().String(), nil
}

// reachable returns an address at which this machine reaches a listener, which may listen on all addresses.
func reachable(at string) string {
	host, port, err := net.SplitHostPort(at)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return at
}

// keepDefault creates the project default, which belongs to the operators: it has no limits and no parent.
func keepDefault(ctx context.Context, projects *tenants.Projects, log *slog.Logger) {
	mine := tenant.Tenant{Name: croft.DefaultProject, Note: "of the operators", Limits: tenant.NoLimits(),
		Created: time.Now().UTC()}
	for {
		all, err := projects.List(ctx, access.Within(mine.Name))
		if err == nil && len(all) == 0 {
			_, err = projects.Create(ctx, mine)
		}
		switch {
		case err == nil && len(all) > 0 && all[0].Parent != "":
			log.Warn("the project default is below another project, whose admins control everything that operators "+
				"create without naming a project: remove it, and restart croft", "above", all[0].Parent)
			return
		case err == nil || croft.KindOf(err) == croft.Conflict || delay.For(ctx, placementAsk) != nil:
			return
		}
	}
}

// newIssuer returns the OpenID Connect issuer in the settings; nil: they have none.
func newIssuer(s *settings.Settings, partition croft.PartitionID, members access.Members) (*oidc.Issuer, error) {
	if s.CloudAPI.OIDC.Issuer == "" {
		return nil, nil
	}
	c, err := s.CloudAPI.OIDC.Config(partition)
	if err != nil {
		return nil, err
	}
	c.Members = members
	return oidc.New(c)
}

// otherCallers authenticates the users of a Keystone, if the settings have one.
func otherCallers(s *settings.Settings, partition croft.PartitionID, members access.Members) (
	all []access.Authenticator, end func(), err error) {
	end = func() {}
	if s.CloudAPI.Keystone.Cloud == "" {
		return all, end, nil
	}
	c, err := s.CloudAPI.Keystone.Config(partition)
	if err != nil {
		return nil, end, err
	}
	cloud, err := keystone.Load(s.CloudAPI.Keystone.Cloud)
	if err != nil {
		return nil, end, fmt.Errorf("cloud_api.keystone.cloud: %w", err)
	}
	tokens := keystone.NewTokens(cloud)
	c.Members = members
	c.Validate = func(ctx context.Context, token string) (access.KeystoneUser, error) {
		who, err := tokens.Validate(ctx, token)
		return access.KeystoneUser(who), err
	}
	known, err := access.NewKeystone(c)
	return append(all, known), tokens.Close, err
}

// serveLocally serves the API on a Unix socket, for the operators of this machine. If another process listens on the
// socket, it does nothing: several servers may run on one machine. If the socket cannot be created, that is an error
// only if the settings name the socket.
func serveLocally(ctx context.Context, p *Parts, path string, chosen bool, h http.Handler, log *slog.Logger) error {
	if path == "" {
		return nil
	}
	l, err := access.ListenLocal(path)
	if errors.Is(err, croft.Conflict) || err != nil && !chosen {
		log.Warn("the API is not served on the local socket", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	p.Start(ctx, "the local socket of the API", func(ctx context.Context) error { return Serve(ctx, limited(l), h) })
	return nil
}

// placementAsk is the interval at which Placement is asked for its partition, until it answers.
const placementAsk = 2 * time.Second

// followPlacement keeps the state of croft's own Placement in memory until ctx ends, if the cloud uses that Placement
// and its state is in our etcd.
func followPlacement(ctx context.Context, store *etcdstore.Store, claims direct.Claims, own *direct.Own,
	log *slog.Logger) error {
	ours, ops, err := isOurs(ctx, store, claims)
	for ; err != nil && delay.For(ctx, placementAsk) == nil; ours, ops, err = isOurs(ctx, store, claims) {
		log.Warn("it is not known yet whose Placement this is; requests are scheduled in three steps", "err", err)
	}
	if err != nil || !ours {
		<-ctx.Done()
		return ctx.Err()
	}
	server, err := placement.New(placement.Config{Store: store.Placement(ops), Log: log})
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		if server.WaitReady(ctx) == nil {
			own.Use(store, server)
		}
	})
	return server.Run(ctx)
}

// isOurs reports whether a Placement keeps its state in our etcd, and the maximum number of operations in a transaction
// there.
func isOurs(ctx context.Context, store *etcdstore.Store, claims direct.Claims) (ours bool, ops int, err error) {
	partition, err := claims.Home(ctx)
	if err != nil || partition != store.Partition() {
		return false, 0, err
	}
	ops, err = store.MaxTxnOps(ctx)
	return err == nil, ops, err
}

// newControl creates the server, and returns the fleet that it serves. It completes config with the values that depend
// on the cloud.
func newControl(s *settings.Settings, c underControl, claims direct.Claims, how direct.Scheduling,
	config control.Config) (*control.Server, *services.Cloud, error) {
	store := c.store
	sources, err := image.ParseSources(s.CloudAPI.ImageSources)
	if err != nil {
		return nil, nil, err
	}
	files := image.MachineFiles()
	catalog := direct.Catalog{Files: files, Sources: sources, Resolve: image.Finder(files)}
	how.Clusters.Images = catalog
	under, err := direct.Over(store, claims, direct.Settings{Etcd: c.reach.Etcd, Placement: c.reach.Placement}, how)
	if err != nil {
		return nil, nil, err
	}
	var login *api.Login
	if issuer := s.CloudAPI.OIDC; issuer.Issuer != "" {
		login = &api.Login{Issuer: issuer.Issuer, Client: issuer.Audience}
	}
	config.Cloud, config.Login, config.Objects, config.Version = under, login, objects.New(store.Objects), build.Version
	config.Images = catalog
	if config.Reserved, err = settings.GrantedProjects(s.CloudAPI.OIDC, s.CloudAPI.Keystone); err != nil {
		return nil, nil, err
	}
	server, err := control.New(config)
	return server, under, err
}

// listenControl opens the address of the API. For other machines it uses TLS, with the configured certificate or else
// one of the cloud's authority. Invalid: there is no certificate, so tokens would cross the network unencrypted.
func listenControl(ctx context.Context, s *settings.Settings, v settings.Servers,
	own *trust.Credentials) (net.Listener, string, error) {
	l, err := Listen(ctx, v.CloudAPI, "cloud_api.listen")
	if err != nil {
		return nil, "", err
	}
	set := s.CloudAPI
	if set.Cert != "" {
		pair := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { // per connection, so that it can be renewed
			one, err := tls.LoadX509KeyPair(set.Cert, set.Key)
			return &one, err
		}
		if _, err := pair(nil); err != nil {
			return nil, "", errors.Join(croft.Errorf(croft.Invalid, "cloud_api.cert and key: %w", err), l.Close())
		}
		return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair,
			NextProtos: []string{"h2", "http/1.1"}}), "https", nil
	}
	secure, scheme := own.Listener(l, v.Beyond(v.CloudAPI))
	if scheme == "http" && v.Beyond(v.CloudAPI) {
		err := croft.Errorf(croft.Invalid, "cloud_api.listen: %s can be reached from other machines, and there is no "+
			"certificate, so tokens would be sent unencrypted: set cloud_api.cert and cloud_api.key", v.CloudAPI)
		return nil, "", errors.Join(err, l.Close())
	}
	return secure, scheme, nil
}

// offerControl is startControl for a process whose main purpose is not the API: if the default address is in use, the
// process starts without the API.
func offerControl(ctx context.Context, p *Parts, s *settings.Settings, c underControl, log *slog.Logger) error {
	if c.servers.CloudAPI == "" {
		return nil
	}
	endpoint, err := startControl(ctx, p, s, c, log)
	if errors.Is(err, croft.Conflict) && c.servers.CloudAPI == settings.Defaults().CloudAPI.Listen {
		log.Warn("the API of the cloud is not served here: set cloud_api.listen to an address that is free, or to "+
			"nothing", "err", err)
		return nil
	}
	if err == nil {
		log.Info("serving the API of the cloud", "endpoint", endpoint)
	}
	return err
}
