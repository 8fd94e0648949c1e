package pool_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/internal/testing/patient"
	"croft/pool"
	hook "croft/pool/shell"
)

// server returns a manager on a separate store.
func server(tb testing.TB, pools string, synced bool) *pool.Manager {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pools.yaml"), []byte(pools), 0o600); err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m, end, err := manager(ctx, dir, synced)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		stop()
		if err := end(); err != nil {
			tb.Error(err)
		}
	})
	await(tb, "a leader", func() bool { _, here := m.Leader(); return here })
	return m
}

// manager runs a complete pool server in a directory until ctx ends; end waits for its end.
func manager(ctx context.Context, dir string, synced bool) (m *pool.Manager, end func() error, err error) {
	etcd, err := etcdserver.Start(ctx, etcdserver.Config{Dir: filepath.Join(dir, "etcd"),
		Listen: "127.0.0.1:0", Unsynced: !synced})
	if err != nil {
		return nil, nil, err
	}
	store, err := etcdstore.Open(ctx, etcdstore.Config{Embedded: etcd, Mint: true, DialTimeout: 30 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	hooks, err := hook.New(hook.Config{Dir: dir, Mark: string(store.Partition())})
	if err != nil {
		err = errors.Join(err, store.Close())
		etcd.Close()
		return nil, nil, err
	}
	m, err = pool.New(pool.Config{Partition: store.Partition(), Store: store.Pools, Hooks: hooks,
		File: filepath.Join(dir, "pools.yaml"),
		Me:   pool.Server{Name: "one", Machine: "here", Directory: hooks.Directory()}})
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	return m, func() error {
		err := errors.Join(<-ended, store.Close(), hooks.Close())
		etcd.Close()
		return err
	}, nil
}

func await(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	patient.Until(tb, what, done)
}

// serve makes clients take, get and return tickets one after the other, and returns how long each waited for its
// resource, sorted, and how many were served per second.
func serve(tb testing.TB, m *pool.Manager, clients, each int,
	open func(client int) pool.Opening) (waits []time.Duration, rate float64) {
	tb.Helper()
	var mu sync.Mutex
	var work sync.WaitGroup
	begun := time.Now()
	for c := range clients {
		work.Go(func() {
			for range each {
				t := time.Now()
				st, err := m.Open(tb.Context(), open(c))
				if err == nil {
					st, err = m.Wait(tb.Context(), st.ID)
				}
				if err != nil || !st.Ready() {
					tb.Errorf("got %v: %v", st, err)
					return
				}
				wait := time.Since(t)
				if err := m.Close(tb.Context(), st.ID); err != nil {
					tb.Error(err)
					return
				}
				mu.Lock()
				waits = append(waits, wait)
				mu.Unlock()
			}
		})
	}
	work.Wait()
	rate = float64(len(waits)) / time.Since(begun).Seconds()
	slices.Sort(waits)
	return waits, rate
}

func BenchmarkTickets(b *testing.B) {
	for _, c := range []struct {
		name, settings string
		sandbox        bool
		clients        int
	}{
		{"two shells a ticket", "", false, 20},
		{"reused", "  reuse_opportunity_time: 60\n  reuse_max_time: 0\n", true, 20},
		{"one client, from what is warm", "", false, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := server(b,
				"p:\n  cmd_new: echo ok\n  cmd_delete: \"true\"\n  max: 40\n  max_starting: 20\n  max_prealloc: 20\n  tags: [a]\n"+c.settings, true)
			waits, rate := serve(b, m, c.clients, max(1, b.N/c.clients), func(client int) pool.Opening {
				o := pool.Opening{Tags: []string{"a"}}
				if c.sandbox {
					o.Sandbox = fmt.Sprint("client", client)
				}
				return o
			})
			b.ReportMetric(rate, "tickets/s")
			b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, "ready-p50-ms")
			b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "ready-p99-ms")
		})
	}
}
