package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"croft/cloud/direct"
	"croft/internal/endpoint"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/pki"
)

// accessWith is how the cloud is reached that these settings are of, with the
// certificates that files has for each authority.
func accessWith(s *settings.Settings, files func(pki.Authority) pki.Files) direct.Local {
	var a direct.Local
	for _, member := range s.Etcd.Endpoints {
		a.Etcd.Endpoints = append(a.Etcd.Endpoints, endpoint.Outward(member))
	}
	of := files(pki.Etcd)
	a.Etcd.CA, a.Etcd.Cert, a.Etcd.Key = of.CA(), of.Pair(), of.Pair()
	if s.Placement.Cloud != "" {
		return a
	}
	of = files(pki.Hosts)
	a.Placement.Endpoint, a.Placement.Token = endpoint.Outward(cmp.Or(s.Placement.Endpoint, direct.DefaultPlacement)),
		s.Placement.Token
	if endpoint.IsTLS(a.Placement.Endpoint) {
		a.Placement.CA, a.Placement.Cert, a.Placement.Key = of.CA(), of.Pair(), of.Pair()
	}
	return a
}

// useLocally has this process and the commands on this machine reach the cloud that
// runs in it.
func useLocally(s *settings.Settings, own *trust.Credentials) error {
	if own.Has(pki.Hosts) && endpoint.IsTLS(s.Placement.Endpoint) {
		s.Placement.TLS = own.Client(pki.Hosts)
	}
	return writeLocal(s, own)
}

// writeLocal notes how commands on this machine reach the cloud, or that the defaults do.
func writeLocal(s *settings.Settings, own *trust.Credentials) error {
	if !own.Has(pki.Etcd) {
		if err := os.Remove(direct.LocalFile(s.StateDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what was noted for commands: %w", err)
		}
		return nil
	}
	return accessWith(s, own.OperatorFiles).Write(direct.LocalFile(s.StateDir),
		"# Written by croft up for the commands of root on this machine.\n")
}
