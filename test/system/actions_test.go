package system

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/schedule"
)

// query takes a fourth of a host, so that a few hosts are full quickly; sharedQuery has its disk on shared storage,
// which is as large as the file system of the test.
var (
	query       = parsed("resources=VCPU:1,MEMORY_MB:1024,DISK_GB:10")
	sharedQuery = parsed("resources=VCPU:1,MEMORY_MB:1024,DISK_GB:1")

	gpuQuery       = parsed("resources=VCPU:1,MEMORY_MB:1024,DISK_GB:10,CUSTOM_PCI_10DE_2230:1")
	sharedGPUQuery = parsed("resources=VCPU:1,MEMORY_MB:1024,DISK_GB:1,CUSTOM_PCI_10DE_2230:1")
)

func parsed(text string) schedule.Query {
	q, err := schedule.ParseQuery(text)
	if err != nil {
		panic(err)
	}
	return q
}

// The images: a valid one, and one whose guests can never be built.
const (
	simulated = "/simulated"
	missing   = "/missing"
)

// limit bounds one request, since a part that it needs may be down.
const limit = 20 * time.Second

// act does one random user action.
func (a *actor) act() {
	ctx, cancel := context.WithTimeout(a.t.Context(), limit)
	defer cancel()
	a.noteCopies(ctx)
	switch n := a.rng.IntN(52); {
	case n >= 50:
		a.useBulk(ctx)
	case n >= 45:
		a.useBackups(ctx)
	case n >= 42:
		a.useImages(ctx)
	case n >= 20:
		a.useDisks(ctx)
	case n < 4:
		a.create(ctx, croft.NewInstanceID(), a.rng.IntN(3) == 0)
	case n < 7:
		a.destroy(ctx, a.some(), a.rng.IntN(3) == 0)
	case n < 8:
		a.turn(ctx, (*schedule.Scheduler).Stop)
	case n < 10:
		a.turn(ctx, (*schedule.Scheduler).Start)
	case n < 11:
		a.again(ctx)
	case n < 13:
		a.use(ctx)
	case n < 14:
		a.release(ctx)
	case n < 15:
		a.turn(ctx, (*schedule.Scheduler).Recreate)
	case n < 17:
		a.protect(ctx)
	default:
		a.tend()
	}
}

// create requests an instance, sometimes twice concurrently, as a client does that does not know whether its request
// arrived. regretted: it is destroyed right after the request.
func (a *actor) create(ctx context.Context, id croft.InstanceID, regretted bool) {
	image := a.image(ctx)
	n := a.rng.IntN(40)
	r := schedule.Request{ID: id, Query: query, Image: image, Name: fmt.Sprintf("vm-%d", n),
		InstanceSettings: croft.InstanceSettings{Ephemeral: a.rng.IntN(3) == 0, Machine: a.machine(),
			FixedAddress: a.address(ctx)}}
	if a.rng.IntN(4) == 0 {
		r.Hold = time.Hour
		if a.rng.IntN(3) == 0 { // the caretaker may be faster than the user of the hold
			r.Hold = time.Second
			a.doom(id)
		}
	}
	if r.Hold == 0 {
		a.addDisks(ctx, &r)
	}
	if a.rng.IntN(3) == 0 {
		r.Query = gpuQuery
		if r.Storage != "" {
			r.Query = sharedGPUQuery
		}
	}
	if n%3 == 0 {
		r.Affinities = []croft.Affinity{{Group: "racks", Rule: rackRule}}
	}
	errs := make([]error, 1+max(0, a.rng.IntN(8)-6))
	var asking sync.WaitGroup
	for i := range errs {
		lifetime := a.lifetime()
		asking.Go(func() {
			errs[i] = a.scheduler(lifetime, func(s *schedule.Scheduler) error {
				_, err := s.Request(ctx, r)
				return err
			})
		})
	}
	asking.Wait()
	a.noteRequest(ctx, r, errs)
	a.noteAddress(r, errs)
	a.addLabel(ctx, id)
	if regretted {
		a.destroy(ctx, id, false)
	}
}

// noteRequest records the answer to a user's request.
func (a *actor) noteRequest(ctx context.Context, r schedule.Request, errs []error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := &fact{name: r.Name, created: slices.Contains(errs, nil), held: r.Hold != 0}
	// Only a fault during the request leaves its result open.
	f.refused = !f.created && ctx.Err() == nil && !slices.ContainsFunc(errs, func(err error) bool {
		return errors.Is(err, errGate) || errors.Is(err, croft.Unavailable)
	})
	a.facts[r.ID] = f
}

// again destroys, by force, an instance whose host is silent, and requests another one with the same UUID.
func (a *actor) again(ctx context.Context) {
	all, err := a.store.Instances.List(ctx, "")
	if err != nil {
		return
	}
	all = slices.DeleteFunc(all, func(st croft.Status) bool { return st.Host == nil || st.Host.Alive })
	if len(all) == 0 {
		return
	}
	id := all[a.rng.IntN(len(all))].Instance.ID
	if contested, yes := a.tally.contested(); yes && a.rng.IntN(2) == 0 {
		id = contested
	}
	a.mu.Lock()
	a.reused[id] = true
	a.mu.Unlock()
	a.data.replace(id, true)
	a.destroy(ctx, id, true)
	a.create(ctx, id, false)
}

// some picks an instance known to the test, mostly one that may exist.
func (a *actor) some() croft.InstanceID {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id, yes := a.tally.contested(); yes && a.rng.IntN(3) == 0 {
		return id
	}
	there := a.rng.IntN(8) != 0
	for id, f := range a.facts { // in random order
		if !there || !f.destroyed && !f.refused {
			return id
		}
	}
	return croft.NewInstanceID()
}

func (a *actor) destroy(ctx context.Context, id croft.InstanceID, force bool) {
	destroyed := a.destroying(id)
	if force {
		a.mu.Lock()
		a.forced[id] = true
		a.mu.Unlock()
	}
	err := a.scheduler(a.lifetime(), func(s *schedule.Scheduler) error {
		_, err := s.Destroy(ctx, croft.DefaultProject, string(id), force)
		return err
	})
	destroyed(err == nil)
}

// destroying records that the removal of an instance is requested. The returned function records whether that was
// acknowledged.
func (w *world) destroying(id croft.InstanceID) func(acknowledged bool) {
	f := w.doom(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	protected := w.isProtected(id, f)
	return func(acknowledged bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if acknowledged && protected && w.isProtected(id, f) {
			w.broken = append(w.broken, fmt.Sprintf("protection holds: %s was destroyed while it was protected", id))
		}
		if f != nil { // otherwise one of two concurrent requests may still follow it
			f.destroyed = f.destroyed || acknowledged
		}
	}
}

func (a *actor) turn(ctx context.Context, do func(*schedule.Scheduler, context.Context, croft.Project,
	string) (croft.Instance, error)) {
	id := a.some()
	_ = a.scheduler(a.lifetime(), func(s *schedule.Scheduler) error {
		_, err := do(s, ctx, croft.DefaultProject, string(id))
		return err // for any error, wanted and observed state must agree at the end
	})
}

// disturb injects one random fault of installations. It first restores what the previous fault took away.
func (a *actor) disturb() {
	a.placementDown.Store(false)
	for _, m := range a.hosts {
		m.wire.Mend()
		m.slow.Store(false)
		m.dead.Store(false)
		m.takeGPU("")
		if a.rng.IntN(2) == 0 {
			m.boot(a.lifetime() * 8)
		}
	}
	if a.rng.IntN(3) == 0 {
		for _, m := range a.hosts {
			_ = a.store.Registry.Enable(a.t.Context(), m.id)
		}
	}
	m := a.hosts[a.rng.IntN(len(a.hosts))]
	switch a.rng.IntN(17) {
	case 16:
		m.takeGPU("win10")
	case 0, 1:
		m.kill()
		if a.rng.IntN(2) == 0 {
			m.expire()
		}
	case 2:
		m.leave()
	case 3, 4:
		m.kill()
		m.boot(a.lifetime() * 8)
	case 5:
		m.leave()
		m.boot(0)
	case 6:
		a.placementDown.Store(true)
	case 7:
		a.restartEtcd()
	case 8:
		etcdtest.Compact(a.t, a.etcd)
	case 9:
		m.cut()
	case 10, 11:
		m.slow.Store(true)
	case 12, 13:
		m.dead.Store(true)
	case 14:
		a.killPlacement()
	case 15:
		m.expire() // as after a suspension longer than the lease
	}
}

// held picks an instance that was requested as a hold.
func (a *actor) held() (croft.InstanceID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, f := range a.facts { // in random order
		if f.held && !f.refused {
			return id, true
		}
	}
	return "", false
}

// use uses a held claim, sometimes twice concurrently. Only one use of a hold may be acknowledged.
func (a *actor) use(ctx context.Context) {
	id, some := a.held()
	if !some {
		return
	}
	errs := make([]error, 1+a.rng.IntN(2))
	var using sync.WaitGroup
	for i := range errs {
		lifetime := a.lifetime()
		using.Go(func() {
			errs[i] = a.scheduler(lifetime, func(s *schedule.Scheduler) error {
				_, err := s.Use(ctx, croft.DefaultProject, string(id), schedule.Use{Image: simulated})
				return err
			})
		})
	}
	using.Wait()
	for _, err := range errs {
		if err == nil {
			a.tally.add("used what was held")
			a.ended(id)
		}
	}
}

// release gives a held claim back. It never ends an instance.
func (a *actor) release(ctx context.Context) {
	id, some := a.held()
	if !some {
		return
	}
	a.doom(id) // whether or not it is acknowledged
	err := a.scheduler(a.lifetime(), func(s *schedule.Scheduler) error {
		_, err := s.ReleaseHold(ctx, croft.DefaultProject, string(id))
		return err
	})
	if err == nil {
		a.tally.add("released what was held")
		a.ended(id)
	}
}

// ended records that the end of a hold was acknowledged, which happens once per hold.
func (a *actor) ended(id croft.InstanceID) {
	a.mu.Lock()
	f := a.facts[id]
	f.ended++
	again := f.ended > 1 && !a.reused[id]
	a.mu.Unlock()
	if again {
		a.breach("the hold of %s ended twice", id)
	}
}
