package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/internal/durable"
	"croft/pool"
	"croft/pool/pooltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a manager whose hooks always succeed, within seconds of fake time.
type world struct {
	*testing.T
	*pool.Manager
	*pooltest.World
	store *pooltest.Memory
	file  string
	stop  func() // the manager
}

// with runs a test with a manager.
func with(t *testing.T, pools string, test func(*world)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pools.yaml")
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, World: pooltest.NewWorld(rand.New(rand.NewPCG(1, 1))), store: pooltest.NewMemory(),
			file: file}
		w.write(pools)
		w.Manager, w.stop = w.server("one")
		defer func() { w.stop() }()
		time.Sleep(20 * time.Second)
		test(w)
	})
}

func (w *world) write(text string) {
	w.Helper()
	if err := durable.Write(w.file, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// server runs a manager on the world's store.
func (w *world) server(name string) (m *pool.Manager, stop func()) {
	w.Helper()
	return w.serverOf(w.config(name))
}

func (w *world) config(name string) pool.Config {
	return pool.Config{Partition: "p", Store: w.store, Hooks: w.Hooks(), File: w.file,
		Me: pool.Server{Name: name, Machine: "m", Address: "http://" + name}, History: 1}
}

func (w *world) serverOf(c pool.Config) (m *pool.Manager, stop func()) {
	w.Helper()
	m, err := pool.New(c)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	synctest.Wait()
	return m, func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
}

func (w *world) open(o pool.Opening) pool.TicketStatus {
	w.Helper()
	st, err := w.Open(w.Context(), o)
	if err != nil {
		w.Fatal(err)
	}
	return st
}

func wantKind(t *testing.T, err error, kind croft.Kind, words string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want %s and %q", err, kind, words)
	}
}

const one = "p:\n  cmd_new: n\n  cmd_delete: d\n  tags: [a]\n  max_prealloc: 1\n  max: 1\n"

func TestATicketIsServedAtOnceFromWhatIsWarm(t *testing.T) {
	with(t, one, func(w *world) {
		begun := time.Now()
		st := w.open(pool.Opening{Tags: []string{"a", "a"}})
		if !st.Ready() || st.ID != 1 || !strings.HasPrefix(string(st.Has.Data), "made p_00000001_") ||
			time.Since(begun) != 0 {
			w.Errorf("got %+v after %s", st, time.Since(begun))
		}
	})
}

func TestWaitingEndsWithTheResource(t *testing.T) {
	with(t, one, func(w *world) {
		first, second := w.open(pool.Opening{Tags: []string{"a"}}), w.open(pool.Opening{Tags: []string{"a"}})
		if second.Waits != "pool p has as many as it may, 1, of which 1 are taken and 0 are being cleaned or deleted" ||
			second.Never {
			w.Errorf("got %q", second.Waits)
		}
		time.AfterFunc(time.Minute, func() { _ = w.Close(context.Background(), first.ID) })
		st, err := w.Wait(w.Context(), second.ID)
		if err != nil || !st.Ready() || st.Resource == first.Resource {
			w.Errorf("got %+v, %v", st, err)
		}
	})
}

func TestWaitingInVainSaysSo(t *testing.T) {
	with(t, one, func(w *world) {
		st := w.open(pool.Opening{Tags: []string{"b"}})
		if !st.Never || st.Waits != `no pool has the tag b; did you mean "a"?` {
			w.Errorf("got %q", st.Waits)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		_, err := w.Wait(ctx, st.ID)
		wantKind(w.T, err, croft.Unavailable, "waited long enough; no pool has the tag b")
		if err := w.Close(w.Context(), st.ID); err != nil {
			w.Error(err)
		}
		if st, err := w.Wait(w.Context(), st.ID); err != nil || st.State != pool.TicketClosed {
			w.Errorf("a closed one: got %+v, %v", st, err)
		}
	})
}

func TestALeaseEndsUnlessItIsUsed(t *testing.T) {
	with(t, one, func(w *world) {
		st := w.open(pool.Opening{Tags: []string{"a"}, TTL: time.Minute})
		for range 5 {
			time.Sleep(50 * time.Second)
			if st, err := w.Get(w.Context(), st.ID); err != nil || !st.Ready() {
				w.Fatalf("it was used: %+v, %v", st, err)
			}
		}
		time.Sleep(61 * time.Second)
		got, err := w.Peek(st.ID)
		if err != nil || got.State != pool.TicketClosed ||
			got.Reason != "nobody used the ticket for 1m, the length of its lease" {
			w.Errorf("got %+v, %v", got, err)
		}
		_, err = w.Renew(w.Context(), st.ID)
		wantKind(w.T, err, croft.Conflict, "ticket 1 is CLOSED")
	})
}

func TestBadTicketsAreRefused(t *testing.T) {
	with(t, one, func(w *world) {
		for _, o := range []pool.Opening{{Tags: []string{""}}, {Tags: make([]string, 65)}, {Sandbox: "a\nb"},
			{TTL: time.Millisecond}, {TTL: -1}} {
			_, err := w.Open(w.Context(), o)
			wantKind(w.T, err, croft.Invalid, "open a ticket: ")
		}
		_, err := w.Get(w.Context(), 7)
		wantKind(w.T, err, croft.NotFound, "there is no ticket 7")
		wantKind(w.T, w.Close(w.Context(), 7), croft.NotFound, "there is no ticket 7")
		if first := w.open(pool.Opening{}); first.ID != 1 {
			w.Errorf("refused tickets took numbers: %d", first.ID)
		}
	})
}

func TestAForgottenTicketMayBeClosedAgain(t *testing.T) {
	with(t, one, func(w *world) {
		for range 300 {
			if err := w.Close(w.Context(), w.open(pool.Opening{Tags: []string{"x"}}).ID); err != nil {
				w.Fatal(err)
			}
		}
		_, err := w.Get(w.Context(), 1)
		wantKind(w.T, err, croft.NotFound, "ticket 1 ended so long ago")
		if err := w.Close(w.Context(), 1); err != nil {
			w.Error(err)
		}
	})
}

// A caller that got an answer finds its change made, even after a crash at that moment.
func TestNothingIsAnsweredBeforeItIsWritten(t *testing.T) {
	with(t, one, func(w *world) {
		held := w.open(pool.Opening{Tags: []string{"a"}})
		w.store.Fail(croft.Errorf(croft.Unavailable, "the store does not answer"), 0)
		opened, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := w.Open(context.Background(), pool.Opening{Tags: []string{"a"}})
			opened <- err
		}()
		go func() { closed <- w.Close(context.Background(), held.ID) }()
		time.Sleep(time.Minute)
		select {
		case err := <-opened:
			w.Errorf("the opening is answered, with %v, and was not written", err)
		case err := <-closed:
			w.Errorf("the closing is answered, with %v, and was not written", err)
		default:
		}
		if st, err := w.Peek(held.ID); err != nil || st.State != pool.TicketOpen {
			w.Errorf("readers see %+v, %v, which is not written", st, err)
		}
		w.store.Fail(nil, 0)
		for range 2 { // either may be written first
			var err error
			var written func([]pool.Ticket) bool
			select {
			case err = <-opened:
				written = func(all []pool.Ticket) bool { return len(all) == 2 }
			case err = <-closed:
				written = func(all []pool.Ticket) bool { return all[0].State == pool.TicketClosed }
			}
			if err != nil {
				w.Error(err)
			}
			if from, err := w.store.Snapshot(); err != nil || !written(from.Tickets) {
				w.Errorf("it is answered, and there is %+v, %v", from.Tickets, err)
			}
		}
	})
}

// A server that has lost the lead reports an error for every request that it could not write, and shows none of its
// changes.
func TestWhatCannotBeWrittenIsAnError(t *testing.T) {
	with(t, one, func(w *world) {
		held := w.open(pool.Opening{Tags: []string{"a"}})
		w.store.Fail(croft.Errorf(croft.Conflict, "another server acts"), 0)
		for what, err := range map[string]error{
			"close":  w.Close(w.Context(), held.ID),
			"pause":  w.Pause(w.Context(), "p"),
			"delete": w.DeleteResources(w.Context(), held.Resource),
		} {
			if err == nil {
				w.Errorf("%s: it was not written, and is answered well", what)
			}
		}
		if _, err := w.Open(w.Context(), pool.Opening{Tags: []string{"a"}}); err == nil {
			w.Error("open: it was not written, and is answered well")
		}
		w.store.Fail(nil, 0)
		time.Sleep(10 * time.Second)
		if st, err := w.Get(w.Context(), held.ID); err != nil || !st.Ready() || st.Resource != held.Resource {
			w.Errorf("in the next term: %+v, %v", st, err)
		}
		if next := w.open(pool.Opening{Tags: []string{"a"}}); next.ID != held.ID+1 {
			w.Errorf("the next ticket is number %d", next.ID)
		}
	})
}

func TestAFaultyFileChangesNothing(t *testing.T) {
	with(t, one, func(w *world) {
		w.write("p:\n  cmd_new: n\n")
		time.Sleep(2 * time.Second)
		wantKind(w.T, w.Fault(), croft.Invalid, "pools.yaml:1: pool p: cmd_delete is required")
		if st := w.open(pool.Opening{Tags: []string{"a"}}); !st.Ready() {
			w.Errorf("got %+v", st)
		}
		w.write(one + "  ttl: 60\n")
		time.Sleep(2 * time.Second)
		if pools, err := w.Pools(); err != nil || w.Fault() != nil || pools[0].Settings.TTL != time.Minute {
			w.Errorf("it was mended: %v, %+v, %v", w.Fault(), pools, err)
		}
	})
}

// An editor, or a copy to a full disk, leaves an empty file.
func TestAFileWithoutPoolsRemovesDrainedPoolsAlone(t *testing.T) {
	with(t, one, func(w *world) {
		before := w.Machines()
		for _, text := range []string{"", "# nothing\n", "{}\n"} {
			w.write(text)
			time.Sleep(10 * time.Minute)
			wantKind(w.T, w.Fault(), croft.Invalid, "names no pools, and pool p has 1 resources")
			if left := w.Machines(); len(before) == 0 || !slices.Equal(left, before) {
				w.Errorf("%q left %v of %v", text, left, before)
			}
		}
		if err := w.Drain(w.Context(), "p"); err != nil {
			w.Fatal(err)
		}
		time.Sleep(time.Minute)
		if pools, err := w.Pools(); err != nil || w.Fault() != nil || len(pools) > 0 || len(w.Machines()) > 0 {
			w.Errorf("drained: %v, %+v, %v, %v", w.Fault(), pools, w.Machines(), err)
		}
	})
}

func TestAPoolIsRemovedOnceTheFileWithoutItIsComplete(t *testing.T) {
	const other = "q:\n  cmd_new: n\n  cmd_delete: d\n  tags: [b]\n  max: 0\n"
	with(t, other+one, func(w *world) {
		before := w.Machines()
		w.write(other) // a copy that pauses
		time.Sleep(50 * time.Second)
		if left := w.Machines(); len(before) == 0 || !slices.Equal(left, before) {
			w.Errorf("half a file left %v of %v", left, before)
		}
		if st := w.open(pool.Opening{Tags: []string{"a"}}); !st.Ready() {
			w.Errorf("meanwhile the pool serves: got %+v", st)
		}
		w.write(other + one) // and continues
		time.Sleep(10 * time.Minute)
		pools, err := w.Pools()
		if err != nil || len(pools) != 2 || pools[1].Removed || pools[1].Counts.Taken != 1 {
			w.Errorf("the whole file: %+v, %v", pools, err)
		}
		w.write(other)
		time.Sleep(2 * time.Minute)
		if pools, err = w.Pools(); err != nil || len(pools) != 2 || !pools[1].Removed {
			w.Errorf("a minute later: %+v, %v", pools, err)
		}
	})
}

func TestWhoStandsByNamesWhoActs(t *testing.T) {
	with(t, one, func(w *world) {
		second, stop := w.server("two")
		defer stop()
		_, err := second.Open(w.Context(), pool.Opening{})
		wantKind(w.T, err, croft.Unavailable, "ask it at http://one")
		held := w.open(pool.Opening{Tags: []string{"a"}})
		waiting := make(chan error)
		go func() {
			_, err := w.Wait(context.Background(), w.open(pool.Opening{Tags: []string{"a"}}).ID)
			waiting <- err
		}()
		synctest.Wait()
		w.store.Depose()
		wantKind(w.T, <-waiting, croft.Unavailable, "")
		time.Sleep(time.Second)
		for _, m := range []*pool.Manager{w.Manager, second} {
			if _, here := m.Leader(); here {
				if st, err := m.Get(w.Context(), held.ID); err != nil || st.Resource != held.Resource {
					w.Errorf("got %+v, %v", st, err)
				}
				return
			}
		}
		w.Error("nobody acts")
	})
}

func TestOperatorsDeleteAnything(t *testing.T) {
	with(t, one, func(w *world) {
		st := w.open(pool.Opening{Tags: []string{"a"}})
		wantKind(w.T, w.DeleteResources(w.Context(), st.Resource, 9), croft.NotFound, "there is no resource 9")
		if err := w.DeleteResources(w.Context(), st.Resource); err != nil {
			w.Fatal(err)
		}
		got, err := w.Get(w.Context(), st.ID)
		if err != nil || got.State != pool.TicketFailed || got.Reason != "an operator deleted it" || got.Has == nil {
			w.Errorf("got %+v, %v", got, err)
		}
		if err := w.Drain(w.Context(), "p"); err != nil {
			w.Fatal(err)
		}
		time.Sleep(time.Minute)
		if left := w.Machines(); len(left) > 0 {
			w.Errorf("a drained pool has %v", left)
		}
		wantKind(w.T, w.Pause(w.Context(), "q"), croft.NotFound, "there is no pool q")
	})
}

func TestAStillManagerRunsNothing(t *testing.T) {
	with(t, one, func(w *world) {
		st := w.open(pool.Opening{Tags: []string{"a"}})
		time.Sleep(20 * time.Second)
		w.stop()
		before := w.Machines()
		c := w.config("still")
		c.Still = true
		still, stop := w.serverOf(c)
		if err := still.DeleteResources(w.Context(), st.Resource); err != nil {
			w.Fatal(err)
		}
		waits, err := still.Open(w.Context(), pool.Opening{Tags: []string{"a"}})
		time.Sleep(time.Minute)
		if failed, _ := still.Peek(st.ID); failed.State != pool.TicketFailed || failed.Has.State != pool.DeleteRequest {
			w.Errorf("got %+v of %+v", failed, failed.Has)
		}
		if waits, _ := still.Peek(waits.ID); err != nil || !waits.Waiting() {
			w.Errorf("it hands out: %+v, %v", waits, err)
		}
		if after := w.Machines(); !slices.Equal(before, after) {
			w.Errorf("it runs commands: %v, and before %v", after, before)
		}
		stop()
		w.Manager, w.stop = w.server("again")
		time.Sleep(20 * time.Second)
		if got, err := w.Get(w.Context(), waits.ID); err != nil || !got.Ready() {
			w.Errorf("the next server does not go on: %+v, %v", got, err)
		}
		if slices.Contains(w.Machines(), st.Has.Name) {
			w.Error("what was to be deleted is there")
		}
	})
}

// pacedHooks start a resource in the time that its pool takes.
type pacedHooks struct {
	*pooltest.Hooks
	takes map[string]time.Duration
}

func (h pacedHooks) Run(ctx context.Context, hook pool.Hook) ([]byte, error) {
	if hook.Kind == pool.HookNew {
		for name, takes := range h.takes {
			if slices.Contains(hook.Env, "RESALLOC_POOL_ID="+name) {
				time.Sleep(takes)
			}
		}
	}
	return []byte("made"), nil
}

func TestPoolsThatBeginTogetherGoOnInTheOrderOfTheFile(t *testing.T) {
	const pools = "z:\n  cmd_new: n\n  cmd_delete: d\n  named_counters: [c]\na:\n  cmd_new: n\n  cmd_delete: d\n  named_counters: [c]\n"
	for _, c := range []struct {
		name string
		z, a time.Duration
		want string
	}{
		{"the later a little sooner", 20 * time.Millisecond, 10 * time.Millisecond, "z0 a1 z2 a3"},
		{"the later much sooner", 10 * time.Second, 10 * time.Millisecond, "z0 a1 a2 z3"},
		{"the first sooner", 10 * time.Millisecond, 20 * time.Millisecond, "z0 a1 z2 a3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			with(t, pools, func(w *world) {
				w.stop()
				w.store = pooltest.NewMemory()
				again := w.config("again")
				again.Hooks = pacedHooks{w.Hooks(), map[string]time.Duration{"z": c.z, "a": c.a}}
				w.Manager, w.stop = w.serverOf(again)
				time.Sleep(time.Minute)
				all, err := w.Resources(false)
				var got []string
				for _, r := range all {
					got = append(got, fmt.Sprint(r.Pool, r.Counters["c"]))
				}
				if strings.Join(got, " ") != c.want || err != nil {
					t.Errorf("got %v, %v, want %s", got, err, c.want)
				}
			})
		})
	}
}
