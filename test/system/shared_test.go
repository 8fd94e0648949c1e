package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
	"croft/compute/storage"
	"croft/schedule"
)

// storageName is the name of the shared storage in the settings of its hosts.
const storageName = "nfs1"

// renewEvery is how often a host renews its lease: a host that has to wait for a processor is not taken for silent.
const renewEvery = 300 * time.Millisecond

// freezer is the state of a host that stops with its guests and resumes as if no time had passed, or that was declared
// dead by mistake.
type freezer struct {
	mu sync.Mutex
	// its guests that have not lost their power since it was frozen: QEMU has the locks of their disks
	locks map[croft.InstanceID]bool
	// it was declared dead while its guests could run, so that the local disk of a guest is in use that runs elsewhere
	misjudged bool
}

// sharedDir is the directory of the shared storage; empty: the world has none.
func (w *world) sharedDir() string {
	if !w.full || w.front != nil { // a host behind a gate uses none
		return ""
	}
	return filepath.Join(w.dir, "shared")
}

// sharedDirs returns the settings of a host's agent: not all hosts mount the storage.
func (m *machine) sharedDirs(g *gate) []compute.SharedDir {
	dir := m.w.sharedDir()
	if dir == "" || m.n >= 2+int(m.w.seed/4%2) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		m.w.t.Error(err)
	}
	return []compute.SharedDir{{Name: storageName, Path: dir, RenewEvery: renewEvery, Fault: g.access}}
}

// access is an access of the process to a shared directory: it waits while the process is suspended, and may fail.
func (g *gate) access() error {
	g.await()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.dead:
		return errGate
	case g.rng.Float64() < g.faulty:
		return croft.Errorf(croft.Unavailable, "%w: input/output error", errGate)
	}
	return nil
}

func (a *agentSide) Storage(ctx context.Context, name string) (croft.Storage, error) {
	return through(a.gate, "agent Storage", "", func() (croft.Storage, error) { return a.storages.Storage(ctx, name) })
}

func (a *agentSide) PutStorage(ctx context.Context, s croft.Storage) (croft.Storage, error) {
	return through(a.gate, "agent PutStorage", "", func() (croft.Storage, error) {
		return a.storages.PutStorage(ctx, s)
	})
}

// isShared reports whether a guest has its disk on the shared storage.
func (w *world) isShared(machine compute.Machine) bool {
	return len(machine.Disk) > 0 && w.onShared(machine.Disk[0].Path)
}

// hasShared reports whether a volume is on the shared storage.
func (w *world) hasShared(v compute.Volume) bool { return w.onShared(v.Path) }

func (w *world) onShared(file string) bool {
	dir := w.sharedDir()
	return dir != "" && strings.HasPrefix(file, dir+"/")
}

// freeze stops a host: its agent, and its guests. thaw resumes it.
func (m *machine) freeze() (thaw func()) {
	m.hand.Lock()
	defer m.hand.Unlock()
	if m.stop == nil || !m.gate.suspend() {
		return func() {}
	}
	g, ctx := m.gate, context.WithValue(m.w.t.Context(), looking{}, true)
	m.frozen.mu.Lock()
	defer m.frozen.mu.Unlock()
	domains, err := m.hv.List(ctx)
	if err != nil {
		m.w.t.Errorf("host%d: %v", m.n, err)
	}
	var paused []croft.InstanceID
	for _, d := range domains {
		if d.Power == compute.PowerOn && m.hv.Pause(d.ID) == nil {
			m.frozen.locks[d.ID] = true
			paused = append(paused, d.ID)
		}
	}
	return func() {
		m.frozen.mu.Lock()
		for _, id := range paused {
			if m.frozen.locks[id] && m.hv.Open(id) != nil { // otherwise it lost its power
				_ = m.hv.Start(ctx, id)
			}
		}
		m.frozen.mu.Unlock()
		g.resume()
	}
}

// lockByQEMU notes that guests which run on have the locks of their disks, as those of a frozen host do.
func (m *machine) lockByQEMU() {
	domains, err := m.hv.List(context.WithValue(m.w.t.Context(), looking{}, true))
	if err != nil {
		m.w.t.Errorf("host%d: %v", m.n, err)
	}
	m.frozen.mu.Lock()
	defer m.frozen.mu.Unlock()
	for _, d := range domains {
		if d.Power == compute.PowerOn {
			m.frozen.locks[d.ID] = true
		}
	}
}

// lockedByQEMU returns an error if the QEMU of a host that was declared dead and is not off has one of the files of an
// instance open, and its lock.
func (w *world) lockedByQEMU(id croft.InstanceID, files []string, by *machine) error {
	for _, m := range w.machines {
		if m == by {
			continue
		}
		if guest := m.frozenWith(files); guest != "" {
			return croft.Errorf(croft.Unavailable, "the process of %s is using a disk of %s", guest, id)
		}
		m.frozen.mu.Lock()
		delete(m.frozen.locks, id) // its local disk is another one: it does not resume
		m.frozen.mu.Unlock()
	}
	return nil
}

// frozenWith returns the guest of a host that was frozen that has one of these files open; empty: none.
func (m *machine) frozenWith(files []string) croft.InstanceID {
	m.frozen.mu.Lock()
	defer m.frozen.mu.Unlock()
	for id := range m.frozen.locks {
		open := m.hv.Open(id)
		if open == nil {
			delete(m.frozen.locks, id)
		}
		for _, file := range open {
			if slices.Contains(files, file) {
				return id
			}
		}
	}
	return ""
}

// files returns the files of the disks of a guest, as it is defined on the host.
func (m *machine) files(id croft.InstanceID) (all []string) {
	machine, err := m.hv.Machine(id)
	if err != nil {
		return nil
	}
	if len(machine.Disk) > 0 {
		all = append(all, machine.Disk[0].Path)
	}
	for _, v := range machine.Volumes {
		all = append(all, v.Path)
	}
	return all
}

// misjudge lets an operator declare a host dead that is not off: it is frozen, or it only does not reach etcd. Then it
// thaws, and is taken back.
func (a *actor) misjudge(ctx context.Context, m *machine) {
	if !a.forgetting.TryLock() {
		return
	}
	defer a.forgetting.Unlock()
	a.writeOn(ctx, m)
	back := func() { m.wire.Mend() }
	if a.rng.IntN(2) == 0 {
		back = m.freeze()
	} else {
		m.cut()
		m.lockByQEMU()
	}
	defer back()
	m.frozen.mu.Lock()
	m.frozen.misjudged = true
	m.frozen.mu.Unlock()
	m.expire()
	_ = a.operate(a.lifetime(), func(o *operator) error {
		_, err := o.Fence(ctx, string(m.id), true)
		if err == nil {
			a.tally.add("declared a host dead that was not off")
		}
		return err
	})
	a.linger(ctx)
	back()
	a.linger(ctx)
	m.boot(0)
	_ = a.operate(a.lifetime(), func(o *operator) error {
		_, err := o.TakeBack(ctx, string(m.id))
		return err
	})
}

// usesShared reports whether a guest of a host has a file on the shared storage open.
func (w *world) usesShared(m *machine) bool {
	domains, err := m.hv.List(context.WithValue(w.t.Context(), looking{}, true))
	if err != nil {
		return false
	}
	for _, d := range domains {
		for _, file := range m.hv.Open(d.ID) {
			if w.onShared(file) {
				return true
			}
		}
	}
	return false
}

func (m *machine) isMisjudged() bool {
	m.frozen.mu.Lock()
	defer m.frozen.mu.Unlock()
	return m.frozen.misjudged
}

// powerLost records that the guests of the host are off.
func (m *machine) powerLost() {
	m.frozen.mu.Lock()
	defer m.frozen.mu.Unlock()
	m.frozen.misjudged = false
	clear(m.frozen.locks)
}

// sharedDisksOutliveHosts: every instance on the shared storage has its disk there, with what its guest wrote last, and
// the lock of the disk belongs to its host; so it is with volumes there; nothing else is there.
func (w *world) sharedDisksOutliveHosts(ctx context.Context) (bad []string) {
	dir := w.sharedDir()
	if dir == "" {
		return nil
	}
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	all, err := w.store.Instances.List(ctx, "")
	if err != nil {
		return []string{err.Error()}
	}
	w.data.mu.Lock()
	defer w.data.mu.Unlock()
	want := map[string]bool{}
	for _, st := range all {
		inst := st.Instance
		if inst.Storage == "" {
			continue
		}
		want[string(inst.ID)] = true
		if inst.Spec.Image == missing || w.unbuilt(inst) { // its host may have locked the disk before it failed
			continue
		}
		data, err := sim.FileContent(filepath.Join(dir, "instances", string(inst.ID), "disk.qcow2"))
		if m := w.machineOrNil(inst.Host); m != nil && err == nil && inst.State == croft.StateScheduled {
			disks, failed := m.hv.Disks(ctx, inst.ID) // the data below a snapshot is in another file
			data, err = disks[compute.RootDisk], failed
		}
		may := w.data.may(diskID(inst.ID))
		if err != nil || !may.has(data) && !inst.Spec.Ephemeral && inst.Backup == nil && !w.twice(inst.ID) {
			complain("the disk of %s (%s) on the shared storage has %q, and may have %v: %v", inst.ID, inst.State, data,
				may, err)
		}
		if inst.State != croft.StateScheduled {
			continue
		}
		if holder := w.holder(inst.ID); !w.mayHold(inst, holder) {
			complain("the lock of the disk of %s is host %q's, and it is on host %s", inst.ID, holder, inst.Host)
		}
	}
	bad = append(bad, w.sharedVolumes(ctx, want)...)
	for _, part := range []string{"instances", "volumes", "locks"} {
		files, err := os.ReadDir(filepath.Join(dir, part))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			complain("%v", err)
		}
		for _, f := range files {
			name, kind, _ := strings.Cut(f.Name(), ".")
			writing := name == "" // a lease that is being renewed
			if !want[name] && kind != "lease" && !writing && !w.leftToAbsent(croft.InstanceID(name)) {
				complain("%s of %s, which has no disk on the shared storage", part, f.Name())
			}
		}
	}
	return bad
}

// mayHold reports whether a host may have the lock of a disk of an instance: it is the instance's. None may have it
// while the guest is off, as after a move that ended when the disks had been left to the other host.
func (w *world) mayHold(inst croft.Instance, holder croft.HostID) bool {
	m := w.machineOrNil(inst.Host)
	return holder == inst.Host || holder == "" && m != nil && m.hv.Open(inst.ID) == nil
}

// leftToAbsent reports whether a host that is away removes a disk when it returns: it has the lock, or has released it
// and has the order to remove the instance.
func (w *world) leftToAbsent(id croft.InstanceID) bool {
	return len(w.hosts) < len(w.machines) && slices.ContainsFunc(w.machines, func(m *machine) bool {
		if w.machineOrNil(m.id) != nil {
			return false
		}
		order, err := w.store.Orders.Order(w.t.Context(), m.id, id)
		return w.holder(id) == m.id || err == nil && order.Want == croft.WantGone
	})
}

// holder returns the host that has the lock of a disk.
func (w *world) holder(id croft.InstanceID) croft.HostID {
	holder, err := w.shared("").Holder(w.t.Context(), id)
	if err != nil {
		return croft.HostID(err.Error())
	}
	return holder
}

// shared returns the shared storage as a host uses it.
func (w *world) shared(host croft.HostID) *storage.Dir {
	dir := storage.New(storage.Config{Name: storageName, Path: w.sharedDir(), Host: host,
		Partition: w.store.Partition()})
	if identity, err := dir.Identity(w.t.Context()); err == nil {
		dir.Expect(identity.ID)
	}
	return dir
}

// onShared requests an instance on the shared storage, waits until it runs, lets its guest write, and fences its host.
func onShared(t *testing.T) (w *world, inst croft.Instance, dead *machine) {
	w = newWorldWith(t, 1, 2, 0, true)
	err := w.scheduler(0, func(s *schedule.Scheduler) error {
		d, err := s.Request(t.Context(), schedule.Request{Query: sharedQuery, Image: simulated, Name: "vm",
			InstanceSettings: croft.InstanceSettings{Storage: croft.StorageShared}})
		if err != nil {
			return err
		}
		inst = d.Instance
		return s.Wait(t.Context(), inst, schedule.Running, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.facts[inst.ID] = &fact{name: inst.Name, created: true}
	dead = w.machine(inst.Host)
	w.write(t.Context(), dead, inst.ID)
	if err := w.operate(0, func(o *operator) error {
		_, err := o.Fence(t.Context(), string(dead.id), false)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return w, inst, dead
}

func (w *world) mustTakeBack(dead *machine) {
	w.t.Helper()
	dead.restore()
	dead.boot(0)
	w.awaitAlive(dead.id)
	if err := w.operate(0, func(o *operator) error {
		_, err := o.TakeBack(w.t.Context(), string(dead.id))
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

func TestTheDiskOfALostInstanceOnSharedStorageGoesWhenItsOwnerRemovesIt(t *testing.T) {
	w, inst, dead := onShared(t)
	w.mustTakeBack(dead)
	w.await(t, "the host that returned released the disk", func() bool { return w.holder(inst.ID) == "" })
	w.destroyed(inst.ID)
	w.settle()
}

func TestTheDiskOfALostInstanceOnSharedStorageGoesWithAHostThatReturnsLater(t *testing.T) {
	w, inst, dead := onShared(t)
	w.destroyed(inst.ID)
	w.mustTakeBack(dead)
	w.settle()
}

// The owner requests an instance with the same UUID again, on the other host, before the dead host returns.
func TestTheDiskOfALostInstanceIsRemovedBeforeTheNextInstanceWithItsUUIDGetsOne(t *testing.T) {
	w, inst, dead := onShared(t)
	w.destroyed(inst.ID)
	err := w.scheduler(0, func(s *schedule.Scheduler) error {
		_, err := s.Request(t.Context(), schedule.Request{ID: inst.ID, Query: sharedQuery, Image: simulated,
			Name: "vm", InstanceSettings: croft.InstanceSettings{Storage: croft.StorageShared}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.facts[inst.ID] = &fact{name: inst.Name, created: true}
	w.data.replace(inst.ID, false)
	w.mustTakeBack(dead)
	w.settle()
}

// The host has not released the disk yet when it gets the order.
func TestTheRemovalOfALeftoverKeepsTheDiskOnSharedStorage(t *testing.T) {
	w, inst, dead := onShared(t)
	if err := w.operate(0, func(o *operator) error {
		return o.RemoveLeftover(t.Context(), dead.id, string(inst.ID))
	}); err != nil {
		t.Fatal(err)
	}
	w.mustTakeBack(dead)
	if err := w.scheduler(0, func(s *schedule.Scheduler) error {
		_, err := s.Recreate(t.Context(), inst.Project, string(inst.ID))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.settle()
}

func TestAnInstanceWithoutADiskOnSharedStorageStaysOnItsHost(t *testing.T) {
	w := newWorldWith(t, 1, 2, 0, true)
	var inst croft.Instance
	err := w.scheduler(0, func(s *schedule.Scheduler) error {
		d, err := s.Request(t.Context(), schedule.Request{Query: sharedQuery, Image: missing, Name: "vm",
			InstanceSettings: croft.InstanceSettings{Storage: croft.StorageShared}})
		inst = d.Instance
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.facts[inst.ID] = &fact{name: inst.Name, created: true}
	find := func() (st croft.Status) {
		st, _ = w.store.Instances.Find(t.Context(), inst.Project, string(inst.ID))
		return st
	}
	w.await(t, "the instance failed", func() bool {
		st := find()
		return st.Observation != nil && st.Observation.State == croft.StateFailed
	})
	if err := w.operate(0, func(o *operator) error {
		_, err := o.Move(t.Context(), find(), "")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.await(t, "the move ended", func() bool { return find().Instance.Unmoved != "" })
	if why := find().Instance.Unmoved; !strings.Contains(why, "its disk was not made yet") {
		t.Errorf("the move ended because %s", why)
	}
	w.destroyed(inst.ID)
	w.settle()
}

// destroyed destroys an instance.
func (w *world) destroyed(id croft.InstanceID) {
	w.t.Helper()
	if err := w.scheduler(0, func(s *schedule.Scheduler) error {
		_, err := s.Destroy(w.t.Context(), croft.DefaultProject, string(id), false)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	w.doom(id).destroyed = true
}

// The host dies before it has made the disk; maybe it had the lock by then, returned, and released it.
func TestAnInstanceOnSharedStorageWhoseHostDiedBeforeItMadeTheDiskStartsElsewhere(t *testing.T) {
	t.Run("it had no lock", func(t *testing.T) { diesBeforeTheDisk(t, false) })
	t.Run("it released the lock", func(t *testing.T) { diesBeforeTheDisk(t, true) })
}

func diesBeforeTheDisk(t *testing.T, locked bool) {
	w := newWorldWith(t, 1, 2, 0, true)
	var inst croft.Instance
	for _, m := range w.hosts {
		m.dead.Store(true)
	}
	err := w.scheduler(0, func(s *schedule.Scheduler) error {
		d, err := s.Request(t.Context(), schedule.Request{Query: sharedQuery, Image: simulated, Name: "vm",
			InstanceSettings: croft.InstanceSettings{Storage: croft.StorageShared},
			GuestSettings:    croft.GuestSettings{Restart: croft.RestartElsewhere}})
		inst = d.Instance
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.facts[inst.ID] = &fact{name: inst.Name, created: true}
	if locked {
		dir := w.shared(inst.Host)
		if err := errors.Join(dir.Acquire(t.Context(), inst.ID), dir.Release(t.Context(), inst.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.operate(0, func(o *operator) error {
		_, err := o.Fence(t.Context(), string(inst.Host), false)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.settle()
}
