// Package manager runs a manager of pools as a process: it checks the settings, opens the manager's state, connects it
// to the cloud of this machine, and serves it until its context ends. When it returns, everything that it started has
// ended.
package manager

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"croft/compute"
	"croft/internal/endpoint"
	"croft/node"
	"croft/node/settings"
	"croft/pool"
	"croft/pool/server"
)

// Config configures a manager of pools.
type Config struct {
	Settings settings.Settings
	Dir      string // of the manager's files on this machine

	// Lock locks Dir, compute.OpenStateDir by default.
	Lock func(ctx context.Context, dir string) (*compute.StateDir, error)
	RPC  server.RPC // a second protocol for tickets; nil: none is configured
	Log  *slog.Logger

	// See pool.Config; zero with croft's own file of pools.
	Lenient bool
	Pace    time.Duration
	Began   time.Time
}

// Serve runs a manager until ctx ends or a part fails, and reports its state to systemd.
func Serve(ctx context.Context, c Config) error {
	return node.Supervised(ctx, c.Log, func(ready func()) error { return c.serve(ctx, ready) })
}

func (c Config) serve(ctx context.Context, ready func()) (err error) {
	s, log := c.Settings, c.Log
	file, tokens, err := prepare(&s, log)
	if err != nil {
		return err // before anything is created
	}
	me, err := node.NewSelf(ctx, &s, "croft-pool", log)
	defer me.End()
	if err != nil {
		return err
	}
	l, err := listen(ctx, &s)
	if err != nil {
		return err
	}
	p := node.NewParts()
	p.Self = me
	defer func() { err = errors.Join(err, p.End(), closed(l)) }()
	state, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	store, reach, where, end, err := openStore(ctx, &s, p, state.Path)
	if err != nil {
		return err
	}
	defer end()
	defer func() { err = errors.Join(err, p.End(), store.Close()) }()
	me.OfStore(store)
	commands, err := newRunner(&s, store, state.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.End(), commands.Close()) }()
	view := store.NewHostsView()
	manager, err := c.newManager(file, reach, store, view, commands, l)
	if err != nil {
		return err
	}
	handler, err := c.handler(&s, reach, manager, tokens, me)
	if err != nil {
		return err
	}
	if manager.Instances != nil {
		p.Start(ctx, "the watch of the hosts", view.Run)
	}
	p.Start(ctx, "the manager of the pools", manager.Run)
	p.Start(ctx, "the server of the pools", func(ctx context.Context) error { return node.Serve(ctx, l, handler) })
	log.Info("serving pools", "address", manager.Me.Address, "pools", file, "state", where)
	ready()
	return p.Wait(ctx)
}

// lock locks the manager's directory on this machine.
func (c Config) lock(ctx context.Context) (*compute.StateDir, error) {
	if c.Lock != nil {
		return c.Lock(ctx, c.Dir)
	}
	return compute.OpenStateDir(c.Dir)
}

// handler serves a manager's API, and the health and metrics of this process.
func (c Config) handler(s *settings.Settings, reach settings.Reach, manager *pool.Manager, tokens *server.PoolTokens,
	me *node.Self) (http.Handler, error) {
	peers, err := newPeers(s)
	if err != nil {
		return nil, err
	}
	front, err := server.New(server.Config{
		Manager: manager, Tokens: tokens, Local: tokens == nil &&
			endpoint.IsLoopback(s.Pool.Listen), Peers: peers, Log: c.Log,
		Quota: server.Quota(s.Pool.Quota), RPC: c.RPC, Page: s.Pool.Page,
	})
	if err != nil {
		return nil, err
	}
	me.Counts(front)
	me.Checks.Add("pools", func(context.Context) error { return front.Ready() })
	mux := http.NewServeMux()
	me.Serves(mux, s.Pool.Listen)
	mux.Handle("/", front.Handler())
	names := s.ServedNames(reach.Placement.Endpoint)
	if tokens == nil {
		return node.Called(names, mux), nil
	}
	return node.CalledAt(names, s.Pool.Listen, mux), nil
}

// closed closes a listener. It ignores that the listener was already closed.
func closed(l net.Listener) error {
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
