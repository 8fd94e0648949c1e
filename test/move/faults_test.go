package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"croft"
	"croft/compute"
	"croft/compute/diskcopy"
	"croft/compute/hypervisor/sim"
	"croft/internal/endpoint"
)

// heldUntil returns clients whose requests for disks wait until the gate is closed.
func heldUntil(gate chan struct{}) func(string) *http.Client {
	return func(string) *http.Client {
		c := endpoint.AgentClient(nil)
		next := c.Transport
		c.Transport = transport(func(r *http.Request) (*http.Response, error) {
			select {
			case <-gate:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
			return next.RoundTrip(r)
		})
		return c
	}
}

// onDisk returns clients whose answers with a disk go through change.
func onDisk(change func(io.Reader) io.Reader) func(string) *http.Client {
	return func(string) *http.Client {
		c := endpoint.AgentClient(nil)
		next := c.Transport
		c.Transport = transport(func(r *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if err == nil && strings.HasSuffix(r.URL.Path, "/leaving/disk") {
				answer.Body = struct {
					io.Reader
					io.Closer
				}{change(answer.Body), answer.Body}
			}
			return answer, err
		})
		return c
	}
}

// awaitNothing waits until nothing is left of an instance.
func (w *world) awaitNothing(id croft.InstanceID) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	var left []string
	var mu sync.Mutex // calls may overlap
	_ = w.Store.Instances.WatchInstances(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		found, err := w.Left(ctx)
		for _, h := range w.Hosts {
			if remains, err := w.Store.Orders.Remains(ctx, h.ID, id); err != nil || remains {
				found = append(found, fmt.Sprint("order on ", h.ID, err))
			}
		}
		if ctx.Err() != nil {
			return
		}
		if left = found; err == nil && len(found) == 0 {
			cancel()
		}
	})
	if len(left) > 0 {
		w.Errorf("left: %q", left)
	}
}

// A connection that breaks again and again costs only what was in flight.
func TestABrokenConnectionResumes(t *testing.T) {
	var received, cuts atomic.Int64
	w, disk := newWorld(t, func(w *world) {
		w.Peers = onDisk(func(r io.Reader) io.Reader {
			cuts.Add(1)
			return io.LimitReader(io.TeeReader(r, counter{&received}), 7*diskcopy.Chunk)
		})
	}), data(30)
	inst := w.place("web", "a", disk)
	w.must(w.move(inst.ID, "b"))
	w.awaitOnly(inst.ID, "b", croft.StateRunning, disk)
	twice := received.Load() - int64(len(disk))
	t.Logf("%d connections, %d of %d bytes were received twice", cuts.Load(), twice, len(disk))
	if cuts.Load() < 5 || twice > cuts.Load()*(diskcopy.Chunk+8192) {
		t.Errorf("%d connections, %d bytes were received twice", cuts.Load(), twice)
	}
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// A source that sends other bytes than it read is found out, and the guest runs on where it was.
func TestWrongBytesLeadBack(t *testing.T) {
	w, disk := newWorld(t, func(w *world) {
		w.Peers = onDisk(func(r io.Reader) io.Reader {
			all, err := io.ReadAll(r)
			if err == nil {
				all[len(all)/2] ^= 1
			}
			return bytes.NewReader(all)
		})
	}), data(3)
	inst := w.place("web", "a", disk)
	w.must(w.move(inst.ID, "b"))
	w.await("it stays", inst.ID, func(st croft.Status) bool { return st.Instance.Unmoved != "" })
	w.awaitOnly(inst.ID, "a", croft.StateRunning, disk)
	if why := w.status(inst.ID).Instance.Unmoved; !strings.Contains(why, "digest") {
		t.Errorf("the record says %q", why)
	}
}

// The disk is only for the host of this move with the key of this move.
func TestNoOtherReaderGetsADisk(t *testing.T) {
	gate := make(chan struct{})
	w := newWorld(t, func(w *world) { w.Peers = heldUntil(gate) })
	defer close(gate)
	inst := w.place("web", "a", data(1))
	known, err := w.Store.Registry.Hosts(t.Context(), w.host("a"))
	w.must(err)
	host := known[w.host("a")]
	get := func(path, key string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, host.API+"/v1/instances/"+string(inst.ID)+
			"/leaving"+path, nil)
		w.must(err)
		r.Header.Set("Authorization", "Bearer "+key)
		answer, err := http.DefaultClient.Do(r)
		w.must(err)
		w.must(answer.Body.Close())
		return answer.StatusCode
	}
	if got := get("/disk", "secret"); got != http.StatusNotFound {
		t.Errorf("an instance that does not move: %d", got)
	}
	w.must(w.move(inst.ID, "b"))
	key := w.status(inst.ID).Order.Move.Key
	for _, wrong := range []string{"", "secret", host.Token, key + "x", key[:len(key)-1]} {
		for _, path := range []string{"", "/disk", "/base"} {
			if got := get(path, wrong); got != http.StatusNotFound {
				t.Errorf("with the key %q: %d", wrong, got)
			}
		}
	}
	api := &compute.API{Agent: w.Hosts["a"].Agent, Token: host.Token}
	for _, caller := range []croft.HostID{"", w.host("a"), w.host("c"), w.host("b")} {
		api.Caller = func(*http.Request) croft.HostID { return caller }
		answer := &statusWriter{header: http.Header{}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"/v1/instances/"+string(inst.ID)+"/leaving", nil)
		w.must(err)
		r.Header.Set("Authorization", "Bearer "+key)
		api.Handler().ServeHTTP(answer, r)
		if refused := answer.status == http.StatusNotFound; refused == (caller == w.host("b")) {
			t.Errorf("host %q with the right key: %d", caller, answer.status)
		}
	}
}

type statusWriter struct {
	header http.Header
	status int
}

func (s *statusWriter) Header() http.Header         { return s.header }
func (s *statusWriter) WriteHeader(status int)      { s.status = status }
func (s *statusWriter) Write(p []byte) (int, error) { return len(p), nil }

// A source that dies in the middle has the disk: the move goes on when it returns.
func TestASourceThatDiesReturns(t *testing.T) {
	var once sync.Once
	dying := make(chan struct{})
	w, disk := newWorld(t, func(w *world) {
		w.Peers = onDisk(func(r io.Reader) io.Reader {
			once.Do(func() { close(dying) })
			return io.LimitReader(r, 5*diskcopy.Chunk)
		})
	}), data(20)
	inst := w.place("web", "a", disk)
	w.must(w.move(inst.ID, "b"))
	<-dying
	w.must(w.StopHost(t.Context(), "a"))
	if st := w.status(inst.ID); !st.Instance.Copying || st.Instance.Host != w.host("a") {
		t.Fatalf("it is %+v", st.Instance)
	}
	w.must(w.StartHost(t.Context(), "a"))
	w.awaitOnly(inst.ID, "b", croft.StateRunning, disk)
}

// A source that is gone for good takes the disk with it: the instance is listed as lost, and the target keeps nothing.
func TestASourceThatIsLostIsListed(t *testing.T) {
	gate := make(chan struct{})
	w := newWorld(t, func(w *world) { w.Peers = heldUntil(gate) })
	defer close(gate)
	inst := w.place("web", "a", data(2))
	w.must(w.move(inst.ID, "b"))
	w.must(w.StopHost(t.Context(), "a"))
	_, err := w.fleet.Forget(t.Context(), "a", true)
	w.must(err)
	w.await("it is lost", inst.ID, func(st croft.Status) bool {
		remains, err := w.Store.Orders.Remains(t.Context(), w.host("b"), inst.ID)
		return st.Instance.State == croft.StateLost && st.Instance.Lost.Reason != "" && !st.Instance.Copying &&
			err == nil && !remains
	})
	if claim, err := w.Claims.ClaimOf(t.Context(), inst.ID); err != nil || len(claim.Allocations) > 0 {
		t.Errorf("it claims %v, %v", claim.Allocations, err)
	}
}

// A target that is forgotten in the middle leads back to the source.
func TestATargetThatIsForgottenLeadsBack(t *testing.T) {
	gate := make(chan struct{})
	w, disk := newWorld(t, func(w *world) { w.Peers = heldUntil(gate) }), data(2)
	defer close(gate)
	inst := w.place("web", "a", disk)
	w.must(w.move(inst.ID, "b"))
	w.must(w.StopHost(t.Context(), "b"))
	_, err := w.fleet.Forget(t.Context(), "b", true)
	w.must(err)
	w.await("it runs where it was", inst.ID, func(st croft.Status) bool { return runsOn(st, w.host("a")) })
	if claim, err := w.Claims.ClaimOf(t.Context(), inst.ID); err != nil || len(claim.Allocations) != 1 {
		t.Errorf("it claims %v, %v", claim.Allocations, err)
	}
}

// killer ends the agent of a host at the nth step of a move, before or after the step takes effect, and starts another.
type killer struct {
	world *world
	mu    sync.Mutex
	at    int // steps until it strikes
	after bool
	steps []string
	work  sync.WaitGroup
}

// step runs a step of a host, or ends the agent around it.
func (k *killer) step(ctx context.Context, host, name string, do func(context.Context) error) error {
	k.mu.Lock()
	k.at--
	strikes := k.at == 0
	k.steps = append(k.steps, host+" "+name)
	k.mu.Unlock()
	if !strikes {
		return do(ctx)
	}
	if k.after {
		_ = do(context.WithoutCancel(ctx)) // the agent gets no answer
	}
	k.work.Go(func() {
		w := k.world
		if err := errors.Join(w.StopHost(w.Context(), host), w.StartHost(w.Context(), host)); err != nil {
			w.Errorf("restart host %s: %v", host, err)
		}
	})
	<-ctx.Done()
	return ctx.Err()
}

// orders are an agent's orders with steps.
type orders struct {
	compute.Orders
	killer *killer
	host   string
}

func (o orders) Observe(ctx context.Context, seen croft.Observation) error {
	return o.killer.step(ctx, o.host, "observe "+string(seen.State), func(ctx context.Context) error {
		return o.Orders.Observe(ctx, seen)
	})
}

func (o orders) Arrived(ctx context.Context, order croft.Order, failure string) error {
	return o.killer.step(ctx, o.host, "arrived", func(ctx context.Context) error {
		return o.Orders.Arrived(ctx, order, failure)
	})
}

func (o orders) HandOver(ctx context.Context, order croft.Order) error {
	return o.killer.step(ctx, o.host, "hand over", func(ctx context.Context) error {
		return o.Orders.HandOver(ctx, order)
	})
}

func (o orders) Forget(ctx context.Context, order croft.Order) error {
	return o.killer.step(ctx, o.host, "forget", func(ctx context.Context) error { return o.Orders.Forget(ctx, order) })
}

// An agent that is killed at any step of a move, before or after it takes effect, loses nothing: the move goes on.
func TestAKillAtEachStep(t *testing.T) {
	k := &killer{}
	w, disk := newWorld(t, func(w *world) {
		k.world = w
		withRoom(w)
		w.Orders = func(host string, o compute.Orders) compute.Orders { return orders{o, k, host} }
		w.Peers = func(host string) *http.Client {
			c := endpoint.AgentClient(nil)
			next := c.Transport
			c.Transport = transport(func(r *http.Request) (answer *http.Response, err error) {
				err = k.step(r.Context(), host, "get "+r.URL.Path[strings.LastIndex(r.URL.Path, "/"):],
					func(ctx context.Context) (err error) {
						answer, err = next.RoundTrip(r.WithContext(ctx))
						return err
					})
				return answer, err
			})
			return c
		}
		w.Guest = func(ctx context.Context, host, op string, _ croft.InstanceID) error {
			if op == sim.OpGet || op == sim.OpList {
				return nil
			}
			return k.step(ctx, host, op, func(context.Context) error { return nil })
		}
	}), data(4)
	inst := w.place("web", "a", disk)
	content := data(3)
	volume := w.attach("data", "a", inst, 3, content)
	from, to := "a", "b"
	for run := 2; ; run++ {
		at, after := run/2, run%2 == 1
		k.mu.Lock()
		k.at, k.after, k.steps = at, after, nil
		k.mu.Unlock()
		w.must(w.move(inst.ID, to))
		w.awaitOnly(inst.ID, to, croft.StateRunning, disk)
		w.awaitVolumeOnly(volume, to, content)
		k.work.Wait()
		k.mu.Lock()
		struck, steps := k.at <= 0, k.steps
		k.mu.Unlock()
		t.Logf("kill at step %d, after it: %v: %q", at, after, steps)
		if !struck {
			if at < 10 {
				t.Errorf("a move has only %d steps", at)
			}
			return
		}
		if t.Failed() {
			return
		}
		from, to = to, from
	}
}

// A disk that fills up in the middle of a copy leads back, and keeps nothing of it.
func TestAFullDiskLeadsBack(t *testing.T) {
	full := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=12m", "none", full).CombinedOutput(); err != nil {
		t.Skipf("this needs root to mount a file system: %s", out)
	}
	t.Cleanup(func() { // after the agents have ended, and before the directory is removed
		if out, err := exec.Command("umount", full).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	})
	w, disk := newWorld(t, func(w *world) { w.must(os.Symlink(full, filepath.Join(w.Dir, "b"))) }), data(30)
	inst := w.place("web", "a", disk)
	w.must(w.move(inst.ID, "b"))
	w.await("it stays", inst.ID, func(st croft.Status) bool { return st.Instance.Unmoved != "" })
	w.awaitOnly(inst.ID, "a", croft.StateRunning, disk)
	if why := w.status(inst.ID).Instance.Unmoved; !strings.Contains(why, "full") {
		t.Errorf("the record says %q", why)
	}
	w.must(w.move(inst.ID, "c"))
	w.awaitOnly(inst.ID, "c", croft.StateRunning, disk)
}

// An audit ends a move whose target is silent; the target removes what it has when it returns.
func TestAMoveToASilentHostIsEnded(t *testing.T) {
	gate := make(chan struct{})
	w, disk := newWorld(t, func(w *world) { w.Peers = heldUntil(gate) }), data(2)
	defer close(gate)
	inst := w.place("web", "a", disk)
	w.must(w.move(inst.ID, "b"))
	if err := w.fleet.EndMove(t.Context(), w.status(inst.ID)); !errors.Is(err, croft.Conflict) {
		t.Errorf("while the target is alive: %v", err)
	}
	w.must(w.StopHost(t.Context(), "b"))
	w.must(w.fleet.EndMove(t.Context(), w.status(inst.ID)))
	w.await("it runs where it was", inst.ID, func(st croft.Status) bool { return runsOn(st, w.host("a")) })
	w.must(w.StartHost(t.Context(), "b"))
	w.awaitOnly(inst.ID, "a", croft.StateRunning, disk)
}

// unhandled are an agent's orders whose hand-overs fail.
type unhandled struct{ compute.Orders }

func (unhandled) HandOver(context.Context, croft.Order) error {
	return croft.Errorf(croft.Unavailable, "etcd does not answer")
}

// Between the arrival and the hand-over the source still has its copy, which ends with the instance, or stays as a
// leftover if the target is lost: then the instance can be recreated, also where the source still has the copy.
func TestTheCopyOfTheSourceEndsWithTheInstance(t *testing.T) {
	arrived := func(t *testing.T) (*world, croft.Instance) {
		w := newWorld(t, func(w *world) {
			w.Orders = func(_ string, o compute.Orders) compute.Orders { return unhandled{o} }
		})
		inst := w.place("web", "a", data(2))
		w.must(w.move(inst.ID, "b"))
		w.await("it runs on b", inst.ID, func(st croft.Status) bool { return runsOn(st, w.host("b")) })
		o, err := w.Store.Orders.Order(t.Context(), w.host("a"), inst.ID)
		if err != nil || o.Want != croft.WantLeaving {
			t.Fatalf("the order of its former host is %+v, %v", o, err)
		}
		return w, inst
	}
	t.Run("which is destroyed", func(t *testing.T) {
		w, inst := arrived(t)
		_, err := w.scheduler.Destroy(t.Context(), croft.DefaultProject, "web", false)
		w.must(err)
		w.awaitNothing(inst.ID)
	})
	t.Run("which is rebuilt", func(t *testing.T) {
		w, inst := arrived(t)
		_, err := w.scheduler.Rebuild(t.Context(), croft.DefaultProject, "web")
		w.must(err)
		w.await("only b has it", inst.ID, func(st croft.Status) bool {
			_, err := w.Store.Orders.Order(t.Context(), w.host("a"), inst.ID)
			return runsOn(st, w.host("b")) && errors.Is(err, croft.NotFound)
		})
	})
	t.Run("which is lost", func(t *testing.T) {
		w, inst := arrived(t)
		w.must(w.StopHost(t.Context(), "b"))
		_, err := w.fleet.Forget(t.Context(), "b", true)
		w.must(err)
		_, err = w.scheduler.Recreate(t.Context(), croft.DefaultProject, "web")
		w.must(err)
		w.await("it runs on c", inst.ID, func(st croft.Status) bool { return runsOn(st, w.host("c")) })
		left, err := w.fleet.Leftovers(t.Context(), w.host("a"))
		if err != nil || len(left) != 1 || left[0].Instance != inst.ID {
			t.Fatalf("the leftovers of its source are %+v, %v", left, err)
		}
		if _, err := os.Stat(w.file("a", inst.ID, "disk.qcow2")); err != nil {
			t.Errorf("the disk is not kept: %v", err)
		}
	})
}
