package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"croft/etcdstore"
	"croft/node/settings"
)

// RunPlacement serves until ctx ends or a part fails.
func RunPlacement(ctx context.Context, s settings.Settings, dataDir string, log *slog.Logger,
	ready func()) (err error) {
	if err := errors.Join(prepareOwnPlacement(&s), checkToken(s.Placement.Listen, s.Placement.Token)); err != nil {
		return err // before an etcd is made
	}
	me, err := NewSelf(ctx, &s, "croft-placement", log)
	defer me.End()
	if err != nil {
		return err
	}
	p := NewParts()
	p.Self = me
	config, err := s.Etcd.Config(os.Getenv)
	if dataDir != "" {
		p.Start(ctx, "the limit of memory", LimitMemory)
		var etcd *etcdstore.Embedded
		if etcd, config, err = StartEtcd(ctx, &s, etcdstore.EmbeddedConfig{Dir: filepath.Join(dataDir, "etcd"),
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
	endpoint, err := startPlacement(ctx, p, store.Placement(txnOps), s, nil, nil, log)
	if err != nil {
		return err
	}
	log.Info("serving the Placement API", "endpoint", endpoint)
	ready()
	return p.Wait(ctx)
}
