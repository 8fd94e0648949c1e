package manager

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"croft/cloud/direct"
	"croft/etcdstore"
	"croft/node"
	"croft/node/settings"
	"croft/trust"
)

// Open opens the state of a manager that does not run, in dir, which the caller has locked. end closes it.
func Open(ctx context.Context, s settings.Settings, dir string) (_ *etcdstore.Store, end func() error, err error) {
	p := node.NewParts()
	store, _, stop, err := openStore(ctx, &s, p, dir)
	if err != nil {
		return nil, nil, errors.Join(err, p.End())
	}
	return store, func() error {
		defer stop()
		return errors.Join(p.End(), store.Close())
	}, nil
}

// openStore opens the etcd that the settings name, or the one of the cloud that
// this machine is of, or one of the manager's own in dir. end is to be called last.
func openStore(ctx context.Context, s *settings.Settings, p *node.Parts, dir string) (store *etcdstore.Store,
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
