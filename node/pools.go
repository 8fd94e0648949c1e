package node

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"croft"
	"croft/control"
	"croft/etcdstore"
	"croft/internal/delay"
	"croft/internal/endpoint"
	"croft/node/settings"
	"croft/pool"
	pools "croft/pool/api"
)

// Machine identifies this machine to other processes of the cloud.
func Machine() (string, error) {
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(id) > 0 {
		return strings.TrimSpace(string(id)), nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find this machine's name: %w", err)
	}
	return name, nil
}

// Time that the API waits for the manager of pools, for example during a take-over, and pause after an error before the
// acting manager is determined again.
const (
	poolsPatience = 5 * time.Second
	leaderPause   = time.Second
)

// managerOfPools returns a client of the manager of pools: the configured one, else the one that currently acts on this
// cloud's etcd. A part of p follows the address of the latter.
func managerOfPools(ctx context.Context, p *Parts, s *settings.Settings, store *etcdstore.Store) (*pools.Client,
	error) {
	machine, err := Machine()
	if err != nil {
		return nil, err
	}
	set := s.CloudAPI.Pools
	set.CA = cmp.Or(set.CA, s.Pool.CA)
	if len(set.Endpoints) > 0 {
		return set.ClientFor(poolsPatience)
	}
	acting := &actingManager{machine: machine}
	client, err := set.ClientOf(poolsPatience, acting.locate)
	if err == nil {
		p.Start(ctx, "who acts for the pools", func(ctx context.Context) error { return acting.follow(ctx, store) })
	}
	return client, err
}

// actingManager holds the currently acting manager of pools.
type actingManager struct {
	machine string // the ID of this machine
	now     atomic.Pointer[pool.Server]
}

// follow watches which manager acts, until ctx ends.
func (a *actingManager) follow(ctx context.Context, store *etcdstore.Store) error {
	for ctx.Err() == nil {
		_ = store.Pools.WatchLeader(ctx, func(m *pool.Server) { a.now.Store(m) })
		a.now.Store(nil)
		_ = delay.For(ctx, leaderPause)
	}
	return ctx.Err()
}

// locate returns the address of the acting manager. Unavailable.
func (a *actingManager) locate() (string, error) {
	m := a.now.Load()
	if m == nil {
		return "", control.ErrNoPools
	}
	u, err := url.Parse(m.Address)
	if err != nil || u.Host == "" {
		return "", croft.Errorf(croft.Unavailable, "the manager of pools that acts, %s, has no address", m.Name)
	}
	if m.Machine != a.machine && endpoint.IsLoopback(net.JoinHostPort(u.Hostname(), "0")) {
		return "", croft.Errorf(croft.Unavailable, "the manager of pools that acts, %s, listens on its own machine alone, "+
			"at %s: set pool.listen and pool.tokens there, and cloud_api.pools.token_file here", m.Name, m.Address)
	}
	return m.Address, nil
}
