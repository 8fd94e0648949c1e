package kill

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// The settings of a run.
const (
	durationEnv = "CROFT_KILL"
	seedEnv     = "CROFT_KILL_SEED"
)

// users is the number of users who type commands concurrently.
const users = 6

// length is the duration of one test: 15 s by default. make soak and make kill-loop set 20 minutes.
func length(t *testing.T) time.Duration {
	if testing.Short() {
		t.Skip("it takes some minutes")
	}
	text := cmp.Or(os.Getenv(durationEnv), "15s")
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", durationEnv, err)
	}
	return d
}

func seed(t *testing.T) uint64 {
	text := os.Getenv(seedEnv)
	if text == "" {
		return rand.Uint64N(1 << 32)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", seedEnv, err)
	}
	return n
}

// One process serves etcd and Placement, three hosts run the guests.
func TestKilledProcessesLoseAndLeaveNothing(t *testing.T) {
	t.Parallel() // at the end both wait for the leases of killed commands
	w := newWorld(t, seed(t), length(t))
	w.writeSettings("h0", "h1", "h2")
	w.startControl()
	for n := range 3 {
		w.startAgent(fmt.Sprintf("h%d", n))
	}
	w.live()
}

// Three hosts serve etcd and Placement together, and the leader gets most faults; two more hosts run only guests.
func TestKilledMembersLoseAndLeaveNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, seed(t), length(t))
	w.writeSettings("h0", "h1")
	w.startMember("m0", "")
	token := w.token()
	w.startMember("m1", token)
	w.startMember("m2", token)
	for n := range 2 {
		w.startAgent(fmt.Sprintf("h%d", n))
	}
	w.live()
}

// live lets users and faults act for a while, then checks.
func (w *world) live() {
	w.t.Logf("sampled: again with CROFT_KILL=%v CROFT_KILL_SEED=%d go test ./test/kill -run '^%s$'", w.length, w.seed,
		w.t.Name())
	w.ledger = w.newLedger()
	w.writeImage()
	w.startAPI()
	over, cancel := context.WithTimeout(context.Background(), w.length)
	defer cancel()
	w.over = over
	watching, look := context.WithCancel(context.Background())
	var watch, people sync.WaitGroup
	watch.Go(func() { w.watch(watching) })
	for n := range users {
		a := &actor{w: w, n: n, r: w.random(uint64(n))}
		people.Go(func() { a.user(over) })
	}
	for n := range keepers {
		k := &keeper{actor: &actor{w: w, n: n, r: w.random(uint64(70 + n))}}
		if n%2 == 0 {
			k.env = w.throughAPI()
		}
		people.Go(func() { k.keep(over) })
	}
	people.Go(func() { (&actor{w: w, n: 50, r: w.random(50)}).operator(over) })
	people.Go(func() { w.misfortune(over, w.random(60)) })
	people.Wait()
	w.quiesce()
	w.settle()
	look()
	watch.Wait()
	for _, b := range w.breaches {
		w.t.Error(b)
	}
	w.checkLogs()
	for _, what := range slices.Sorted(maps.Keys(w.counts)) {
		w.t.Logf("%6d %s", w.counts[what], what)
	}
	if w.ledger.gaps > 0 {
		w.t.Logf("%d parts of the history are missing", w.ledger.gaps)
	}
}
