package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"croft/compute"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/hosts/audit"
	"croft/node/settings"
	"croft/trust"
)

// Up runs everything, or on a joined host the parts that its cloud needs here, until ctx ends or a part fails. A
// host whose etcd member is removed continues without it.
func Up(ctx context.Context, s settings.Settings, log *slog.Logger, ready func()) error {
	ready = sync.OnceFunc(ready)
	for {
		of, err := trust.ReadMembership(s.StateDir)
		if err != nil {
			return err
		}
		if of != nil && !of.Etcd.Member {
			return RunAgent(ctx, s, s.Reach(of), log, ready)
		}
		err = serveAll(ctx, s, s.Reach(of), log, ready)
		switch {
		case ctx.Err() != nil:
			return err
		case errors.Is(err, etcdserver.ErrFull):
			err = rest(ctx, s, log, ready, err)
		case errors.Is(err, etcdserver.ErrRemoved):
			err = unlessStopped(ctx, leaveEtcd(ctx, s, log))
		default:
			return err
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// rest runs this host without its etcd, which failed because the disk is full, until there is space again. A host that
// is the only member returns full.
func rest(ctx context.Context, s settings.Settings, log *slog.Logger, ready func(), full error) error {
	of, err := trust.ReadMembership(s.StateDir) // as rewritten when other members were added
	if err != nil || of == nil {
		return cmp.Or(err, full)
	}
	dir := EtcdDir(s.StateDir)
	if s.Hypervisor == settings.NoHypervisor {
		return unlessStopped(ctx, etcdserver.AwaitSpace(ctx, dir))
	}
	resting, end := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer end(nil)
	errRoom := errors.New("there is room again")
	work.Go(func() {
		if etcdserver.AwaitSpace(resting, dir) == nil {
			end(errRoom)
		}
	})
	err = RunAgent(resting, s, s.Reach(of), log, ready)
	if ctx.Err() == nil && errors.Is(context.Cause(resting), errRoom) {
		log.Info("there is room on the disk again: this host serves etcd once more", "dir", dir)
		return nil
	}
	return err
}

// serveAll runs etcd, alone or with members on other hosts, Placement, and this host's agent. ErrRemoved: the others
// removed this member.
func serveAll(ctx context.Context, s settings.Settings, reach settings.Reach, log *slog.Logger,
	ready func()) (err error) {
	servers := s.Servers(reach.Joined)
	self, err := NewSelf(ctx, &s, "croft-up", log)
	defer self.End()
	err = errors.Join(err, servers.CheckOwnEtcd(), servers.CheckTrust(), preparePlacement(&s, servers, &reach))
	if err != nil {
		return err // before anything is created
	}
	if err := checkPorts(ctx, &s, servers); err != nil {
		return unlessStopped(ctx, err)
	}
	dir, err := compute.OpenStateDir(s.StateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := dir.NoteHypervisor(s.Hypervisor); err != nil {
		return err
	}
	if err := ownToken(&s, servers, &reach, dir); err != nil {
		return err
	}
	me, err := newServing(ctx, &s, servers, reach, dir, log)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	etcd, config, err := me.start(ctx)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer etcd.Close()
	store, err := etcdstore.Open(ctx, config)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	p := NewParts()
	p.Self = self
	self.ofEtcd(etcd)
	defer func() { err = errors.Join(err, p.End()) }()
	p.Start(ctx, "the pace of the collector", PaceCollector)
	p.Start(ctx, "the embedded etcd", etcd.Wait)
	if err := me.serve(ctx, p, store); err != nil {
		return unlessStopped(ctx, err)
	}
	self.OfCloud(ctx, p, store)
	if err := offerControl(ctx, p, &s, underControl{store: store, placement: me.placement, servers: servers,
		reach: me.reach, own: me.own, admitted: me.admitted, first: reach.Joined == nil}, log); err != nil {
		return unlessStopped(ctx, err)
	}
	h := &host{settings: s, servers: servers, reach: me.reach, log: log, dir: dir, id: me.host, store: cloudIn(store),
		trust: me.own}
	h.following = func(ctx context.Context) error { return h.follow(ctx, store, me.of) }
	if s.Hypervisor == settings.NoHypervisor {
		p.Start(ctx, "keeping up with the members of etcd", h.following)
		return runHostless(ctx, p, &s, me.reach, store, log, ready)
	}
	return runHost(ctx, p, h, ready)
}

// checkPorts finds a port in use before anything is written. It locks an existing state directory first, because a
// locked directory explains the problem better than a port in use.
func checkPorts(ctx context.Context, s *settings.Settings, v settings.Servers) error {
	if _, err := os.Stat(s.StateDir); err == nil {
		return nil
	}
	needed := map[string]string{
		"etcd.listen": v.Etcd, "etcd.peer_listen": v.Peer(), "join.listen": v.Join(),
	}
	if s.ServesPlacement() {
		needed["placement.listen"] = v.Placement
	}
	if s.Hypervisor != settings.NoHypervisor {
		needed["api.listen"] = v.API
	}
	return areFree(ctx, needed)
}

// runHostless serves a machine that runs shared services and no guests. It competes with the agents of other
// hosts to be the caretaker of shared records.
func runHostless(ctx context.Context, p *Parts, s *settings.Settings, reach settings.Reach, store *etcdstore.Store,
	log *slog.Logger, ready func()) error {
	claims, err := reach.Placement.Client()
	if err != nil {
		return err
	}
	defer claims.Close()
	caretaker := &audit.Caretaker{Records: store.Records, Shared: store.Turn, Inventory: claims, Every: s.Sweep,
		Volumes: volumeRequests(store, claims, log), Resizes: resizes(store, claims, log),
		Images:   catalog(store, claims, log),
		Announce: expiryHook(s.Expiry.Hook), Log: log}
	p.Self.Counts(caretaker)
	p.Start(ctx, "the caretaker", caretaker.Run)
	log.Info("hosts may join; this machine runs no guests")
	ready()
	return p.Wait(ctx)
}
