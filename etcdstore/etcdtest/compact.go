package etcdtest

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft/etcdstore/etcdserver"
)

// Compact compacts a server's whole history, as happens from time to time.
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
	if _, err := etcd.Compact(t.Context(), now.Header.Revision); err != nil {
		t.Fatal(err)
	}
}
