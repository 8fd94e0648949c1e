package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
	"croft/etcdstore"
	"croft/placementclient"
)

// runAgents is the first argument with which the benchmark starts itself to run agents.
const runAgents = "agents"

// agents are the simulated hosts of one process.
type agents struct {
	first, hosts, shared int
	etcd, placement, dir string
	resync               time.Duration
}

func (a *agents) flags() *flag.FlagSet {
	f := flag.NewFlagSet(runAgents, flag.ContinueOnError)
	f.IntVar(&a.first, "first", 0, "number of the first host")
	f.IntVar(&a.hosts, "hosts", 1, "how many hosts")
	f.IntVar(&a.shared, "agents-per-connection", 1, "agents that share a connection to etcd")
	f.StringVar(&a.etcd, "etcd", "", "etcd's endpoint")
	f.StringVar(&a.placement, "placement", "", "the Placement server")
	f.StringVar(&a.dir, "dir", "", "where the hosts keep their instances")
	f.DurationVar(&a.resync, "resync", 30*time.Second, "how often agents compare all that they have")
	return f
}

// run runs the agents until ctx ends, and reports to the benchmark once all take orders.
func (a *agents) run(ctx context.Context, stderr io.Writer) (err error) {
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	claims, err := placementclient.New(placementclient.Config{Endpoint: a.placement})
	if err != nil {
		return err
	}
	var work, starting sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer work.Wait()
	defer cancel()
	var store *etcdstore.Store
	for n := range a.hosts {
		if n%a.shared == 0 {
			if store, err = etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{a.etcd}, DialTimeout: time.Minute,
				Mint: true}); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, store.Close()) }()
		}
		agent, err := a.agent(a.first+n, store, claims, log)
		if err != nil {
			return err
		}
		starting.Add(1)
		work.Go(func() {
			if err := agent.Run(ctx, sync.OnceFunc(starting.Done)); err != nil {
				log.Warn("an agent ended", "host", agent.Host.ID, "err", err)
			}
		})
	}
	all := make(chan struct{})
	go func() { // if agents never get ready, it ends with the process
		starting.Wait()
		close(all)
	}()
	select {
	case <-all:
		tellReady()
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// agent creates the agent of one host.
func (a *agents) agent(n int, store *etcdstore.Store, claims *placementclient.Client, log *slog.Logger) (*compute.Agent,
	error) {
	hv, err := sim.New(sim.Config{Log: log}) // needs no Close: guests boot at once, so there are no timers
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(a.dir, fmt.Sprintf("host%05d", n))
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make the directory of a host: %w", err)
	}
	host := croft.Host{ID: croft.NewHostID(), Name: filepath.Base(dir), Version: "benchmark", VirtType: "sim"}
	facts := compute.Facts{Name: host.Name, CPUs: 64, MemoryMiB: 256 << 10, DiskGiB: 4 << 10}
	return compute.New(compute.Config{
		Host: host, Partition: store.Partition(), Provider: compute.Offer{VCPURatio: 1, MemoryRatio: 1,
			DiskRatio: 1}.Provider(host, store.Partition(), facts),
		Dir: dir, NICs: []compute.NIC{{Network: "default"}},
		Orders: store.Orders, Registry: store.Registry, Records: store.Records, Shared: store.Turn, Inventory: claims,
		Hypervisor: hv, Images: sim.Images{}, ResyncEvery: a.resync, Log: log,
	})
}
