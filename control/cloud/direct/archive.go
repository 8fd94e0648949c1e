package direct

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"croft"
	"croft/etcdstore/etcdserver"
	"croft/placement/ledger"
	"croft/placement/transfer"
	"croft/placementclient"
)

// Archive locates the whole state of a Placement: behind an API, in a data directory, or in etcd.
type Archive struct {
	URL       string // URL of the API, or cloud:NAME; empty: the state is in etcd
	DataDir   string // data directory of an etcd that does not run; empty: use the etcd of Etcd
	Write     bool   // also write; etcd may then be empty
	Etcd      EtcdSettings
	Placement PlacementSettings // except the URL
}

// Open connects to the state. The caller must call end unless there is an error. NotFound: there is no state.
func (a Archive) Open(ctx context.Context) (_ transfer.Target, end func() error, err error) {
	if a.URL == "" {
		return a.openStored(ctx)
	}
	access := a.Placement
	access.Endpoint = a.URL
	if name, ok := strings.CutPrefix(a.URL, "cloud:"); ok {
		access.Endpoint, access.Cloud = "", name
	} else if u, err := url.Parse(a.URL); err != nil || u.Host == "" {
		return nil, nil, croft.Errorf(croft.Invalid, "%q is neither a URL such as http://127.0.0.1:8778 nor cloud:NAME",
			a.URL)
	}
	client, err := access.Client()
	if err != nil {
		return nil, nil, err
	}
	return &placementclient.Archive{Client: client}, func() error { client.Close(); return nil }, nil
}

// openStored opens the state in etcd; for DataDir it starts etcd.
func (a Archive) openStored(ctx context.Context) (transfer.Target, func() error, error) {
	stop := func() {}
	if a.DataDir != "" {
		dir := filepath.Join(a.DataDir, "etcd")
		if _, err := os.Stat(dir); err != nil && !a.Write {
			return nil, nil, croft.Errorf(croft.NotFound, "there is no Placement below %s", a.DataDir)
		}
		etcd, err := etcdserver.Start(ctx, etcdserver.Config{Dir: dir, Listen: "127.0.0.1:0"})
		if err != nil {
			return nil, nil, err
		}
		a.Etcd, stop = EtcdSettings{Endpoints: []string{etcd.Endpoint()}}, etcd.Close
	}
	store, err := a.Etcd.Open(ctx, a.Write)
	if err != nil {
		stop()
		return nil, nil, err
	}
	end := func() error {
		defer stop()
		return store.Close()
	}
	ops := 0
	if a.Write { // without Write, nothing is written
		if ops, err = store.MaxTxnOps(ctx); err != nil {
			return nil, nil, errors.Join(err, end())
		}
	}
	return &ledger.Archive{Store: store.Placement(ops)}, end, nil
}
