package node

import (
	"context"
	"errors"
	"log/slog"

	"croft"
	"croft/compute"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/gate"
	"croft/trust/pki"
)

// RunAgent runs the agent until ctx ends or a part fails. It serves the cloud that the host joined; otherwise the one
// in etcd, which it creates if etcd is empty.
func RunAgent(ctx context.Context, s settings.Settings, reach settings.Reach, log *slog.Logger,
	ready func()) (err error) {
	of := reach.Joined
	me, err := NewSelf(ctx, &s, "croft-compute", log)
	defer me.End()
	if err := errors.Join(err, s.NeedsHypervisor(), reach.Placement.Check()); err != nil {
		return err
	}
	dir, err := compute.OpenStateDir(s.StateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := dir.NoteHypervisor(s.Hypervisor); err != nil {
		return err
	}
	own, err := joinedCredentials(of, s.StateDir, log)
	if err != nil {
		return err
	}
	store, err := openCloud(ctx, reach, s.StateDir, of == nil)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	h := &host{settings: s, servers: s.Servers(of), reach: reach, log: log, dir: dir, store: store, trust: own}
	if of != nil {
		if store.Partition() != of.Partition {
			return of.ErrOther()
		}
		switch store := store.(type) {
		case etcdCloud:
			h.following = func(ctx context.Context) error { return h.follow(ctx, store.Store, of) }
		case *gate.Client:
			h.following = func(ctx context.Context) error { return h.followGates(ctx, store, of) }
		}
	}
	if err := errors.Join(mayServe(ctx, own, store), followServers(ctx, of, own, store)); err != nil {
		return unlessStopped(ctx, err)
	}
	p := NewParts()
	p.Self = me
	if err := keepJoined(ctx, s.StateDir, reach, p, own); err != nil {
		return err
	}
	return runHost(ctx, p, h, ready)
}

// mayServe refuses a host that was forgotten since it joined: etcd would accept it, but the join server would
// refuse all its requests. NotFound.
func mayServe(ctx context.Context, own *trust.Credentials, store cloud) error {
	switch store := store.(type) {
	case etcdCloud:
		if own != nil {
			return (&trust.Admission{Store: store.Trust, Known: store.Store.Registry}).Look(ctx,
				pki.MemberIdentity(own.Partition, own.Host))
		}
	case *gate.Client:
		ctx, cancel := context.WithTimeout(ctx, gateAnswers)
		defer cancel()
		if err := store.Usable(ctx); errors.Is(err, gate.ErrRefused) {
			return croft.Errorf(croft.NotFound, "%w", err)
		}
	}
	return nil // a gate that does not answer is reported later, repeatedly
}

// followServers updates where a host with access to etcd renews its certificates.
func followServers(ctx context.Context, of *trust.Membership, own *trust.Credentials, store cloud) error {
	if etcd, direct := store.(etcdCloud); direct {
		return of.FollowServers(ctx, own, etcd.Trust)
	}
	return nil
}

// keepJoined renews the certificates of a joined host, and notes them for commands.
func keepJoined(ctx context.Context, stateDir string, r settings.Reach, p *Parts, own *trust.Credentials) error {
	if own == nil {
		return nil
	}
	if err := writeLocal(stateDir, r, own); err != nil {
		return err
	}
	p.Self.Counts(own)
	keepRenewed(ctx, p, own)
	return nil
}
