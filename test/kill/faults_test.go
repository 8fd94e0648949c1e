package kill

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// misfortune kills, suspends and freezes processes until ctx ends. It draws from a deck with all kinds of faults, so
// that each occurs.
func (w *world) misfortune(ctx context.Context, r *rand.Rand) {
	deck := []func(*rand.Rand){
		w.killControl, w.suspendControl, w.freeze, w.freeze,
		w.killAgent, w.killAgent, w.suspendAgent, w.suspendAgent, w.suspendAgent, w.killAPI,
	}
	for {
		r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		for _, fault := range deck {
			w.sleep(time.Second + time.Duration(r.Int64N(int64(4*time.Second))))
			if ctx.Err() != nil {
				return
			}
			own := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
			w.work.Go(func() { fault(own) })
		}
	}
}

// victim returns a control process, mostly the leader.
func (w *world) victim(r *rand.Rand) *control {
	if len(w.controls) > 1 && r.IntN(10) < 7 {
		if c := w.leader(); c != nil {
			return c
		}
	}
	return w.controls[r.IntN(len(w.controls))]
}

// leader returns the control whose etcd leads; nil: unknown.
func (w *world) leader() *control {
	for _, c := range w.controls {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		st, err := w.ledger.etcd.Status(ctx, c.etcd)
		cancel()
		if err == nil && st.Leader == st.Header.MemberId {
			return c
		}
	}
	return nil
}

// suffer injects a fault into a process, unless it has one already.
func (w *world) suffer(p *process, what string, length time.Duration, do func(time.Duration)) {
	if !p.claim() {
		return
	}
	defer p.unclaim()
	w.count(what)
	w.journal.write("FAULT: %s %s for %v", what, p.name, length.Round(time.Millisecond))
	do(length)
	w.journal.write("FAULT ends: %s %s", what, p.name)
}

func (w *world) killControl(r *rand.Rand) {
	p := w.victim(r).process
	w.suffer(p, "kill the control process", time.Duration(r.Int64N(int64(3*time.Second))), p.kill)
}

func (w *world) suspendControl(r *rand.Rand) {
	p := w.victim(r).process
	w.suffer(p, "suspend the control process", w.pause(r), p.suspend)
}

// freeze freezes the disk of an etcd for 8 to 11 seconds.
func (w *world) freeze(r *rand.Rand) {
	c := w.victim(r)
	if c.disk == nil {
		return
	}
	length := 8*time.Second + time.Duration(r.Int64N(int64(3*time.Second)))
	w.suffer(c.process, "freeze the disk of etcd", length, func(d time.Duration) {
		var crowd sync.WaitGroup
		defer crowd.Wait()
		for n := range 3 { // so that many writes are in flight when the disk stops
			a := &actor{w: w, n: 200 + n, r: rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))}
			crowd.Go(func() { a.burst() })
		}
		w.sleep(time.Duration(r.Int64N(int64(time.Second))))
		if err := c.disk.freeze(d); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) agent(r *rand.Rand) *process { return w.hosts[r.IntN(len(w.hosts))].process }

func (w *world) killAgent(r *rand.Rand) {
	p := w.agent(r)
	down := time.Duration(r.Int64N(int64(3 * time.Second)))
	if r.IntN(3) == 0 {
		down = w.pause(r)
	}
	w.suffer(p, "kill an agent", down, p.kill)
}

func (w *world) killAPI(r *rand.Rand) {
	w.suffer(w.api, "kill the server of the API", time.Duration(r.Int64N(int64(3*time.Second))), w.api.kill)
}

func (w *world) suspendAgent(r *rand.Rand) {
	p := w.agent(r)
	w.suffer(p, "suspend an agent", w.pause(r), p.suspend)
}

// operator drains and enables hosts, and sometimes forgets one, until ctx ends.
func (a *actor) operator(ctx context.Context) {
	w := a.w
	var mine []*host
	for _, h := range w.hosts {
		if !h.member {
			mine = append(mine, h)
		}
	}
	for ctx.Err() == nil {
		h := mine[a.r.IntN(len(mine))]
		switch dice := a.r.IntN(100); {
		case dice < 28:
			if r := a.run(false, "croft", "host", "drain", "--move", h.name); !r.ok() {
				w.mu.Lock()
				w.movers++
				w.mu.Unlock()
			}
		case dice < 33:
			a.run(false, "croft", "host", "drain", h.name)
		case dice < 87:
			a.run(false, "croft", "host", "enable", h.name)
		case dice < 94:
			a.fence(h)
		default:
			a.forget(h)
		}
		w.sleep(time.Duration(a.r.Int64N(int64(1500 * time.Millisecond))))
	}
}

// forget forgets a silent host with all its instances; then the host returns.
func (a *actor) forget(h *host) {
	id := h.id()
	if id == "" || !h.claim() {
		return
	}
	defer h.unclaim()
	h.hold()
	defer h.release()
	h.signal(syscall.SIGKILL)
	a.w.count("forget a host")
	a.awaitSilent(id) // if it is unknown whether it is silent, --force implies it
	began := time.Now()
	a.w.mu.Lock()
	a.w.forgets = append(a.w.forgets, forgetting{host: id, begin: began})
	at := len(a.w.forgets) - 1
	a.w.mu.Unlock()
	a.run(false, "croft", "host", "forget", "--force", id)
	a.w.mu.Lock()
	a.w.forgets[at].end = time.Now().Add(time.Minute) // writes in flight may take effect later
	a.w.mu.Unlock()
}

// awaitSilent returns once the lease of a host has expired, or after a while.
func (a *actor) awaitSilent(id string) {
	for range 40 {
		a.w.sleep(500 * time.Millisecond)
		if alive, err := a.w.isAlive(id); err == nil && !alive {
			return
		}
	}
}

func (w *world) isAlive(host string) (bool, error) { return w.hasKey("alive", host) }

// hasKey reports whether there is a key of this kind of a host.
func (w *world) hasKey(kind, host string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	keys, err := w.ledger.etcd.Get(ctx, "/croft/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return false, err
	}
	for _, kv := range keys.Kvs {
		if is, rest := cut(string(kv.Key)); is == kind && rest == host {
			return true, nil
		}
	}
	return false, nil
}

// wasForgotten reports whether an instance's end may be due to a forgotten host.
func (w *world) wasForgotten(id string) bool {
	last, when := w.ledger.endOf(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.forgets {
		for _, host := range []croft.HostID{last.Host, last.Moving, last.MovedFrom} {
			if string(host) == f.host && when.After(f.begin) && (f.end.IsZero() || when.Before(f.end)) {
				return true
			}
		}
	}
	return false
}

// quiesce ends all faults: it thaws disks, resumes and starts processes, and enables hosts.
func (w *world) quiesce() {
	w.work.Wait()
	for _, c := range w.controls {
		c.release()
		c.signal(syscall.SIGCONT)
	}
	for _, place := range w.places {
		w.awaitReady(place)
	}
	w.takeBack()
	a := &actor{w: w, n: 100, r: w.random(100)}
	for _, h := range w.hosts {
		h.release()
		h.signal(syscall.SIGCONT)
		w.awaitReady(h.api)
		if !h.member {
			h.restart() // a host that was forgotten while it ran offers its inventory only after a restart
			w.awaitReady(h.api)
		}
		err := errors.New("")
		for start := time.Now(); err != nil; time.Sleep(time.Second) {
			r := a.run(true, "croft", "host", "enable", h.name)
			if err = nil; !r.ok() {
				err = errors.New(strings.TrimSpace(r.out))
			}
			if err != nil && time.Since(start) > 3*time.Minute {
				w.t.Fatalf("host %s cannot be enabled: %v", h.name, err)
			}
		}
	}
}
