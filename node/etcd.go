package node

import (
	"context"

	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/pki"
)

// StartEtcd starts an etcd in this process, as c configures, and returns the configuration for opening the store.
// An etcd that other machines reach must be protected by certificates, of our own authority or another, unless
// the settings permit none.
func StartEtcd(ctx context.Context, s *settings.Settings, v settings.Servers, c etcdserver.Config,
	own *trust.Credentials) (*etcdserver.Server, etcdstore.Config, error) {
	var open etcdstore.Config
	c.Listen = v.Etcd
	c.Cert, c.Key, c.ClientCA = s.Etcd.ListenCert, s.Etcd.ListenKey, s.Etcd.ListenClientCA
	if own.Has(pki.Etcd) {
		f := own.Files(pki.Etcd)
		c.Cert, c.Key, c.ClientCA = f.Pair(), f.Pair(), f.CA()
	} else if err := v.CheckEtcd(); err != nil {
		return nil, open, err
	}
	if s.Etcd.User != "" {
		var err error
		if open, err = s.Etcd.Config(func(string) string { return "" }); err != nil {
			return nil, open, err
		}
	}
	etcd, err := etcdserver.Start(ctx, c)
	if err != nil {
		return nil, open, err
	}
	if err := etcd.AwaitRoom(ctx); err != nil {
		etcd.Close()
		return nil, open, err
	}
	open.Embedded, open.Mint = etcd, true
	return etcd, open, nil
}
