package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"

	"croft/node"
	"croft/node/settings"
	"croft/pool/resalloc"
)

// resallocBackend runs managers of pools for resalloc's programs.
var resallocBackend = resalloc.Backend{
	Serve: func(ctx context.Context, r resalloc.Settings, dir string, open resalloc.OpenState, log *slog.Logger) error {
		s := resallocSettings(r, dir)
		return node.Supervised(ctx, log, func(ready func()) error { return servePools(ctx, s, dir, open, log, ready) })
	},
	Open: func(ctx context.Context, r resalloc.Settings, dir string) (resalloc.Store, func() error, error) {
		s, p := resallocSettings(r, dir), node.NewParts()
		store, _, end, err := openPoolStore(ctx, &s, p, dir)
		if err != nil {
			return nil, nil, errors.Join(err, p.End())
		}
		return store, func() error {
			defer end()
			return errors.Join(p.End(), store.Close())
		}, nil
	},
}

// resallocSettings are the settings of a manager with its state in dir.
func resallocSettings(r resalloc.Settings, dir string) settings.Settings {
	s := settings.Defaults()
	s.StateDir = filepath.Dir(dir) // there is no cloud to find
	s.Etcd.Endpoints = r.Etcd
	s.LogLevel = strings.ToLower(r.Level.String())
	s.Pool.File, s.Pool.Logs = r.Pools, r.Logs
	s.Pool.Lenient, s.Pool.Began, s.Pool.Pace = true, r.Began, r.Pace
	s.Pool.Listen, s.Pool.Address = r.Listen, r.Address
	s.Pool.Tokens, s.Pool.Insecure = r.Tokens, r.Insecure
	s.Pool.Cert, s.Pool.Key, s.Pool.CA = r.Cert, r.Key, r.CA
	return s
}
