package etcdtest

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
)

// Fill writes to a server, whose MaxBytes should be small, until it is full, and returns a client for the repair.
func Fill(t testing.TB, server *etcdserver.Server) *clientv3.Client {
	t.Helper()
	etcd := Client(t, server, etcdstore.Credentials{})
	for t.Context().Err() == nil {
		_, err := etcd.Put(t.Context(), "/filler", strings.Repeat("x", 256<<10))
		if rpctypes.Error(err) == rpctypes.ErrNoSpace {
			return etcd
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("it never was full")
	return nil
}
