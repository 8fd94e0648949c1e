package manager

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"croft/control/cloud/direct"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/node"
	"croft/node/settings"
	"croft/trust"
)

// Open opens the state of a stopped manager, in dir, which the caller has locked. end closes it.
func Open(ctx context.Context, s settings.Settings, dir string) (_ *etcdstore.Store, end func() error, err error) {
	p := node.NewParts()
	store, _, _, stop, err := openStore(ctx, &s, p, dir)
	if err != nil {
		return nil, nil, errors.Join(err, p.End())
	}
	return store, func() error {
		defer stop()
		return errors.Join(p.End(), store.Close())
	}, nil
}

// openStore opens the configured etcd, or that of this machine's cloud, or the manager's own in dir. end must be
// called last.
func openStore(ctx context.Context, s *settings.Settings, p *node.Parts, dir string) (store *etcdstore.Store,
	reach settings.Reach, where string, end func(), err error) {
	end = func() {}
	own := filepath.Join(dir, "etcd")
	if reach, err = findCloud(s, own); err != nil {
		return nil, reach, "", end, err
	}
	var config etcdstore.Config
	if len(reach.Etcd.Endpoints) > 0 {
		where = strings.Join(reach.Etcd.Endpoints, ",")
		config, err = reach.Etcd.Config(os.Getenv)
	} else {
		where = own
		servers := s.Servers(nil)
		servers.Etcd = "127.0.0.1:0"
		p.Start(ctx, "the pace of the collector", node.PaceCollector)
		kind := etcdserver.Config{Dir: own}
		if p.Self != nil {
			kind.Log = p.Self.Log()
		}
		var etcd *etcdserver.Server
		if etcd, config, err = node.StartEtcd(ctx, s, servers, kind, nil); err == nil {
			end = etcd.Close
			p.Start(ctx, "the embedded etcd", etcd.Wait)
		}
	}
	if err != nil {
		return nil, reach, "", end, err
	}
	config.Mint = true
	store, err = etcdstore.Open(ctx, config)
	if err != nil {
		err = errors.Join(err, p.End())
	}
	return store, reach, where, end, err
}

// findCloud returns the configured access to the cloud. If no etcd is configured, and dir has no etcd of the manager,
// it returns the access to the cloud of this machine.
func findCloud(s *settings.Settings, dir string) (settings.Reach, error) {
	r := s.ReachAsSet(nil)
	if len(r.Etcd.Endpoints) > 0 || exists(dir) {
		return r, nil
	}
	joined, err := trust.ReadMembership(s.StateDir)
	if err != nil {
		return r, err
	}
	if r = s.ReachAsSet(joined); len(r.Etcd.Endpoints) > 0 || !node.HasEtcd(s.StateDir) {
		return r, nil
	}
	if err := direct.AddNote(s.StateDir, &r.Etcd, &r.Placement); err != nil {
		return r, err
	}
	if len(r.Etcd.Endpoints) == 0 { // there is no note: use the configured address
		r.Etcd.Endpoints = []string{"http://" + s.Etcd.Listen}
		if r.Placement.Endpoint == "" && r.Placement.Cloud == "" {
			r.Placement.Endpoint = "http://" + s.Placement.Listen
		}
	}
	return r, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
