package system

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/hosts"
	"croft/hosts/audit"
	"croft/schedule"
)

// operatorSide is an operator's view of the world, through its gate.
type operatorSide struct {
	w    *world
	gate *gate
	hostBook
	instanceBook
	auditBook
	claimBook
}

// operator holds the parts of an operator's commands.
type operator struct {
	*hosts.Fleet
	*audit.Auditor
}

// Interfaces under names that differ from their methods' names.
type (
	hostBook     interface{ hosts.Store }
	instanceBook interface {
		hosts.Instances
		audit.Instances
	}
	auditBook interface{ audit.Records }
	claimBook interface{ hosts.Claims }
)

func (o *operatorSide) SetMoving(ctx context.Context, i croft.Instance, to croft.HostID) (croft.Instance, error) {
	return through(o.gate, "operator SetMoving", i.ID, func() (croft.Instance,
		error) {
		return o.instanceBook.SetMoving(ctx, i, to)
	})
}

func (o *operatorSide) Relocate(ctx context.Context, i croft.Instance, tombstone, order croft.Order) (croft.Instance,
	error) {
	return through(o.gate, "operator Relocate", i.ID, func() (croft.Instance,
		error) {
		return o.instanceBook.Relocate(ctx, i, tombstone, order)
	})
}

func (o *operatorSide) Carry(ctx context.Context, i croft.Instance, leaving, arriving croft.Order) (croft.Instance,
	error) {
	return through(o.gate, "operator Carry", i.ID, func() (croft.Instance, error) {
		return o.instanceBook.Carry(ctx, i, leaving, arriving)
	})
}

func (o *operatorSide) Uncarry(ctx context.Context, i croft.Instance, why string) error {
	return o.gate.do("operator Uncarry", i.ID, func() error { return o.instanceBook.Uncarry(ctx, i, why) })
}

func (o *operatorSide) Lose(ctx context.Context, i croft.Instance, why croft.Loss, tombstone croft.Order) (
	croft.Instance, error) {
	o.w.data.lose(i)
	return through(o.gate, "operator Lose", i.ID, func() (croft.Instance, error) {
		return o.instanceBook.Lose(ctx, i, why, tombstone)
	})
}

func (o *operatorSide) Bury(ctx context.Context, i croft.Instance, tombstone croft.Order) error {
	o.w.doom(i.ID)
	return o.gate.do("operator Bury", i.ID, func() error { return o.instanceBook.Bury(ctx, i, tombstone) })
}

func (o *operatorSide) Discard(ctx context.Context, i croft.Instance) error {
	return o.gate.do("operator Discard", i.ID, func() error { return o.instanceBook.Discard(ctx, i) })
}

func (o *operatorSide) Drain(ctx context.Context, h croft.HostID) error {
	return o.gate.do("operator Drain", "", func() error { return o.hostBook.Drain(ctx, h) })
}

func (o *operatorSide) ForgetHost(ctx context.Context, h croft.HostID) error {
	return o.gate.do("operator ForgetHost", "", func() error { return o.hostBook.ForgetHost(ctx, h) })
}

func (o *operatorSide) Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error) {
	return through(o.gate, "operator Candidates", "", func() ([]croft.Candidate,
		error) {
		return o.claimBook.Candidates(ctx, query, limit)
	})
}

func (o *operatorSide) Reorder(ctx context.Context, i croft.Instance, order croft.Order) (croft.Instance, error) {
	if order.Want == croft.WantGone {
		o.w.doom(i.ID)
	}
	return through(o.gate, "operator Reorder", i.ID, func() (croft.Instance,
		error) {
		return o.instanceBook.Reorder(ctx, i, order)
	})
}

func (o *operatorSide) Fence(ctx context.Context, i croft.Instance) (croft.Instance, error) {
	return through(o.gate, "operator Fence", i.ID, func() (croft.Instance, error) {
		return o.instanceBook.Fence(ctx,
			i)
	})
}

func (o *operatorSide) ClaimOf(ctx context.Context, id croft.InstanceID) (croft.Claim, error) {
	return through(o.gate, "operator ClaimOf", id, func() (croft.Claim, error) { return o.claimBook.ClaimOf(ctx, id) })
}

func (o *operatorSide) Reclaim(ctx context.Context, had croft.Claim, p croft.Owner, c croft.Candidate) error {
	return o.gate.do("operator Reclaim", had.Instance, func() error { return o.claimBook.Reclaim(ctx, had, p, c) })
}

func (o *operatorSide) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	return o.gate.release("operator Release", id, may, func(may croft.Permit) error {
		return o.claimBook.Release(ctx, id, may)
	})
}

func (o *operatorSide) RemoveProvider(ctx context.Context, h croft.HostID) error {
	return o.gate.do("operator RemoveProvider", "", func() error { return o.claimBook.RemoveProvider(ctx, h) })
}

func (o *operatorSide) Drop(ctx context.Context, d audit.Difference) error {
	return o.gate.do("operator Drop", d.Instance, func() error { return o.auditBook.Drop(ctx, d) })
}

func (o *operatorSide) PutName(ctx context.Context, i croft.Instance) error {
	return o.gate.do("operator PutName", i.ID, func() error { return o.auditBook.PutName(ctx, i) })
}

func (o *operatorSide) PutAddress(ctx context.Context, i croft.Instance) error {
	return o.gate.do("operator PutAddress", i.ID, func() error { return o.auditBook.PutAddress(ctx, i) })
}

func (o *operatorSide) PutMember(ctx context.Context, i croft.Instance) error {
	return o.gate.do("operator PutMember", i.ID, func() error { return o.auditBook.PutMember(ctx, i) })
}

func (o *operatorSide) Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return o.hostBook.Hosts(ctx, ids...)
}

func (o *operatorSide) List(ctx context.Context, p croft.Project) ([]croft.Status, error) {
	return o.instanceBook.List(ctx, p)
}

// machines are the agents of the world, called without HTTP.
type machines struct{ w *world }

func (m machines) of(ctx context.Context, host croft.Host) (*compute.Agent, error) {
	for _, one := range m.w.hosts {
		if one.id == host.ID {
			if agent := one.answering(ctx); agent != nil {
				return agent, nil
			}
		}
	}
	return nil, croft.Errorf(croft.Unavailable, "host %s does not answer", host.Name)
}

func (m machines) Contents(ctx context.Context, host croft.Host) (audit.Contents, error) {
	one, err := m.of(ctx, host)
	if err != nil {
		return audit.Contents{}, err
	}
	return one.Contents(ctx)
}

func (m machines) RemoveFiles(ctx context.Context, host croft.Host, id croft.InstanceID) error {
	one, err := m.of(ctx, host)
	if err != nil {
		return err
	}
	return one.RemoveFiles(ctx, id)
}

// operate runs do as one operator's command, which may die in the middle.
func (w *world) operate(last int, do func(*operator) error) error {
	store, g := w.open(), w.gate(last)
	defer func() { _ = store.Close() }()
	defer g.late.Wait()
	side := &operatorSide{w: w, gate: g, hostBook: store.Registry, instanceBook: store.Instances,
		auditBook: store.Records, claimBook: w.worseClaims(w.claims)}
	fleet, err := hosts.New(hosts.Config{Partition: store.Partition(), Hosts: side, Members: store.Cluster,
		Instances: side, Orders: store.Orders, Claims: side, Power: power{w, g}, Recreator: recreator{w, g},
		Volumes: fleetVolumes{g, store.Volumes}})
	if err != nil {
		w.t.Fatal(err)
	}
	auditor, err := audit.New(audit.Config{Records: side, Instances: side, Registry: side, Claims: side,
		Agents: machines{w}, Fleet: fleet, Volumes: w.volumes(g, store), Resizes: w.resizes(g, store),
		Pause: 100 * time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	return do(&operator{fleet, auditor})
}

// answering returns the host's agent, after any suspension; nil: none answers.
func (m *machine) answering(ctx context.Context) *compute.Agent {
	m.hand.Lock()
	agent, g, runs := m.agent, m.gate, m.stop != nil
	m.hand.Unlock()
	if !runs {
		return nil
	}
	resumed := make(chan struct{})
	go func() { defer close(resumed); g.await() }()
	select {
	case <-resumed:
		return agent
	case <-ctx.Done():
		return nil
	}
}

// doom records that an instance is being destroyed, and returns what its user knows of it; nil: its request still
// runs.
func (w *world) doom(id croft.InstanceID) *fact {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doomed[id] = true
	return w.facts[id]
}

// tend does one random operator action.
func (a *actor) tend() {
	ctx, cancel := context.WithTimeout(a.t.Context(), limit)
	defer cancel()
	m := a.hosts[a.rng.IntN(len(a.hosts))]
	switch a.rng.IntN(11) {
	case 8:
		a.fence(ctx, m)
	case 9, 10:
		if a.sharedDir() == "" {
			a.fence(ctx, m)
			return
		}
		for range 4 { // one that has a disk on shared storage in use
			if !a.usesShared(m) {
				m = a.hosts[a.rng.IntN(len(a.hosts))]
			}
		}
		a.misjudge(ctx, m)
	case 0, 1:
		_ = a.operate(a.lifetime(), func(o *operator) error {
			_, err := o.Enable(ctx, string(m.id))
			return err
		})
	case 2:
		a.forget(ctx, m)
	case 3, 4:
		a.chase(ctx, m)
	default:
		a.drain(ctx, m, a.rng.IntN(2) == 0)
	}
}

// drain keeps new claims away from a host and, with move, moves its instances; it returns their new hosts. Audits must
// find and repair anything that it leaves behind.
func (a *actor) drain(ctx context.Context, m *machine, move bool) (to []croft.HostID) {
	_ = a.operate(a.lifetime(), func(o *operator) error {
		h, err := o.Drain(ctx, string(m.id))
		if err != nil || !move {
			return err
		}
		moved, err := o.MoveAll(ctx, h)
		for _, one := range moved {
			if one.To.ID != "" {
				to = append(to, one.To.ID)
			}
		}
		return err
	})
	return to
}

// chase moves a host's instances away, and away again from their new hosts; sometimes while the first host is silent,
// which is the reason for the move, and sometimes by two operators concurrently.
func (a *actor) chase(ctx context.Context, m *machine) {
	if a.rng.IntN(2) == 0 {
		defer a.hold(m)()
	}
	for _, h := range a.hosts {
		if h != m {
			_ = a.store.Registry.Enable(ctx, h.id)
		}
	}
	var other sync.WaitGroup
	if a.rng.IntN(2) == 0 {
		second := &actor{a.world, rand.New(rand.NewPCG(a.rng.Uint64(), 5))}
		other.Go(func() { second.drain(ctx, m, true) })
	}
	defer other.Wait()
	if went := a.drain(ctx, m, true); len(went) > 0 {
		_ = a.store.Registry.Enable(ctx, m.id)
		a.drain(ctx, a.machineOf(went[a.rng.IntN(len(went))]), true)
		a.linger(ctx)
	}
}

// hold suspends a host's agent until resume is called.
func (a *actor) hold(m *machine) (resume func()) {
	m.hand.Lock()
	defer m.hand.Unlock()
	if m.gate.suspend() {
		return m.gate.resume
	}
	return func() {}
}

// linger waits a random time, so that the effects of an action can follow.
func (a *actor) linger(ctx context.Context) {
	select {
	case <-time.After(time.Duration(a.rng.IntN(1500)) * time.Millisecond):
	case <-ctx.Done():
	}
}

// forget cuts a host's power, and an operator forgets it permanently, possibly after trying to move its instances.
// Sometimes it returns only after everything else has settled. At most one host is away at a time.
func (a *actor) forget(ctx context.Context, m *machine) {
	if !a.forgetting.TryLock() {
		return
	}
	if a.rng.IntN(2) == 0 {
		resume := a.hold(m)
		a.drain(ctx, m, true)
		defer resume()
	}
	m.lose()
	a.mu.Lock()
	a.forgot[m.id] = true
	a.mu.Unlock()
	err := a.operate(0, func(o *operator) error {
		_, err := o.Forget(ctx, string(m.id), true)
		return err
	})
	if err == nil && a.rng.IntN(2) == 0 {
		return
	}
	m.restore()
	a.forgetting.Unlock()
}

// fence cuts a host's power by a fence agent and declares it dead, mostly because its agent is silent while its guests
// run on. Mostly it returns soon, and is taken back. At most one host is away at a time.
func (a *actor) fence(ctx context.Context, m *machine) {
	if !a.forgetting.TryLock() {
		return
	}
	a.writeOn(ctx, m)
	switch a.rng.IntN(4) {
	case 0, 1:
		m.kill()
		m.expire()
	case 2:
		m.cut()
		m.expire()
	}
	err := a.operate(a.lifetime(), func(o *operator) error {
		_, err := o.Fence(ctx, string(m.id), false)
		if err == nil {
			a.tally.add("fenced a host")
		}
		return err
	})
	if a.rng.IntN(5) == 0 && err == nil {
		return // it stays off
	}
	a.linger(ctx)
	m.wire.Mend()
	m.restore()
	m.boot(0)
	_ = a.operate(a.lifetime(), func(o *operator) error {
		_, err := o.TakeBack(ctx, string(m.id))
		return err
	})
	a.forgetting.Unlock()
}

// takeBack brings dead hosts back, and those whose fence was interrupted.
func (w *world) takeBack() {
	for {
		hosts, err := w.store.Registry.Hosts(w.t.Context())
		dead := false
		for id, h := range hosts {
			m := w.machineOrNil(id)
			if h.Death == nil || m == nil {
				continue
			}
			dead = true
			m.restore()
			m.boot(0)
			err = errors.Join(err, w.operate(0, func(o *operator) error {
				if _, err := o.Fence(w.t.Context(), string(id), false); err != nil {
					return err
				}
				m.restore()
				m.boot(0)
				_, err := o.TakeBack(w.t.Context(), string(id))
				return err
			}))
		}
		if err == nil && !dead || w.t.Context().Err() != nil {
			return
		}
	}
}

// isAway reports whether a difference is about a volume on a host that is away.
func (w *world) isAway(d audit.Difference) bool {
	return d.Kind == audit.LostVolume && w.machineOrNil(d.Host) == nil
}

// wasForgotten reports whether a difference is that a volume claims nothing because its host was forgotten, and
// returned.
func (w *world) wasForgotten(d audit.Difference) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return d.Kind == audit.UnclaimedVolume && w.forgot[d.Host]
}

// repair is an operator's repair after faults: it enables all hosts, runs croft audit --fix, and decides on each
// instance that was lost with a forgotten host, and on guests that have the addresses of others.
func (w *world) repair(ctx context.Context) error {
	return errors.Join(w.mend(ctx), w.replaceLost(ctx), w.freeAddresses(ctx), w.operate(0, func(o *operator) error {
		var err error
		for _, m := range w.hosts {
			err = errors.Join(err, w.clear(ctx, o, m))
		}
		return err
	}))
}

func (w *world) mend(ctx context.Context) error {
	return w.operate(0, func(o *operator) error {
		for _, m := range w.hosts {
			if err := o.Hosts.Enable(ctx, m.id); err != nil {
				return err
			}
		}
		report, err := o.Audit(ctx)
		if err != nil {
			return err
		}
		for _, d := range report.Differences {
			if d.Mendable {
				_ = o.Mend(ctx, d) // the last audit reports remaining problems
			}
			if m := w.machineOrNil(d.Host); d.Kind == audit.StrayVolume && m != nil { // as the audit advises
				if err := os.RemoveAll(filepath.Dir(m.volumeFile(croft.VolumeID(d.Instance)))); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// clear orders a host to remove what lost instances left on it.
func (w *world) clear(ctx context.Context, o *operator, m *machine) error {
	left, err := o.Leftovers(ctx, m.id)
	for _, l := range left {
		if bad := w.leftData(m, l.Instance); bad != "" {
			w.breach("%s", bad)
		}
		if l.State != string(croft.StateLost) { // of a lost one the disk goes with the record
			err = errors.Join(err, o.RemoveLeftover(ctx, m.id, string(l.Instance)))
		}
	}
	return err
}

// replaceLost recreates every second lost instance on another host. It destroys the others, and those for which no host
// has room.
func (w *world) replaceLost(ctx context.Context) error {
	all, err := w.store.Instances.List(ctx, "")
	if err != nil {
		return err
	}
	recreate := true
	for _, st := range all {
		if st.Instance.State != croft.StateLost {
			continue
		}
		id := string(st.Instance.ID)
		if recreate {
			err := w.scheduler(0, func(s *schedule.Scheduler) error {
				_, err := s.Recreate(ctx, croft.DefaultProject, id)
				return err
			})
			if err == nil {
				recreate = false
				continue
			}
			taken := st.Instance.Spec.FixedAddress != "" && croft.KindOf(err) == croft.Conflict // on all hosts
			if croft.KindOf(err) != croft.NoCapacity && !taken {
				return err
			}
		}
		recreate = true
		if err := w.unprotect(ctx, st.Instance); err != nil {
			return err
		}
		f := w.doom(st.Instance.ID)
		err := w.scheduler(0, func(s *schedule.Scheduler) error {
			_, err := s.Destroy(ctx, croft.DefaultProject, id, false)
			return err
		})
		if err != nil {
			return err
		}
		if f != nil {
			f.destroyed = true
		}
	}
	return nil
}

// audit returns the findings of an audit of everything.
func (w *world) audit(ctx context.Context) []string {
	var found []string
	err := w.operate(0, func(o *operator) error {
		report, err := o.Audit(ctx)
		for _, d := range report.Differences {
			if !w.isAway(d) {
				found = append(found, fmt.Sprintf("audit: %+v", d))
			}
		}
		for _, u := range report.Unchecked {
			found = append(found, fmt.Sprintf("audit: host %s is unchecked: %s", u.Name, u.Why))
		}
		return err
	})
	if err != nil {
		found = append(found, fmt.Sprintf("audit: %v", err))
	}
	return found
}

// throwaway requests an ephemeral instance and waits until it runs.
func (w *world) throwaway(ctx context.Context) croft.Instance {
	var inst croft.Instance
	err := w.scheduler(0, func(s *schedule.Scheduler) error {
		d, err := s.Request(ctx, schedule.Request{Query: query, Image: simulated, Name: "throw",
			InstanceSettings: croft.InstanceSettings{Ephemeral: true}})
		inst = d.Instance
		if err != nil {
			return err
		}
		return s.Wait(ctx, inst, schedule.Running, nil)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.facts[inst.ID] = &fact{name: "throw", created: true}
	return inst
}

// TestAMoveThatDiesAnywhereCanBeEnded kills the command at each of its writes.
func TestAMoveThatDiesAnywhereCanBeEnded(t *testing.T) {
	for last := 4; last <= 11; last++ { // the first crossings write nothing
		for _, how := range []string{"by the same command", "by an audit"} {
			t.Run(fmt.Sprintf("after %d crossings, %s", last-1, how), func(t *testing.T) {
				w := newWorld(t, uint64(last), 2, 0)
				inst := w.throwaway(t.Context())
				drain := func(o *operator) error {
					if _, err := o.Drain(t.Context(), string(inst.Host)); err != nil {
						return err
					}
					h, err := o.Find(t.Context(), string(inst.Host))
					if err != nil {
						return err
					}
					_, err = o.MoveAll(t.Context(), h)
					return err
				}
				died := w.operate(last, drain)
				if how == "by the same command" {
					if err := w.operate(0, drain); err != nil {
						t.Fatal(err)
					}
					st, err := w.store.Instances.Find(t.Context(), inst.Project, string(inst.ID))
					if err != nil || st.Instance.Host == inst.Host {
						t.Fatalf("it stays on host %s: %v", st.Instance.Host, err)
					}
				}
				w.settle()
				t.Log(died)
			})
		}
	}
}
