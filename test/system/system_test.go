package system

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	seedFlag = flag.Uint64("seed", 0, "run this seed alone")
	runsFlag = flag.Int("runs", 2, "how many random runs; make soak has more")
)

// regressions are seeds that once showed a bug; docs/contributors/track-record.md lists the bugs.
var regressions = []uint64{}

func TestWholeSystem(t *testing.T) {
	seeds := append([]uint64(nil), regressions...)
	for range *runsFlag {
		seeds = append(seeds, rand.Uint64N(1<<32))
	}
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	}
	t.Logf("sampled: seeds %d", seeds)
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { run(t, seed) })
	}
}

// run lets users and faults act on three hosts concurrently, then checks.
func run(t *testing.T, seed uint64) {
	w := newWorldWith(t, seed, 3+int(seed/2%2), newMood(seed).faulty, true)
	w.populate()
	ctx, stop := context.WithCancel(t.Context())
	var watch, users sync.WaitGroup
	hosts := w.hosts // while it settles, some hosts may be down
	watch.Go(func() { w.watchful(ctx, hosts) })
	acted := make(chan struct{})
	for n := range uint64(4) {
		users.Go(func() {
			a := w.actor(n + 1)
			for range 40 {
				a.act()
				acted <- struct{}{}
			}
		})
	}
	watch.Go(func() { users.Wait(); close(acted) })
	misfortune, count := w.actor(99), 0
	for range acted {
		if count++; count%w.mood.every == 0 {
			misfortune.disturb()
		}
	}
	w.fill()
	w.settle()
	if !t.Failed() {
		w.bulkAtRest()
	}
	if !t.Failed() {
		w.removeAll()
	}
	stop()
	watch.Wait()
	created, refused, destroyed := w.outcomes()
	t.Logf("%d requests: %d acknowledged, %d refused, the rest unknown; %d destroyed", len(w.facts), created, refused,
		destroyed)
	counts := w.tally.counts()
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		if !strings.HasPrefix(what, "crossed ") && !strings.HasPrefix(what, "failed ") {
			t.Logf("%d times %s", counts[what], what)
		}
	}
	if t.Failed() {
		t.Logf("again with: go test ./test/system -seed %d", seed)
	}
}
