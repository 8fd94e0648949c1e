package etcdtest

import (
	"os"
	"testing"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/internal/testing/freeport"
)

// EtcdCluster is an etcd of several servers, which joined one after the other, like hosts.
type EtcdCluster struct {
	Members []croft.EtcdMember
	Servers []*etcdserver.Server // nil: not running

	configs []etcdserver.Config
	access  etcdstore.Credentials
}

// StartCluster runs n servers, which end with the test.
func StartCluster(t testing.TB, n int) *EtcdCluster {
	t.Helper()
	return StartClusterOf(t, n, etcdserver.Config{})
}

// StartClusterOf is like StartCluster, with a configuration for the servers.
func StartClusterOf(t testing.TB, n int, kind etcdserver.Config) *EtcdCluster {
	t.Helper()
	return StartClusterFor(t, n, kind, etcdstore.Credentials{})
}

// StartClusterFor is like StartClusterOf, with servers that require the credentials in access.
func StartClusterFor(t testing.TB, n int, kind etcdserver.Config, access etcdstore.Credentials) *EtcdCluster {
	t.Helper()
	c := &EtcdCluster{access: access}
	for i := range n {
		c.add(t, kind)
		c.Start(t, i)
	}
	return c
}

// Join adds a server.
func (c *EtcdCluster) Join(t testing.TB) {
	t.Helper()
	c.JoinWith(t, c.configs[0])
}

// JoinWith adds a server with a configuration.
func (c *EtcdCluster) JoinWith(t testing.TB, kind etcdserver.Config) {
	t.Helper()
	c.add(t, kind)
	c.Start(t, len(c.configs)-1)
}

// JoinAt adds a server that keeps its data in dir, and checks the free space of its disk.
func (c *EtcdCluster) JoinAt(t testing.TB, dir string) {
	t.Helper()
	c.add(t, c.configs[0])
	last := &c.configs[len(c.configs)-1]
	last.Dir, last.Unsynced = dir, false
	c.Start(t, len(c.configs)-1)
}

// NewMember returns a member that has not joined.
func (c *EtcdCluster) NewMember(t testing.TB) croft.EtcdMember {
	t.Helper()
	host := croft.NewHostID()
	return croft.EtcdMember{Host: host, Name: "host-" + string(host)[:4],
		Peer: c.scheme() + freeport.For(t, "127.0.0.1")}
}

func (c *EtcdCluster) scheme() string {
	if len(c.configs) > 0 && c.configs[0].ClientCA != "" {
		return "https://"
	}
	return "http://"
}

func (c *EtcdCluster) add(t testing.TB, kind etcdserver.Config) {
	t.Helper()
	kind.Host, kind.Dir, kind.Unsynced = croft.NewHostID(), t.TempDir(), true
	kind.Listen, kind.Peer, kind.Cluster = freeport.For(t, "127.0.0.1"), freeport.For(t, "127.0.0.1"), ""
	c.configs = append(c.configs, kind)
	c.Servers = append(c.Servers, nil)
	m := c.NewMember(t)
	m.Host, m.Peer, m.Clients = kind.Host, c.scheme()+kind.Peer, []string{c.scheme() + kind.Listen}
	c.Members = append(c.Members, m)
	i := len(c.Servers) - 1
	t.Cleanup(func() {
		if c.Servers[i] != nil {
			c.Servers[i].Close()
		}
	})
}

// Start runs a server; a server without data joins.
func (c *EtcdCluster) Start(t testing.TB, i int) {
	t.Helper()
	config := c.configs[i]
	if i > 0 && !etcdserver.IsMember(config.Dir) {
		store := c.Open(t, 0)
		var err error
		if config.Cluster, err = store.Cluster.AddEtcdMember(t.Context(), c.Members[i]); err != nil {
			t.Fatal(err)
		}
	}
	server, err := etcdserver.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	c.Servers[i] = server
	if err := server.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Open(t, i).Cluster.PutEtcdMember(t.Context(), c.Members[i]); err != nil {
		t.Fatal(err)
	}
}

// Stop ends a server.
func (c *EtcdCluster) Stop(t testing.TB, i int) {
	t.Helper()
	c.Servers[i].Close()
	c.Servers[i] = nil
}

// Lose removes the data of a server that does not run.
func (c *EtcdCluster) Lose(t testing.TB, i int) {
	t.Helper()
	if err := os.RemoveAll(c.configs[i].Dir); err != nil {
		t.Fatal(err)
	}
}

// Open returns a store on one server.
func (c *EtcdCluster) Open(t testing.TB, i int) *etcdstore.Store {
	t.Helper()
	return open(t, etcdstore.Config{Endpoints: []string{c.Servers[i].Endpoint()}, Credentials: c.access})
}

// OpenAll returns a store with the endpoints of all servers, including stopped ones.
func (c *EtcdCluster) OpenAll(t testing.TB) *etcdstore.Store {
	t.Helper()
	var endpoints []string
	for _, m := range c.Members {
		endpoints = append(endpoints, m.Clients...)
	}
	return open(t, etcdstore.Config{Endpoints: endpoints, Credentials: c.access})
}
