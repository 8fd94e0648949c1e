package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"croft/cli"
	"croft/node/manager"
	"croft/node/settings"
	"croft/pool/resalloc"
)

// withResalloc adds resalloc's programs, and its protocol for managers of pools.
func withResalloc(p cli.Program) cli.Program {
	p.RPC = resalloc.Handler
	p.Others = map[string]cli.Other{}
	for _, name := range resalloc.Names {
		p.Others[name] = cli.Other{
			Command: func() *cobra.Command { return resalloc.Command(name, resallocBackend) },
			Version: resalloc.VersionTemplate(name),
		}
	}
	return p
}

// resallocBackend runs managers of pools for resalloc's programs.
var resallocBackend = resalloc.Backend{
	Serve: func(ctx context.Context, r resalloc.Settings, dir string, lock resalloc.OpenState, log *slog.Logger) error {
		return manager.Serve(ctx, manager.Config{
			Settings: resallocSettings(r, dir), Dir: dir, Lock: lock, RPC: resalloc.Handler, Log: log,
			Lenient: true, Pace: r.Pace, Began: r.Began,
		})
	},
	Open: func(ctx context.Context, r resalloc.Settings, dir string) (resalloc.Store, func() error, error) {
		store, end, err := manager.Open(ctx, resallocSettings(r, dir), dir)
		if err != nil {
			return resalloc.Store{}, nil, err
		}
		return resalloc.Store{Store: store.Pools, Partition: store.Partition()}, end, nil
	},
}

// resallocSettings are the settings of a manager with its state in dir.
func resallocSettings(r resalloc.Settings, dir string) settings.Settings {
	s := settings.Defaults()
	s.StateDir = filepath.Dir(dir) // there is no cloud to find
	s.Etcd.Endpoints = r.Etcd
	s.LogLevel = strings.ToLower(r.Level.String())
	s.Pool.File, s.Pool.Logs = r.Pools, r.Logs
	s.Pool.Listen, s.Pool.Address = r.Listen, r.Address
	s.Pool.Tokens, s.Pool.Insecure = r.Tokens, r.Insecure
	s.Pool.Cert, s.Pool.Key, s.Pool.CA = r.Cert, r.Key, r.CA
	return s
}
