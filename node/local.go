package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"croft/control/cloud/direct"
	"croft/internal/endpoint"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/pki"
)

// accessWith returns the access of commands to the same cloud, with the certificates that files returns for each
// authority.
func accessWith(r settings.Reach, files func(pki.Authority) pki.Files) direct.Local {
	var a direct.Local
	for _, member := range r.Etcd.Endpoints {
		a.Etcd.Endpoints = append(a.Etcd.Endpoints, endpoint.Outward(member))
	}
	a.Clusters.CredentialKeyFile, a.Fence = r.Etcd.SealKeys, r.Etcd.FenceFile
	of := files(pki.Etcd)
	a.Etcd.CA, a.Etcd.Cert, a.Etcd.Key = of.CA(), of.Pair(), of.Pair()
	if r.Placement.Cloud != "" {
		return a
	}
	of = files(pki.Hosts)
	a.Placement.Endpoint, a.Placement.Token = endpoint.Outward(cmp.Or(r.Placement.Endpoint, direct.DefaultPlacement)),
		r.Placement.Token
	if endpoint.IsTLS(a.Placement.Endpoint) {
		a.Placement.CA, a.Placement.Cert, a.Placement.Key = of.CA(), of.Pair(), of.Pair()
	}
	return a
}

// useLocally makes this process and the commands on this machine use the cloud that this process serves.
func useLocally(stateDir string, r *settings.Reach, own *trust.Credentials) error {
	if own.Has(pki.Hosts) && endpoint.IsTLS(r.Placement.Endpoint) {
		r.Placement.TLS = own.Client(pki.Hosts)
	}
	return writeLocal(stateDir, *r, own)
}

// writeLocal stores how commands on this machine reach the cloud; it writes no file if the defaults fit.
func writeLocal(stateDir string, r settings.Reach, own *trust.Credentials) error {
	if !own.Has(pki.Etcd) {
		if err := os.Remove(direct.LocalFile(stateDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the settings stored for commands: %w", err)
		}
		return nil
	}
	return accessWith(r, own.OperatorFiles).Write(direct.LocalFile(stateDir),
		"# Written by croft up for the commands of root on this machine.\n")
}
