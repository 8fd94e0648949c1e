package main

import (
	"context"
	"net"

	"croft"
	"croft/etcdstore"
	"croft/trust"
	"croft/trust/pki"
)

// startEtcd starts an etcd in this process, as c says, and returns what to open the
// store with. One that others reach has to be protected, by certificates of
// our own authority or of another, or to be meant not to be.
func (s *hostSettings) startEtcd(ctx context.Context, c etcdstore.EmbeddedConfig, own *trust.Credentials) (*etcdstore.Embedded, etcdstore.Config, error) {
	var open etcdstore.Config
	c.Listen = s.Etcd.Listen
	c.Cert, c.Key, c.ClientCA = s.Etcd.ListenCert, s.Etcd.ListenKey, s.Etcd.ListenClientCA
	if own.Has(pki.Etcd) {
		f := own.Files(pki.Etcd)
		c.Cert, c.Key, c.ClientCA = f.Pair(), f.Pair(), f.CA()
	} else if err := s.checkEtcdListen(); err != nil {
		return nil, open, err
	}
	if s.Etcd.User != "" {
		var err error
		if open, err = s.Etcd.Config(func(string) string { return "" }); err != nil {
			return nil, open, err
		}
	}
	etcd, err := etcdstore.StartEmbedded(ctx, c)
	open.Embedded, open.Mint = etcd, true
	return etcd, open, err
}

// checkOwnEtcd is checkEtcdListen for a cloud that has an authority of its own.
func (s *hostSettings) checkOwnEtcd() error {
	if s.ownsEtcdTrust() {
		return nil
	}
	return s.checkEtcdListen()
}

// checkEtcdListen refuses an etcd that whoever reaches it may read and write, unless
// that is said to be meant.
func (s *hostSettings) checkEtcdListen() error {
	if _, _, err := net.SplitHostPort(s.Etcd.Listen); err != nil {
		return croft.Errorf(croft.Invalid, "etcd.listen: %q is not IP:PORT", s.Etcd.Listen)
	}
	if !s.beyond(s.Etcd.Listen) || s.Etcd.ListenCert != "" && s.Etcd.ListenClientCA != "" {
		return nil
	}
	return croft.Errorf(croft.Invalid, "etcd.listen: whoever reaches %s could read and change everything in this cloud; "+
		"set etcd.listen_cert, etcd.listen_key and etcd.listen_client_ca, so that clients have to show a certificate, or, in a network that only your hosts are in, --insecure", s.Etcd.Listen)
}
