package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"croft"
	"croft/cloud/direct"
	"croft/compute"
	"croft/etcdstore"
	"croft/internal/endpoint"
	"croft/node/settings"
	"croft/placement"
	"croft/placement/ledger"
	"croft/trust"
)

// Up runs everything, or on a host that joined a cloud what that one needs here, until
// ctx ends or a part fails. A host whose etcd is removed goes on without.
func Up(ctx context.Context, s settings.Settings, log *slog.Logger, ready func()) error {
	var served atomic.Bool
	tell := ready
	ready = func() {
		if !served.Swap(true) {
			tell()
		}
	}
	for {
		of, err := trust.ReadMembership(s.StateDir)
		if err != nil {
			return err
		}
		if of != nil && !of.Etcd.Member {
			return RunJoined(ctx, settings.Over(of, s), log, of, ready)
		}
		err = serveAll(ctx, settings.Over(of, s), log, of, ready)
		switch {
		case ctx.Err() != nil && served.Load() && canceled(err):
			return nil // stopped while it began to serve etcd again
		case ctx.Err() != nil:
			return err
		case errors.Is(err, etcdstore.ErrFull):
			err = rest(ctx, s, log, ready, err)
		case errors.Is(err, etcdstore.ErrRemoved):
			err = leaveEtcd(ctx, s, log)
		default:
			return err
		}
		if err != nil {
			return err
		}
	}
}

// canceled tells whether an error, each part of it where there are several, is of a context that was canceled.
func canceled(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !canceled(err) })
	}
	return errors.Is(err, context.Canceled)
}

// rest runs this host without its etcd, which ended or did not start for a full disk, until there is room for that
// again. A host that is alone ends with full.
func rest(ctx context.Context, s settings.Settings, log *slog.Logger, ready func(), full error) error {
	of, err := trust.ReadMembership(s.StateDir) // as it is since others serve
	if err != nil || of == nil {
		return cmp.Or(err, full)
	}
	dir := EtcdDir(s.StateDir)
	if s.Hypervisor == settings.NoHypervisor {
		return etcdstore.AwaitSpace(ctx, dir)
	}
	resting, end := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer end(nil)
	errRoom := errors.New("there is room again")
	work.Go(func() {
		if etcdstore.AwaitSpace(resting, dir) == nil {
			end(errRoom)
		}
	})
	err = RunJoined(resting, settings.Over(of, s), log, of, ready)
	if ctx.Err() == nil && errors.Is(context.Cause(resting), errRoom) {
		log.Info("there is room on the disk again: this host serves etcd once more", "dir", dir)
		return nil
	}
	return err
}

// serveAll runs etcd, alone or with those of other hosts, Placement, and this host's
// agent. ErrRemoved: the others took this etcd out.
func serveAll(ctx context.Context, s settings.Settings, log *slog.Logger, of *trust.Membership,
	ready func()) (err error) {
	self, err := NewSelf(ctx, &s, "croft-up", log)
	defer self.End()
	if err := errors.Join(err, s.CheckOwnEtcd(), s.CheckTrust(), preparePlacement(&s)); err != nil {
		return err // before anything is made
	}
	if err := checkPorts(ctx, s); err != nil {
		return err
	}
	dir, err := compute.OpenStateDir(s.StateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := ownToken(&s, dir); err != nil {
		return err
	}
	me, err := newServing(ctx, &s, dir, of, log)
	if err != nil {
		return err
	}
	etcd, config, err := me.start(ctx)
	if err != nil {
		return err
	}
	defer etcd.Close()
	store, err := etcdstore.Open(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	p := NewParts()
	p.Self = self
	self.ofEtcd(etcd)
	defer func() { err = errors.Join(err, p.End()) }()
	p.Start(ctx, "the embedded etcd", etcd.Wait)
	if err := me.serve(ctx, p, store); err != nil {
		return err
	}
	self.OfCloud(ctx, p, store)
	h := &host{settings: me.settings, log: log, dir: dir, id: me.host, store: store, trust: me.own}
	h.following = func(ctx context.Context) error { return h.follow(ctx, store, me.of) }
	if s.Hypervisor == settings.NoHypervisor {
		p.Start(ctx, "keeping up with the members of etcd", h.following)
		return runHostless(ctx, p, me.settings, store, log, ready)
	}
	return runHost(ctx, p, h, ready)
}

// preparePlacement checks how Placement is reached, or what our own is served with.
func preparePlacement(s *settings.Settings) error {
	if !s.ServesPlacement() {
		return s.Placement.Check()
	}
	if !s.Beyond(s.Placement.Listen) {
		if err := checkToken(s.Placement.Listen, s.Placement.Token); err != nil {
			return err
		}
	}
	return prepareOwnPlacement(s)
}

// ownToken gives a Placement that other machines reach a token that is not known to
// everybody, the same for ever, where the settings give it none.
func ownToken(s *settings.Settings, dir *compute.StateDir) (err error) {
	if s.Placement.Token == direct.DefaultToken && s.ServesPlacement() && s.Beyond(s.Placement.Listen) {
		s.Placement.Token, err = dir.Secret("placement-token", newToken)
	}
	return err
}

// checkPorts finds a port in use before anything is written. A state directory
// that exists is locked first: that it is in use says more than that a port is.
func checkPorts(ctx context.Context, s settings.Settings) error {
	if _, err := os.Stat(s.StateDir); err == nil {
		return nil
	}
	needed := map[string]string{
		"etcd.listen": s.Etcd.Listen, "etcd.peer_listen": s.PeerListen(), "join.listen": s.JoinListen(),
	}
	if s.ServesPlacement() {
		needed["placement.listen"] = s.Placement.Listen
	}
	if s.Hypervisor != settings.NoHypervisor {
		needed["api.listen"] = s.API.Listen
	}
	return areFree(ctx, needed)
}

// areFree finds an address in use among those that settings name. Conflict.
func areFree(ctx context.Context, needed map[string]string) error {
	for setting, address := range needed {
		if address == "" {
			continue
		}
		l, err := Listen(ctx, address, setting)
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("%s: %w", setting, err)
		}
	}
	return nil
}

// runHost adds the parts of one host to those that run and waits for the end.
func runHost(ctx context.Context, p *Parts, h *host, ready func()) (err error) {
	if h.id, err = h.dir.HostID(); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, p.End()) // the agent ends before its hypervisor closes
		h.closeHypervisor()
	}()
	if err := h.openHypervisor(ctx, h.store.Partition()); err != nil {
		return err
	}
	if err := h.startMetadata(ctx, p); err != nil {
		return err
	}
	if err := h.startAgent(ctx, p, ready); err != nil {
		return err
	}
	if h.following != nil {
		p.Start(ctx, "keeping up with the members of etcd", h.following)
	}
	return p.Wait(ctx)
}

// startPlacement serves croft's own Placement and returns its endpoint.
func startPlacement(ctx context.Context, p *Parts, store ledger.Store, s settings.Settings, own *trust.Credentials,
	admitted *trust.Admission, log *slog.Logger) (string, error) {
	guard, end, err := openKeystone(s.Placement.Keystone)
	if err != nil {
		return "", err
	}
	server, err := placement.New(placement.Config{
		Store: store, Log: log, Token: s.Placement.Token, Keystone: guard, Randomize: s.Placement.Randomize,
		Traces: p.Self.traces, AccessLog: s.Placement.AccessLog,
		ConsistentReads: placement.Consistency(s.Placement.ConsistentReads),
	})
	if err != nil {
		return "", err
	}
	l, err := Listen(ctx, s.Placement.Listen, "placement.listen")
	if err != nil {
		return "", err
	}
	p.Self.Counts(server)
	p.Self.Checks.Add("placement", func(context.Context) error { return server.Ready() })
	handler := server.Handler()
	l, scheme := own.Listener(l, s.Beyond(s.Placement.Listen))
	if admitted != nil {
		handler = admitted.Guard(s.Placement.Token, handler)
	}
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.Handle("GET /metrics", p.Self.metricsAt(s.Placement.Listen))
	p.Start(ctx, "Placement's state", server.Run)
	p.Start(ctx, "Placement", func(ctx context.Context) error {
		defer end()
		return Serve(ctx, l, CalledAt(&s, s.Placement.Listen, mux))
	})
	return fmt.Sprintf("%s://%s", scheme, l.Addr()), nil
}

// checkToken keeps the token that everybody knows to the loopback interface.
func checkToken(address, token string) error {
	if token == direct.DefaultToken && !endpoint.IsLoopback(address) {
		return croft.Errorf(croft.Invalid,
			"placement.listen: %s can be reached from other machines and placement.token is the well-known default; set another token", address)
	}
	return nil
}
