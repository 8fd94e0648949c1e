package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cloud/direct"
	"croft/compute"
	"croft/etcdstore"
	"croft/image"
	"croft/internal/endpoint"
	files "croft/internal/settings"
	"croft/node"
	"croft/node/settings"
	"croft/pool"
	"croft/pool/resalloc"
	poolserver "croft/pool/server"
	hook "croft/pool/shell"
	"croft/pool/vm"
	"croft/schedule"
	"croft/trust"
)

// poolsFile is the name of the file with the pools.
const poolsFile = "pools.yaml"

func poolServeCommand() *cobra.Command {
	flags := []args.HostFlag{
		args.StateDirFlag, args.LogLevelFlag, args.EtcdFlag,
		{Flag: "pools", Setting: "pool.file",
			Usage: "the pools (default: the first pools.yaml in ./, ~/.config/croft, /etc/croft)"},
		{Flag: "listen", Setting: "pool.listen", Usage: "address to serve on"},
		{Flag: "address", Setting: "pool.address",
			Usage: "URL at which other managers on the same etcd reach this one"},
		{Flag: "tokens", Setting: "pool.tokens",
			Usage: "file of tokens of those who may ask; croft pool token create makes one"},
		{Flag: "cert", Setting: "pool.cert", Usage: "file of the certificate to serve https:// with"},
		{Flag: "key", Setting: "pool.key", Usage: "file of its key"},
		{Flag: "insecure", Setting: "pool.insecure", Usage: "serve without tokens beyond this machine"},
		{Flag: "logs", Setting: "pool.logs", Usage: "directory for what the pools' commands print"},
	}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the manager of the pools",
		Long: `serve runs the manager of the pools in pools.yaml: it starts, checks, cleans and deletes
their resources and hands them out to tickets. A change of the file counts within
seconds; where the file has a fault, the last good one stays in force.

Its state is in the etcd that etcd.endpoints names, or, on a machine that runs croft up,
in that cloud's; else in an etcd of its own below the state directory. Any number of
managers may run on one etcd: one acts, the others hand requests on to it, and when it
ends another takes its place.

It serves a page for people, a JSON API (docs/pools-api.md), the XML-RPC of resalloc's
clients, /metrics, /livez and /readyz. Without --tokens it serves this machine alone.`,
		Args: args.Count(0, 0),
	}
	args.AddHostFlags(cmd, flags...)
	cmd.Flags().Lookup("insecure").NoOptDefVal = "true"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		defaults := settings.Defaults()
		if os.Getenv("ETCDCTL_ENDPOINTS") == "" {
			defaults.Etcd.Endpoints = nil // what others take for the default may be nobody's
		}
		s, log, err := args.LoadHostSettingsOver(defaults, cmd, flags...)
		if err != nil {
			return err
		}
		return node.Supervised(cmd.Context(), log, func(ready func()) error {
			return servePools(cmd.Context(), s, filepath.Join(s.StateDir, "pool"), openState, log, ready)
		})
	}
	return cmd
}

func openState(_ context.Context, dir string) (*compute.StateDir, error) {
	return compute.OpenStateDir(dir)
}

// servePools runs the manager until ctx ends or a part fails. dir is for what it keeps
// on this machine; open locks that.
func servePools(ctx context.Context, s settings.Settings, dir string,
	open func(context.Context, string) (*compute.StateDir, error), log *slog.Logger, ready func()) (err error) {
	tokens, err := preparePools(&s, log)
	if err != nil {
		return err // before anything is made
	}
	me, err := node.NewSelf(ctx, &s, "croft-pool", log)
	defer me.End()
	if err != nil {
		return err
	}
	l, err := listenForPools(ctx, &s)
	if err != nil {
		return err
	}
	p := node.NewParts()
	p.Self = me
	defer func() { err = errors.Join(err, p.End(), closed(l)) }()
	state, err := open(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	store, where, end, err := openPoolStore(ctx, &s, p, state.Path)
	if err != nil {
		return err
	}
	defer end()
	defer func() { err = errors.Join(err, p.End(), store.Close()) }()
	me.OfStore(store)
	hooks, err := poolHooks(&s, store, state.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.End(), hooks.Close()) }()
	view := store.NewHostsView()
	manager, err := poolManager(&s, store, view, hooks, l, log)
	if err != nil {
		return err
	}
	handler, err := poolHandler(&s, manager, tokens, me, log)
	if err != nil {
		return err
	}
	if manager.Instances != nil {
		p.Start(ctx, "the watch of the hosts", view.Run)
	}
	p.Start(ctx, "the manager of the pools", manager.Run)
	p.Start(ctx, "the server of the pools", func(ctx context.Context) error { return node.Serve(ctx, l, handler) })
	log.Info("serving pools", "address", manager.Me.Address, "pools", s.Pool.File, "state", where)
	ready()
	return p.Wait(ctx)
}

// poolHandler answers requests for a manager, and tells of this process.
func poolHandler(s *settings.Settings, manager *pool.Manager, tokens *poolserver.Tokens, me *node.Self,
	log *slog.Logger) (http.Handler, error) {
	peers, err := poolPeers(s)
	if err != nil {
		return nil, err
	}
	server, err := poolserver.New(poolserver.Config{
		Manager: manager, Tokens: tokens, Local: tokens == nil &&
			endpoint.IsLoopback(s.Pool.Listen), Peers: peers, Log: log,
		Quota: poolserver.Quota(s.Pool.Quota), RPC: resalloc.Handler,
	})
	if err != nil {
		return nil, err
	}
	me.Counts(server)
	me.Checks.Add("pools", func(context.Context) error { return server.Ready() })
	mux := http.NewServeMux()
	me.Serves(mux, s.Pool.Listen)
	mux.Handle("/", server.Handler())
	if tokens == nil {
		return node.Called(s.ServedNames(), mux), nil
	}
	return node.CalledAt(s, s.Pool.Listen, mux), nil
}

// closed closes a listener that may be closed.
func closed(l net.Listener) error {
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// preparePools checks what can be checked before anything is made.
func preparePools(s *settings.Settings, log *slog.Logger) (tokens *poolserver.Tokens, err error) {
	if s.Pool.File, err = findPools(s.Pool.File); err != nil {
		return nil, err
	}
	if _, _, err := net.SplitHostPort(s.Pool.Listen); err != nil {
		return nil, croft.Errorf(croft.Invalid, "pool.listen: %q is not IP:PORT", s.Pool.Listen)
	}
	if (s.Pool.Cert == "") != (s.Pool.Key == "") {
		return nil, croft.Errorf(croft.Invalid, "pool.cert and pool.key belong together: set both or neither")
	}
	if s.Pool.Tokens != "" {
		return poolserver.LoadTokens(s.Pool.Tokens, log)
	}
	if !endpoint.IsLoopback(s.Pool.Listen) && !s.Pool.Insecure {
		return nil,
			croft.Errorf(croft.Invalid, "pool.listen: whoever reaches %s could take everything that the pools have; "+
				"make tokens (croft pool token create) and name their file with --tokens, or, in a network that only your machines are in, --insecure", s.Pool.Listen)
	}
	return nil, nil
}

// findPools is the file of pools that was named, or the first on the search path.
func findPools(file string) (string, error) {
	if file != "" {
		if _, err := os.Stat(file); err != nil {
			return "", croft.Errorf(croft.Invalid, "pool.file: %w", err)
		}
		return filepath.Abs(file)
	}
	for _, dir := range files.SearchPath() {
		file := filepath.Join(dir, poolsFile)
		if _, err := os.Stat(file); err == nil {
			if err := files.CheckOwner(file); err != nil {
				return "", err
			}
			return filepath.Abs(file)
		}
	}
	return "", croft.Errorf(croft.Invalid, "%s is in none of %s; write one (docs/pools.md), or name it with --pools",
		poolsFile, strings.Join(files.SearchPath(), ", "))
}

// listenForPools opens where clients come, with TLS if there is a certificate.
func listenForPools(ctx context.Context, s *settings.Settings) (net.Listener, error) {
	var cert tls.Certificate
	if s.Pool.Cert != "" {
		var err error
		if cert, err = tls.LoadX509KeyPair(s.Pool.Cert, s.Pool.Key); err != nil {
			return nil, croft.Errorf(croft.Invalid, "pool.cert and pool.key: %w", err)
		}
	}
	l, err := node.Listen(ctx, s.Pool.Listen, "pool.listen")
	if err != nil || s.Pool.Cert == "" {
		return l, err
	}
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"},
		MinVersion: tls.VersionTLS12}), nil
}

// openPoolStore opens the etcd that the settings name, or the one of the cloud that
// this machine is of, or one of the manager's own in dir. end is to be called last.
func openPoolStore(ctx context.Context, s *settings.Settings, p *node.Parts, dir string) (store *etcdstore.Store,
	where string, end func(), err error) {
	end = func() {}
	own := filepath.Join(dir, "etcd")
	if err := findCloud(s, own); err != nil {
		return nil, "", end, err
	}
	var config etcdstore.Config
	if len(s.Etcd.Endpoints) > 0 {
		where = strings.Join(s.Etcd.Endpoints, ",")
		config, err = s.Etcd.Config(os.Getenv)
	} else {
		where = own
		s.Etcd.Listen = "127.0.0.1:0"
		p.Start(ctx, "the limit of memory", node.LimitMemory)
		kind := etcdstore.EmbeddedConfig{Dir: own}
		if p.Self != nil {
			kind.Log = p.Self.Log()
		}
		var etcd *etcdstore.Embedded
		if etcd, config, err = node.StartEtcd(ctx, s, kind, nil); err == nil {
			end = etcd.Close
			p.Start(ctx, "the embedded etcd", etcd.Wait)
		}
	}
	if err != nil {
		return nil, "", end, err
	}
	config.Mint = true
	store, err = etcdstore.Open(ctx, config)
	if err != nil {
		err = errors.Join(err, p.End())
	}
	return store, where, end, err
}

// findCloud names the etcd of the cloud that this machine is of, where the settings name
// none and the manager has none of its own in dir already.
func findCloud(s *settings.Settings, dir string) error {
	if len(s.Etcd.Endpoints) > 0 || exists(dir) {
		return nil
	}
	joined, err := trust.ReadMembership(s.StateDir)
	if err != nil {
		return err
	}
	if *s = settings.Over(joined, *s); len(s.Etcd.Endpoints) > 0 || !node.HasEtcd(s.StateDir) {
		return nil
	}
	s.Etcd.Endpoints = []string{direct.DefaultEtcd}
	if err := direct.AddLocal(s.StateDir, &s.Etcd.EtcdSettings, &s.Placement.PlacementSettings); err != nil {
		return err
	}
	if slices.Equal(s.Etcd.Endpoints, []string{direct.DefaultEtcd}) { // it is where the settings say that it listens
		s.Etcd.Endpoints = []string{"http://" + s.Etcd.Listen}
		if s.Placement.Endpoint == "" && s.Placement.Cloud == "" {
			s.Placement.Endpoint = "http://" + s.Placement.Listen
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// poolHooks runs the pools' commands.
func poolHooks(s *settings.Settings, store *etcdstore.Store, dir string) (*hook.Runner, error) {
	logs := s.Pool.Logs
	if logs == "" {
		logs = filepath.Join(dir, "log")
	}
	return hook.New(hook.Config{Dir: logs, Mark: string(store.Partition())})
}

// poolManager joins the manager to its store, its commands and its cloud.
func poolManager(s *settings.Settings, store *etcdstore.Store, view schedule.View, hooks *hook.Runner, l net.Listener,
	log *slog.Logger) (*pool.Manager, error) {
	me, err := poolServer(s, l)
	if err != nil {
		return nil, err
	}
	me.Place = hooks.Place()
	c := pool.Config{
		Partition: store.Partition(), Store: store, Hooks: hooks, File: s.Pool.File, Me: me, Log: log,
		History: s.Pool.History,
		Lenient: s.Pool.Lenient, Pace: s.Pool.Pace, Began: s.Pool.Began,
	}
	if len(s.Etcd.Endpoints) > 0 { // else it is nobody's cloud
		claims, err := s.Placement.Client()
		if err != nil {
			return nil, err
		}
		scheduler, err := schedule.New(schedule.Config{Partition: store.Partition(), Records: store, View: view,
			Claims: claims})
		if err != nil {
			return nil, err
		}
		defaults := direct.Defaults()
		c.Instances, err = vm.New(vm.Config{
			Scheduler: scheduler, Keys: store, ResolveImage: image.ReferenceFor,
			Image: defaults.Image, Project: croft.Project(defaults.Project),
		})
		if err != nil {
			return nil, err
		}
	}
	return pool.New(c)
}

// poolServer says who this manager is to the others.
func poolServer(s *settings.Settings, l net.Listener) (pool.Server, error) {
	name, err := os.Hostname()
	if err != nil {
		return pool.Server{}, fmt.Errorf("find this machine's name: %w", err)
	}
	machine, err := os.ReadFile("/etc/machine-id")
	if err != nil || len(machine) == 0 {
		machine = []byte(name)
	}
	me := pool.Server{Name: fmt.Sprintf("%s/%d", name, os.Getpid()), Machine: strings.TrimSpace(string(machine)),
		Address: s.Pool.Address}
	if me.Address == "" {
		scheme := "http://"
		if s.Pool.Cert != "" {
			scheme = "https://"
		}
		me.Address = endpoint.Outward(scheme + l.Addr().String())
	}
	return me, nil
}

// poolPeers is how the other managers are reached.
func poolPeers(s *settings.Settings) (http.RoundTripper, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256
	transport.DialContext = (&net.Dialer{Timeout: 3 * time.Second}).DialContext
	if s.Pool.CA == "" {
		return transport, nil
	}
	pem, err := os.ReadFile(s.Pool.CA)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "pool.ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, croft.Errorf(croft.Invalid, "pool.ca: %s has no certificate of an authority", s.Pool.CA)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	return transport, nil
}
