package requests_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/manager"
	"croft/cluster/sim"
)

// withManager runs a manager with the stores and sites of a bench during test.
func withManager(b *bench, test func()) {
	b.Helper()
	m, err := manager.New(manager.Config{Backends: cluster.Backends{Partition: partition,
		Records: b.stores, Catalogue: b.stores, Vault: vault{},
		Drivers: map[cluster.SiteType]cluster.Driver{cluster.Sim: b.sites}, Log: b.log}})
	b.fatal(err)
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = m.Run(ctx) })
	test()
	stop()
	running.Wait()
}

// wait waits until no operation is in progress.
func (b *bench) wait(id croft.ClusterID, state cluster.State, members int) cluster.Cluster {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	c, err := b.Wait(ctx, "physics", string(id), nil)
	if err != nil || c.State != state || len(c.Members) != members {
		b.Fatalf("got %+v, %v, want %s with %d members", c, err, state, members)
	}
	return c
}

func TestALifeAsItsUserSeesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		withManager(b, func() {
			r := ask("one")
			r.Parameters = map[string]any{"pin": "1234"}
			id := b.create(r).ID
			c := b.wait(id, cluster.Ready, 3)
			first := c.Members[1].ID
			if again := b.create(r); again.ID != id || len(again.Uses) != 2 {
				t.Errorf("again: %+v", again)
			}
			for range 2 {
				_, err := b.AddHost(t.Context(), "physics", "one")
				b.fatal(err)
			}
			b.wait(id, cluster.Ready, 5)
			_, err := b.RemoveHost(t.Context(), "physics", "one", string(first))
			b.fatal(err)
			for _, m := range b.wait(id, cluster.Ready, 4).Members {
				if m.ID == first {
					t.Errorf("%s was removed, and is there", first)
				}
			}
			_, err = b.Delete(t.Context(), "physics", "one", cluster.Removal{User: "ada"})
			b.fatal(err)
			b.wait(id, cluster.Deleted, 0)
			if other := b.create(r); other.ID == id {
				t.Error("a deleted cluster was joined")
			}
		})
	})
}

func TestABuildThatFailsIsTriedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sites.Change("east", func(f *sim.Faults) { f.Fails = "No valid host" })
		withManager(b, func() {
			r := ask("one")
			r.Hints.PreferSites = []string{"east"}
			c := b.wait(b.create(r).ID, cluster.Ready, 3)
			if c.Site != "west" || len(c.Attempts) != 1 || c.Attempts[0].Site != "east" {
				t.Errorf("got %+v", c)
			}
			// A failed build is remembered: the next request, without preferences, prefers west.
			r = ask("two")
			r.Reuse = cluster.ReuseNever
			if e, err := b.Explain(t.Context(), r); err != nil || e.Candidates[0].Site != "west" ||
				e.Candidates[0].Why != "0 failures in the last hour, at the next 1" {
				t.Errorf("got %+v, %v", e, err)
			}
		})
	})
}

func TestAnUnusedClusterEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		withManager(b, func() {
			r := ask("one")
			r.KeepIdle = cluster.Seconds(time.Hour)
			c := b.create(r)
			b.wait(c.ID, cluster.Ready, 3)
			_, err := b.EndUse(t.Context(), "physics", "one", c.Uses[0].ID)
			b.fatal(err)
			time.Sleep(30 * time.Minute)
			if again := b.create(r); again.ID != c.ID {
				t.Error("it ended before its time, or was not joined")
			}
			time.Sleep(2 * time.Hour)
			now := b.wait(c.ID, cluster.Ready, 3)
			_, err = b.EndUse(t.Context(), "physics", "one", now.Uses[0].ID)
			b.fatal(err)
			time.Sleep(3 * time.Hour)
			b.wait(c.ID, cluster.Deleted, 0)
		})
	})
}
