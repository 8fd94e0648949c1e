package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"croft"
	"croft/compute"
	"croft/etcdstore/etcdtest"
)

// break HOW WHAT corrupts the records, bypassing everything that keeps them consistent.
func breakBooks(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: break HOW HOST|INSTANCE")
	}
	b := breaker{cloudOf(ts).testCloud, context.Background()}
	how := map[string]func(string) error{
		"leak-claim": b.leakClaim, "drop-claim": b.dropClaim, "lose-name": b.loseName, "drop-name": b.dropName,
		"drop-order": b.dropOrder, "stray-observation": b.strayObservation,
		"stray-guest": b.strayGuest, "undefine": b.undefine, "stray-files": b.strayFiles,
	}[args[0]]
	if how == nil {
		ts.Fatalf("there is no way to break %s", args[0])
	}
	ts.Check(how(args[1]))
}

type breaker struct {
	*testCloud
	ctx context.Context
}

func (b breaker) put(key, value string) error {
	return etcdtest.Put(b.ctx, b.Etcd.Endpoint(), b.Store.Partition(), key, value)
}

func (b breaker) delete(key string) error {
	return etcdtest.Delete(b.ctx, b.Etcd.Endpoint(), b.Store.Partition(), key)
}

func (b breaker) leakClaim(host string) error {
	c := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{b.Hosts[host].ID: {croft.VCPU: 1}}}
	owner := croft.Owner{Partition: b.Store.Partition(), Project: croft.DefaultProject}
	return b.Claims.Claim(b.ctx, croft.NewInstanceID(), owner, c)
}

func (b breaker) dropClaim(name string) error {
	st, err := b.Store.Instances.Find(b.ctx, croft.DefaultProject, name)
	if err != nil {
		return err
	}
	return b.Claims.Release(b.ctx, st.Instance.ID, croft.On())
}

func (b breaker) loseName(name string) error {
	return b.put("names/default/"+name, string(croft.NewInstanceID()))
}

func (b breaker) dropName(name string) error { return b.delete("names/default/" + name) }

func (b breaker) dropOrder(name string) error {
	st, err := b.Store.Instances.Find(b.ctx, croft.DefaultProject, name)
	if err != nil {
		return err
	}
	return b.delete("orders/" + string(st.Instance.Host) + "/" + string(st.Instance.ID))
}

func (b breaker) strayObservation(host string) error {
	id := string(croft.NewInstanceID())
	at := string(b.Hosts[host].ID) + "/" + id
	return b.put("observed/"+at, `{"host":"`+string(b.Hosts[host].ID)+`","instance":"`+id+
		`","generation":1,"state":"running","updated":"2026-01-01T00:00:00Z"}`)
}

func (b breaker) strayGuest(host string) error {
	return b.Hosts[host].Hypervisor.Define(b.ctx, compute.Machine{ID: croft.NewInstanceID(),
		Partition: b.Store.Partition(), Ordered: compute.Ordered{Generation: 1}, Name: "stray",
		VCPUs: 1, MemoryMiB: 1})
}

// undefine removes every domain of a host.
func (b breaker) undefine(host string) error {
	domains, err := b.Hosts[host].Hypervisor.List(b.ctx)
	if err != nil {
		return err
	}
	for _, d := range domains {
		if err := b.Hosts[host].Hypervisor.Remove(b.ctx, d.ID); err != nil {
			return err
		}
	}
	return nil
}

func (b breaker) strayFiles(host string) error {
	return os.Mkdir(filepath.Join(b.Dir, host, string(croft.NewInstanceID())), 0o755)
}
