package gate_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/compute/computetest"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/wire"
	"croft/placement"
	"croft/placementclient"
	"croft/trust/gate"
	"croft/trust/gate/gatetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cloud is etcd and Placement behind a gate.
type cloud struct {
	*etcdstore.Store
	*placementclient.Client
	server *etcdserver.Server
	front  *gatetest.Front
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{server: etcdtest.Server(t)}
	c.Store = etcdtest.Open(t, c.server)
	c.Client = startPlacement(t, c.Store)
	c.front = gatetest.Start(t, c.Partition(), c.config())
	return c
}

func (c *cloud) config() gate.ServerConfig {
	return gate.ServerConfig{Orders: c.Orders, Registry: c.Registry, Records: c.Records, Volumes: c.Volumes,
		Backups:   c.Backups,
		Images:    c.Images,
		Inventory: c.Client, Usable: c.Usable}
}

func startPlacement(t *testing.T, store *etcdstore.Store) *placementclient.Client {
	t.Helper()
	server, err := placement.New(placement.Config{Store: store.Placement(0), Log: slog.New(slog.DiscardHandler),
		Token: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var work sync.WaitGroup
	work.Go(func() { _ = server.Run(ctx) })
	front := httptest.NewServer(server.Handler())
	client, err := placementclient.New(placementclient.Config{Endpoint: front.URL, Auth: placementclient.StaticToken(
		"admin"),
		Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); front.Close(); cancel(); work.Wait() })
	return client
}

func TestTheGateKeepsTheContractOfCompute(t *testing.T) {
	c := newCloud(t)
	computetest.Run(t, func(t *testing.T) computetest.Cloud {
		host, w := croft.NewHostID(), wire.New(t, c.front.Address)
		return computetest.Cloud{Partition: c.Partition(), Host: host,
			Agent:  ports(c.front.Client(t, host, w.Address())),
			Others: c.others(), Break: w.Drop}
	})
}

// ports returns the ports of an agent behind the gate.
func ports(c *gate.Client) computetest.Ports {
	return computetest.Ports{Orders: c, Registry: c, Records: c, Inventory: c}
}

// others returns the ports of processes that reach etcd and Placement.
func (c *cloud) others() computetest.Others {
	return computetest.Others{Instances: c.Instances, Orders: c.Orders, Registry: c.Registry, Claims: c.Client}
}

func TestEtcdAndPlacementKeepTheContractOfCompute(t *testing.T) {
	c := newCloud(t)
	computetest.Run(t, func(t *testing.T) computetest.Cloud {
		w := wire.New(t, c.server.Endpoint()[len("http://"):])
		store, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{"http://" + w.Address()},
			DialTimeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return computetest.Cloud{Partition: c.Partition(), Host: croft.NewHostID(), Agent: computetest.Ports{
			Orders: store.Orders, Registry: store.Registry, Records: store.Records, Inventory: c.Client},
			Others: c.others(), Break: w.Drop}
	})
}
