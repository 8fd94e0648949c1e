package move

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/compute/diskcopy"
	"croft/etcdstore/etcdserver"
	"croft/hosts"
	"croft/schedule"
	"croft/test/simcloud"
)

// patience bounds each wait.
const patience = time.Minute

// world is a cloud with the hosts a, b and c.
type world struct {
	*testing.T
	*simcloud.Cloud
	fleet     *hosts.Fleet
	scheduler *schedule.Scheduler
}

// newWorld starts a cloud; prepare changes it before its hosts start.
func newWorld(t *testing.T, prepare func(*world)) *world {
	t.Helper()
	c, err := simcloud.New(t.Context(), t.TempDir(), etcdserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	w := &world{T: t, Cloud: c}
	if prepare != nil {
		prepare(w)
	}
	for _, host := range []string{"a", "b", "c"} {
		w.must(c.AddHost(t.Context(), host, 2))
	}
	w.fleet, err = hosts.New(hosts.Config{Partition: c.Store.Partition(), Hosts: c.Store.Registry,
		Members: c.Store.Cluster, Instances: c.Store.Instances, Orders: c.Store.Orders, Claims: c.Claims,
		Volumes: c.Store.Volumes})
	w.must(err)
	w.scheduler, err = schedule.New(schedule.Config{Partition: c.Store.Partition(), Records: c.Store.Instances,
		Registry: c.Store.Registry, Holds: c.Store.Instances, View: c.Store.Instances, Claims: c.Claims,
		Groups: c.Store.Groups, Log: slog.New(slog.DiscardHandler)})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// host returns the ID of a host.
func (w *world) host(name string) croft.HostID { return w.Hosts[name].ID }

// file returns the path of a file of an instance on a host.
func (w *world) file(host string, id croft.InstanceID, name string) string {
	return filepath.Join(w.Dir, host, string(id), name)
}

// place asks for a running instance on a host, and writes data on its disk.
func (w *world) place(name, host string, data []byte) croft.Instance {
	w.Helper()
	for other, h := range w.Hosts {
		if other != host {
			w.must(w.Store.Registry.Drain(w.Context(), h.ID))
		}
	}
	query, err := schedule.ParseQuery("VCPU:1,MEMORY_MB:256,DISK_GB:1")
	w.must(err)
	made, err := w.scheduler.Request(w.Context(), schedule.Request{Name: name, Query: query, Image: "/image"})
	w.must(err)
	w.await("it runs", made.Instance.ID, func(st croft.Status) bool { return runsOn(st, w.host(host)) })
	for _, h := range w.Hosts {
		w.must(w.Store.Registry.Enable(w.Context(), h.ID))
	}
	w.must(os.WriteFile(w.file(host, made.Instance.ID, "disk.qcow2"), data, 0o600))
	return made.Instance
}

// data returns the contents of a disk of n chunks and a bit.
func data(n int) []byte {
	all := make([]byte, n*diskcopy.Chunk+99)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(all)
	return all
}

func runsOn(st croft.Status, host croft.HostID) bool {
	return st.Instance.Host == host && !st.Instance.Copying && st.Observation != nil &&
		st.Observation.Generation == st.Instance.Generation && st.Observation.State == croft.StateRunning
}

func (w *world) status(id croft.InstanceID) croft.Status {
	w.Helper()
	st, err := w.Store.Instances.FindByID(w.Context(), id)
	w.must(err)
	return st
}

// await waits until an instance is as wanted.
func (w *world) await(what string, id croft.InstanceID, wanted func(croft.Status) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	reached := false
	var mu sync.Mutex // calls may overlap
	_ = w.Store.Instances.WatchInstances(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if st, err := w.Store.Instances.FindByID(ctx, id); err == nil && wanted(st) {
			reached = true
			cancel()
		}
	})
	if !reached {
		st := w.status(id)
		w.Fatalf("never: %s; it is %+v, ordered %+v, seen %+v", what, st.Instance, st.Order, st.Observation)
	}
}

// awaitOnly waits until an instance runs, or is off, on one host with this data, and no other host has anything of it.
func (w *world) awaitOnly(id croft.InstanceID, on string, state croft.State, want []byte) {
	w.Helper()
	w.await("it is only on "+on, id, func(st croft.Status) bool {
		if st.Instance.Host != w.host(on) || st.Instance.Copying || st.Instance.Moving != "" || st.Observation == nil ||
			st.Observation.State != state || st.Observation.Generation != st.Instance.Generation {
			return false
		}
		for name, h := range w.Hosts {
			if _, err := w.Store.Orders.Observed(w.Context(), h.ID, id); err == nil && name != on {
				return false
			}
			if remains, err := w.Store.Orders.Remains(w.Context(), h.ID, id); err != nil || remains && name != on {
				return false
			}
		}
		return true
	})
	got, err := os.ReadFile(w.file(on, id, "disk.qcow2"))
	if err != nil || !bytes.Equal(got, want) {
		w.Errorf("the disk on %s has %d bytes, not the %d of the guest: %v", on, len(got), len(want), err)
	}
	claim, err := w.Claims.ClaimOf(w.Context(), id)
	w.must(err)
	if all := slices.Collect(maps.Keys(claim.Allocations)); len(all) != 1 || all[0] != w.host(on) {
		w.Errorf("it claims on %v, and is on %s", all, w.host(on))
	}
	for name := range w.Hosts {
		if _, err := os.Stat(filepath.Join(w.Dir, name, string(id))); name != on && !errors.Is(err, os.ErrNotExist) {
			w.Errorf("host %s still has its files: %v", name, err)
		}
	}
}

// move orders a move.
func (w *world) move(id croft.InstanceID, to string) error {
	w.Helper()
	_, err := w.fleet.Move(w.Context(), w.status(id), to)
	return err
}

// transport is the connections between agents.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
