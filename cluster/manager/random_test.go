package manager_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/sim"
)

var (
	historiesFlag = flag.Int("histories", 2, "how many random histories; make soak has more")
	seedFlag      = flag.Uint64("seed", 0, "the history of this seed alone")
)

// TestRandomHistories kills and starts managers, loses and delays answers, makes sites unavailable, hanging, full and
// failing, loses leases, and acts as users who create, resize, rename and delete. Then it removes all faults, and
// checks that every cluster reaches the state that its user asked for.
func TestRandomHistories(t *testing.T) {
	seeds := []uint64{*seedFlag}
	for *seedFlag == 0 && len(seeds) < *historiesFlag {
		seeds = append(seeds, 0)
	}
	for _, seed := range seeds {
		if seed == 0 {
			seed = rand.Uint64()
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				h := &history{bench: b, r: rand.New(rand.NewPCG(seed, 0)), owners: map[croft.ClusterID]*mortal{},
					expired: map[croft.ClusterID]time.Time{}}
				h.run()
			})
		})
	}
}

func (h *history) run() {
	for _, site := range []string{"east", "west"} { // so that sweeps cover them
		h.credential(site)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var managers sync.WaitGroup
	for range 2 {
		managers.Go(func() {
			for ctx.Err() == nil {
				h.live(ctx, 4)
				time.Sleep(time.Duration(h.dice(20000)) * time.Millisecond)
			}
		})
	}
	for range 300 {
		h.happen()
		time.Sleep(time.Duration(h.dice(20000)) * time.Millisecond)
	}
	cancel()
	managers.Wait()
	for _, site := range []string{"east", "west"} {
		h.at(site, func(f *sim.Faults) { *f = sim.Faults{} })
	}
	ctx, cancel = context.WithCancel(context.Background())
	for range 2 {
		managers.Go(func() { h.live(ctx, 0) })
	}
	h.heal()
	h.end()
	cancel()
	managers.Wait()
}

// happen performs one random event.
func (h *history) happen() {
	site := []string{"east", "west"}[h.dice(2)]
	all, err := h.store.List(h.Context(), "")
	h.fatal(err)
	all = slices.DeleteFunc(all, func(c cluster.Cluster) bool { return c.State == cluster.Deleted })
	switch n := h.dice(20); {
	case n < 5 && len(all) < 10:
		h.ask()
	case n < 12 && len(all) > 0:
		h.change(all[h.dice(len(all))])
	case n < 13 && len(all) > 0: // a lease is lost although its manager is alive
		h.expire(all[h.dice(len(all))].ID)
	case n < 15:
		h.at(site, func(f *sim.Faults) { *f = sim.Faults{} })
	default:
		h.at(site, h.fault)
	}
}

// fault sets random faults of a site.
func (h *history) fault(f *sim.Faults) {
	f.Lost, f.Late, f.Most = float64(h.dice(20)), float64(h.dice(20)), 3*time.Minute
	f.Delay = time.Duration(1+h.dice(60)) * time.Second
	switch h.dice(7) {
	case 0:
		f.Away = true
	case 1:
		f.Hangs = true
	case 2:
		f.Fails = "it is told to"
	case 3:
		f.Sticks = "it is told to"
	case 4:
		f.Frozen = true
	case 5:
		f.Room = 5 + h.dice(20)
	case 6:
		f.Denied = true
	}
}

func (h *history) ask() {
	r := ask(fmt.Sprintf("c%d", h.dice(1000000)))
	r.Slaves = h.dice(4)
	switch h.dice(4) {
	case 0:
		r.Hints.Sites = []string{"west"}
	case 1:
		r.Expires = cluster.Seconds(time.Hour)
	}
	_, err := h.Create(h.Context(), r)
	h.may(err)
}

// may accepts an error that users may get under these faults.
func (h *history) may(err error) {
	if kind := croft.KindOf(err); err != nil && kind != croft.Conflict && kind != croft.NoCapacity &&
		kind != croft.Unavailable && kind != croft.NotFound && kind != croft.Denied {
		h.Errorf("a user got %v", err)
	}
}

func (h *history) change(c cluster.Cluster) {
	var err error
	switch h.dice(5) {
	case 0, 1:
		_, err = h.AddHost(h.Context(), "physics", string(c.ID))
	case 2:
		if len(c.Indexes) > 0 {
			i := c.Indexes[h.dice(len(c.Indexes))]
			_, err = h.RemoveHost(h.Context(), "physics", string(c.ID), string(cluster.IDOf(c.ID, cluster.Slave, i)))
		}
	case 3:
		name := fmt.Sprintf("n%d", h.dice(1000000))
		_, err = h.Change(h.Context(), "physics", string(c.ID), cluster.Change{Name: &name}, nil)
	case 4:
		_, err = h.Delete(h.Context(), "physics", string(c.ID), cluster.Removal{User: "ada"})
	}
	if croft.KindOf(err) != croft.Invalid { // a host that was just removed
		h.may(err)
	}
}

// heal waits until all clusters are settled, and compares them with the state of the sites.
func (h *history) heal() {
	h.Helper()
	for end := time.Now().Add(4 * time.Hour); ; time.Sleep(time.Minute) {
		var open []string
		all, err := h.store.List(h.Context(), "")
		h.fatal(err)
		for _, c := range all {
			if !c.State.Settled() {
				open = append(open, fmt.Sprintf("%s %s: %s, error %+v, retry %+v", c.ID, c.State, c.Step, c.Error,
					c.Retry))
			}
		}
		if len(open) == 0 {
			break
		}
		if time.Now().After(end) {
			h.Fatalf("these are not settled:\n%s", strings.Join(open, "\n"))
		}
	}
	time.Sleep(2 * time.Hour) // time for sweeps, and for the removal of failed builds
	h.compare()
}

// compare checks that each cluster exists exactly once, at the site in its record, and that the sites have nothing
// else.
func (h *history) compare() {
	h.Helper()
	where := map[croft.ClusterID][]string{}
	for _, site := range []string{"east", "west"} {
		all, err := h.sites.List(h.Context(), cluster.SiteAccess{Partition: partition, Site: cluster.Site{Name: site}})
		h.fatal(err)
		for _, f := range all {
			where[f.Cluster] = append(where[f.Cluster], site)
		}
	}
	all, err := h.store.List(h.Context(), "")
	h.fatal(err)
	states := map[cluster.State]int{}
	for _, c := range all {
		states[c.State]++
		var want []string
		if c.State == cluster.Ready || c.State == cluster.Degraded || c.State == cluster.Failed && c.Remote.Asked &&
			c.Error.Code != cluster.FailedRemoved {
			want = []string{c.Site}
		}
		if got := where[c.ID]; !slices.Equal(got, want) {
			h.Errorf("cluster %s is %s (%+v) and is at %v, want at %v", c.ID, c.State, c.Error, got, want)
		}
		delete(where, c.ID)
		if c.State == cluster.Failed && c.Remote.Asked && !c.KeptUntil.IsZero() &&
			time.Now().After(c.KeptUntil.Add(time.Hour)) {
			h.Errorf("what is left of cluster %s was to be kept until %s, and is still there", c.ID, c.KeptUntil)
		}
		if c.State == cluster.Ready {
			h.sameSize(c)
		}
		if c.State == cluster.Ready && (len(c.Members) != 1+c.Slaves || c.Slaves != len(c.Indexes)) {
			h.Errorf("cluster %s is READY with %d slaves, %v, %+v", c.ID, c.Slaves, c.Indexes, c.Members)
		}
	}
	if len(where) > 0 {
		h.Errorf("sites have clusters without a record: %v", where)
	}
	h.Logf("%v", states)
}

// sameSize checks that the site has exactly the slaves in the record.
func (h *history) sameSize(c cluster.Cluster) {
	h.Helper()
	b := cluster.Build{Partition: partition, Cluster: c.ID, Remote: c.Remote}
	for i := range c.NextIndex {
		b.Indexes = append(b.Indexes, i)
	}
	all, err := h.sites.Observe(h.Context(), cluster.SiteAccess{Site: cluster.Site{Name: c.Site}}, []cluster.Build{b})
	h.fatal(err)
	var got []int
	for _, m := range all[c.ID].Members {
		if m.Role == cluster.Slave {
			got = append(got, m.Index)
		}
	}
	if !slices.Equal(got, c.Indexes) {
		h.Errorf("cluster %s has slaves %v, and its site %v (%+v)", c.ID, c.Indexes, got, c.Sizing)
	}
}

// end deletes all clusters, and checks that the sites have nothing left.
func (h *history) end() {
	h.Helper()
	all, err := h.store.List(h.Context(), "")
	h.fatal(err)
	for _, c := range all {
		if c.State != cluster.Deleted {
			h.delete(c.ID)
		}
	}
	time.Sleep(time.Hour)
	if n := h.has("east") + h.has("west"); n > 0 {
		h.Errorf("sites still have %d clusters", n)
	}
	time.Sleep(cluster.Remembered)
	all, err = h.store.List(h.Context(), "")
	h.fatal(err)
	for _, c := range all {
		h.Errorf("there is still a record of %s, which is %s", c.ID, c.State)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.owners) > 0 {
		h.Errorf("managers still hold %d clusters", len(h.owners))
	}
}

// TestOnlyTheHolderActs ends leases while a site does not answer, so that requests have to be repeated.
func TestOnlyTheHolderActs(t *testing.T) {
	inBubble(t, func(b *bench) {
		h := &history{bench: b, r: rand.New(rand.NewPCG(rand.Uint64(), 0)), owners: map[croft.ClusterID]*mortal{},
			expired: map[croft.ClusterID]time.Time{}}
		ctx, cancel := context.WithCancel(context.Background())
		var managers sync.WaitGroup
		for range 2 {
			managers.Go(func() { h.live(ctx, 0) })
		}
		id := h.create(ask("one", "east"))
		h.at("east", func(f *sim.Faults) { f.Lost = 100 })
		h.untilState(id, cluster.Building)
		for range 20 { // launches are repeated
			time.Sleep(time.Minute)
			h.expire(id)
		}
		for range 40 {
			h.at("east", func(f *sim.Faults) { f.Lost, f.Delay = 60, time.Minute })
			time.Sleep(time.Duration(h.dice(30000)) * time.Millisecond)
			h.expire(id)
			if c := h.get(id); c.State == cluster.Ready && h.dice(2) == 0 {
				_, err := h.AddHost(h.Context(), "physics", "one")
				h.may(err)
			}
		}
		h.at("east", func(f *sim.Faults) { *f = sim.Faults{} })
		c := h.until(id, 3*time.Hour, "ready", func(c cluster.Cluster) bool {
			return c.State == cluster.Ready && c.Sizing.Open == 0
		})
		h.sameSize(c)
		cancel()
		managers.Wait()
	})
}
