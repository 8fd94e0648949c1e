package etcdtest

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft/etcdstore/etcdserver"
)

// Compact compacts a server's whole history, as servers do occasionally.
func Compact(t testing.TB, server *etcdserver.Server) {
	t.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	now, err := etcd.Get(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	_, err = etcd.Compact(t.Context(), now.Header.Revision)
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) { // the request was sent twice
		t.Fatal(err)
	}
}
