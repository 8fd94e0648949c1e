package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/compute/image"
	"croft/control/cloud/direct"
	"croft/internal/testing/patient"
	"croft/pool"
	hook "croft/pool/shell"
	"croft/pool/vm"
	"croft/schedule"
)

// poolOfInstances runs a cloud with one host and a manager of pools on it.
func poolOfInstances(t *testing.T, file string) (*testCloud, *pool.Manager) {
	t.Helper()
	cloud, err := newTestCloud(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cloud.Close)
	if err := cloud.AddHost(t.Context(), "alpha", 4); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pools.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	hooks, err := hook.New(hook.Config{Dir: dir, Mark: string(cloud.Store.Partition())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hooks.Close() })
	scheduler, err := schedule.New(schedule.Config{Partition: cloud.Store.Partition(),
		Records: cloud.Store.Instances, Holds: cloud.Store.Instances, View: cloud.Store.Instances,
		Registry: cloud.Store.Registry, Groups: cloud.Store.Groups, Claims: cloud.Claims})
	if err != nil {
		t.Fatal(err)
	}
	instances, err := vm.New(vm.Config{Scheduler: scheduler, Keys: cloud.Store.SSHKeys,
		ResolveImage: image.ReferenceFor,
		Image:        direct.Defaults().Image})
	if err != nil {
		t.Fatal(err)
	}
	m, err := pool.New(pool.Config{Partition: cloud.Store.Partition(), Store: cloud.Store.Pools, Hooks: hooks,
		Instances: instances, File: filepath.Join(dir, "pools.yaml"), Me: pool.Server{Name: "one", Machine: "here"}})
	if err != nil {
		t.Fatal(err)
	}
	cloud.Run(t.Context(), m.Run)
	return cloud, m
}

// A start that fails at first on a busy host succeeds when its agent retries: the instance is not replaced. A permanent
// failure is reported, and the pool still shows it when a later start succeeds.
func TestAStartOutlastsWhatItsHostTriesAgain(t *testing.T) {
	_, m := poolOfInstances(t, strings.NewReplacer("tiny", "busy", "max: 3", "max: 1", "max_prealloc: 2",
		"max_prealloc: 1").Replace(instancePool))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // the agent retries every 30 seconds
	defer cancel()
	patient.Until(t, "the manager acts", func() bool { _, here := m.Leader(); return here })
	watching, ready := context.WithCancel(ctx)
	defer ready()
	err := m.Watch(watching, func() {
		if pools, err := m.Pools(); err == nil && len(pools) == 1 && pools[0].Counts.Free == 1 {
			ready()
		}
	})
	pools, perr := m.Pools()
	if ctx.Err() != nil || perr != nil {
		t.Fatalf("it never became ready: %+v, %v, %v", pools, err, perr)
	}
	if s := pools[0].Stats; s.Starts != 1 || s.Failures != 0 || pools[0].LastFailure != nil {
		t.Errorf("%d starts, %d failed: %+v", s.Starts, s.Failures, pools[0].LastFailure)
	}
}

const instancePool = `
vm:
  instance: {resources: 'VCPU:1,MEMORY_MB:256,DISK_GB:1', image: /images/tiny.qcow2}
  tags: [vm]
  max: 3
  max_prealloc: 2
  max_starting: 2
`

// A pool of two instances: a ticket gets an address, closing it makes the next one warm, and a guest that shuts
// itself down is replaced.
func TestAPoolOfInstances(t *testing.T) {
	cloud, m := poolOfInstances(t, instancePool)
	ctx, cancel := context.WithTimeout(t.Context(), patient.Longest)
	defer cancel()
	patient.Until(t, "the manager acts", func() bool { _, here := m.Leader(); return here })
	await := func(what string, done func() bool) {
		t.Helper()
		watching, cancel := context.WithCancel(ctx)
		defer cancel()
		if err := m.Watch(watching, func() {
			if done() {
				cancel()
			}
		}); ctx.Err() != nil {
			all, _ := m.Resources(true)
			t.Fatalf("waited for %s: %+v, %v, file: %v", what, all, err, m.Fault())
		}
	}
	counts := func(what string, is func(pool.Counts) bool) {
		t.Helper()
		await(what, func() bool {
			pools, err := m.Pools()
			return err == nil && len(pools) == 1 && is(pools[0].Counts)
		})
	}
	counts("two warm ones", func(c pool.Counts) bool { return c.Free == 2 })
	st, err := m.Open(ctx, pool.Opening{Tags: []string{"vm"}})
	if err != nil {
		t.Fatal(err)
	}
	if st, err = m.Wait(ctx, st.ID); err != nil {
		t.Fatal(err)
	}
	var facts vm.Facts
	if err := json.Unmarshal(st.Has.Facts, &facts); err != nil || facts.Instance != st.Has.Instance ||
		string(st.Has.Data) != facts.Address+"\n" {
		t.Errorf("got the facts %s and the data %q: %v", st.Has.Facts, st.Has.Data, err)
	}
	if err := m.Close(ctx, st.ID); err != nil {
		t.Fatal(err)
	}
	counts("two warm ones and none that was used", func(c pool.Counts) bool { return c.Free == 2 && c.Live() == 2 })
	if _, err := cloud.Store.Instances.FindByID(ctx, st.Has.Instance); croft.KindOf(err) != croft.NotFound {
		t.Errorf("the instance that was used: got %v, want that it is gone", err)
	}

	all, err := m.Resources(false)
	if err != nil {
		t.Fatal(err)
	}
	killed := all[0]
	if err := cloud.Hosts["alpha"].Hypervisor.Stop(ctx, killed.Instance); err != nil {
		t.Fatal(err)
	}
	await("the end of the one that was killed", func() bool {
		killed, err = m.Resource(killed.ID.String())
		return err == nil && killed.State == pool.Ended
	})
	if !strings.HasPrefix(killed.Reason, "it is lost: ") {
		t.Errorf("the one that was killed: %q", killed.Reason)
	}
	counts("two warm ones again", func(c pool.Counts) bool { return c.Free == 2 && c.Live() == 2 })
}
