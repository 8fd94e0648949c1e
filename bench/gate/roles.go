package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/placement"
	"croft/placementclient"
	"croft/trust/gate"
	"croft/trust/pki"
)

// Identities in this cloud. Their partition need not match the one in etcd.
const partition croft.PartitionID = "11111111-1111-4111-8111-111111111111"

var (
	member   = pki.MemberIdentity(partition, "22222222-2222-4222-8222-222222222222")
	operator = pki.OperatorIdentity(partition, "bench")
	log      = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
)

// issue issues a certificate of an authority for an identity.
func (r run) issue(ctx context.Context, ca *pki.CA, a pki.Authority, id pki.Identity) error {
	k := pki.Keeper{Files: r.files(a, id), Issuer: ca.For(id, "127.0.0.1"),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	_, err := k.Ensure(ctx)
	return err
}

// tell stores an address for the other processes; address reads it.
func (r run) tell(what, address string) error {
	return os.WriteFile(filepath.Join(r.dir, what+".address"), []byte(address), 0o600)
}

func (r run) address(what string) string {
	text, _ := os.ReadFile(filepath.Join(r.dir, what+".address")) // a missing address fails where it is used
	return strings.TrimSpace(string(text))
}

// control runs etcd, Placement and the gate, each with mutual TLS.
func (r run) control(ctx context.Context) (err error) {
	ca, err := pki.OpenCA(filepath.Join(r.dir, "ca"), partition)
	if err != nil {
		return err
	}
	for _, a := range pki.Authorities {
		if err := errors.Join(r.issue(ctx, ca, a, member), r.issue(ctx, ca, a, operator)); err != nil {
			return err
		}
	}
	files := r.files(pki.Etcd, member)
	etcd, err := etcdserver.Start(ctx, etcdserver.Config{Dir: filepath.Join(r.dir, "etcd"),
		Listen: "127.0.0.1:0",
		Cert:   files.Pair(), Key: files.Pair(), ClientCA: files.CA()})
	if err != nil {
		return err
	}
	defer etcd.Close()
	store, err := etcdstore.Open(ctx, etcdstore.Config{Embedded: etcd, Mint: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	server, err := placement.New(placement.Config{Store: store.Placement(etcdserver.TxnOps), Log: log,
		Token: "admin", Randomize: true})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { _ = server.Run(ctx) })
	claims, err := r.serve(ctx, &work, "placement", server.Handler())
	if err != nil {
		return err
	}
	inventory, err := r.claims(claims, operator)
	if err != nil {
		return err
	}
	agents, err := gate.NewServer(gate.ServerConfig{Orders: store.Orders, Registry: store.Registry,
		Records: store.Records, Volumes: store.Volumes, Backups: store.Backups, Images: store.Images,
		Inventory: inventory, Usable: store.Usable, Log: log,
		Gates: func(context.Context) ([]string, error) { return nil, nil }, // agents here are configured with this gate
		Caller: func(r *http.Request) (croft.HostID, error) {
			id, _ := pki.Caller(r)
			return croft.HostID(id.ID), nil
		}})
	if err != nil {
		return err
	}
	if _, err := r.serve(ctx, &work, "gate", agents); err != nil {
		return err
	}
	if err := errors.Join(r.tell("etcd", etcd.Endpoint()), r.tell("partition", string(store.Partition()))); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}

// serve serves with TLS until ctx ends, and returns the address.
func (r run) serve(ctx context.Context, work *sync.WaitGroup, what string, h http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: h, TLSConfig: r.files(pki.Hosts, member).Server(partition, false,
		pki.Kinds(pki.Host, pki.Operator)),
		BaseContext: func(net.Listener) context.Context { return ctx }}
	work.Go(func() { _ = s.ServeTLS(l, "", "") })
	context.AfterFunc(ctx, func() { _ = s.Close() })
	address := "https://" + l.Addr().String()
	return address, r.tell(what, address)
}

// open connects to etcd with an identity.
func (r run) open(ctx context.Context, id pki.Identity) (*etcdstore.Store, error) {
	return etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{r.address("etcd")}, DialTimeout: time.Minute,
		Credentials: etcdstore.Credentials{TLS: r.files(pki.Etcd, id).Client(partition, pki.Kinds(pki.Member))}})
}

// claims returns a Placement client that authenticates with the certificate of the given identity.
func (r run) claims(endpoint string, id pki.Identity) (*placementclient.Client, error) {
	return placementclient.New(placementclient.Config{Endpoint: endpoint, Auth: placementclient.StaticToken("admin"),
		TLS: r.files(pki.Hosts, id).Client(partition, pki.Kinds(pki.Member))})
}

// agents runs the agents of all hosts.
func (r run) agents(ctx context.Context) error {
	ca, err := pki.OpenCA(filepath.Join(r.dir, "ca"), partition)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var work, starting sync.WaitGroup
	defer work.Wait()
	defer cancel()
	for n := range r.hosts {
		id := croft.NewHostID()
		for _, a := range pki.Authorities {
			if err := r.issue(ctx, ca, a, pki.HostIdentity(partition, id)); err != nil {
				return err
			}
		}
		agent, err := r.agent(ctx, id, fmt.Sprintf("host%04d", n))
		if err != nil {
			return err
		}
		starting.Add(1)
		work.Go(func() { _ = agent.Run(ctx, sync.OnceFunc(starting.Done)) })
	}
	starting.Wait()
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}

// agent creates an agent with its own connections, through the gate or directly.
func (r run) agent(ctx context.Context, id croft.HostID, name string) (*compute.Agent, error) {
	hv, err := sim.New(sim.Config{Log: log}) // needs no Close: guests boot at once, so there are no timers
	if err != nil {
		return nil, err
	}
	host := croft.Host{ID: id, Name: name, VirtType: "sim"}
	c := compute.Config{Host: host, Dir: filepath.Join(r.dir, name), NICs: []compute.NIC{{Network: "default"}},
		Hypervisor: hv, Images: sim.Images{}, Log: log}
	me := pki.HostIdentity(partition, id)
	if r.strict {
		client, err := gate.NewClient(gate.ClientConfig{Endpoints: []string{r.address("gate")}, Host: id,
			Partition: croft.PartitionID(r.address("partition")),
			TLS:       r.files(pki.Hosts, me).Client(partition, pki.Kinds(pki.Member))})
		if err != nil {
			return nil, err
		}
		c.Orders, c.Registry, c.Records, c.Inventory, c.Partition = client, client, client, client, client.Partition()
	} else {
		store, err := r.open(ctx, me)
		if err != nil {
			return nil, err
		}
		claims, err := r.claims(r.address("placement"), me)
		if err != nil {
			return nil, err
		}
		c.Orders, c.Registry, c.Records, c.Shared = store.Orders, store.Registry, store.Records, store.Turn
		c.Inventory, c.Partition = claims, store.Partition()
	}
	c.Provider = compute.Offer{VCPURatio: 1}.Provider(host, c.Partition,
		compute.Facts{CPUs: 64, MemoryMiB: 256 << 10, DiskGiB: 4 << 10})
	return compute.New(c)
}
