package system

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"croft"
	"croft/compute"
	"croft/schedule"
)

// captures numbers the snapshots, so that no two have one name.
var captures atomic.Int64

// useDisks does one random action of a user with disks.
func (a *actor) useDisks(ctx context.Context) {
	switch n := a.rng.IntN(20); {
	case n < 6:
		a.writeSome(ctx)
	case n < 8:
		a.createVolume(ctx)
	case n < 10:
		a.attach(ctx)
	case n < 11:
		a.detach(ctx)
	case n < 12:
		a.grow(ctx)
	case n < 13:
		a.removeVolume(ctx)
	case n < 15:
		a.snapshot(ctx)
	case n < 16:
		a.rollBack(ctx)
	case n < 17:
		a.removeSnapshot(ctx)
	case n < 18:
		a.resize(ctx)
	default:
		a.moveOne(ctx)
	}
}

// writeSome lets the guests of a host write.
func (a *actor) writeSome(ctx context.Context) {
	a.writeOn(ctx, a.hosts[a.rng.IntN(len(a.hosts))])
}

func (a *actor) writeOn(ctx context.Context, m *machine) {
	domains, err := m.hv.List(context.WithValue(ctx, looking{}, true))
	if err != nil {
		return
	}
	for _, d := range domains {
		if d.Power == compute.PowerOn {
			a.write(ctx, m, d.ID)
		}
	}
}

// pick returns a random element; false: there is none.
func pick[T any](rng *rand.Rand, all []T) (one T, ok bool) {
	if len(all) == 0 {
		return one, false
	}
	return all[rng.IntN(len(all))], true
}

// volume picks a volume.
func (a *actor) volume(ctx context.Context) (croft.Volume, bool) {
	all, err := a.store.Volumes.List(ctx, "")
	if err != nil {
		return croft.Volume{}, false
	}
	return pick(a.rng, all)
}

// status picks an instance that has a host.
func (a *actor) status(ctx context.Context) (croft.Status, bool) {
	all, err := a.store.Instances.List(ctx, "")
	if err != nil {
		return croft.Status{}, false
	}
	return pick(a.rng, slices.DeleteFunc(all, func(st croft.Status) bool { return st.Instance.Host == "" }))
}

func (a *actor) volumeName() string { return fmt.Sprintf("vol-%d", a.rng.IntN(16)) }

func (a *actor) createVolume(ctx context.Context) {
	name, size := a.volumeName(), 1+int64(a.rng.IntN(4))
	host, shared := "", a.sharedDir() != "" && a.rng.IntN(2) == 0
	if a.rng.IntN(2) == 0 {
		host = string(a.hosts[a.rng.IntN(len(a.hosts))].id)
	}
	begun := time.Now()
	_ = a.disks(a.lifetime(), func(s diskService) (err error) {
		var v croft.Volume
		if shared {
			v, err = s.CreateShared(ctx, croft.DefaultProject, name, 1, croft.StorageShared)
		} else {
			v, err = s.Create(ctx, croft.DefaultProject, name, size, host)
		}
		if err == nil {
			a.tally.add("created a volume" + onStorage(v))
			a.data.mu.Lock()
			defer a.data.mu.Unlock()
			if a.data.volumes[v.ID] == nil {
				a.data.volumes[v.ID] = &volumeFact{name: name, doomed: a.data.removals[name].After(begun)}
			}
		}
		return err
	})
}

// onStorage says for the tally that a volume is on shared storage.
func onStorage(v croft.Volume) string {
	if v.Storage == "" {
		return ""
	}
	return " on shared storage"
}

// attach attaches a volume to an instance, mostly to one on its host, and sometimes to two at once.
func (a *actor) attach(ctx context.Context) {
	v, some := a.volume(ctx)
	if !some {
		return
	}
	for range 1 + a.rng.IntN(2) {
		st, some := a.status(ctx)
		for range 4 {
			if v.Storage == "" && st.Instance.Host != v.Host {
				st, some = a.status(ctx)
			}
		}
		if !some {
			return
		}
		_ = a.disks(a.lifetime(), func(s diskService) error {
			_, err := s.Attach(ctx, v.Project, v.Name, st.Instance)
			if err == nil {
				a.tally.add("attached a volume" + onStorage(v))
			}
			return err
		})
	}
}

func (a *actor) detach(ctx context.Context) {
	if v, some := a.volume(ctx); some {
		_ = a.disks(a.lifetime(), func(s diskService) error {
			_, err := s.Detach(ctx, v.Project, v.Name)
			if err == nil {
				a.tally.add("detached a volume" + onStorage(v))
			}
			return err
		})
	}
}

func (a *actor) grow(ctx context.Context) {
	if v, some := a.volume(ctx); some {
		_ = a.disks(a.lifetime(), func(s diskService) error {
			_, err := s.Grow(ctx, v.Project, v.Name, v.SizeGB+1)
			if err == nil {
				a.tally.add("enlarged a volume" + onStorage(v))
			}
			return err
		})
	}
}

func (a *actor) removeVolume(ctx context.Context) {
	v, some := a.volume(ctx)
	if !some || v.Instance != "" && a.rng.IntN(4) != 0 { // which is refused
		return
	}
	a.data.doomVolumes(v.Name)
	_ = a.disks(a.lifetime(), func(s diskService) error {
		_, err := s.Remove(ctx, v.Project, v.Name)
		if err == nil {
			a.tally.add("removed a volume" + onStorage(v))
		}
		return err
	})
}

// doomVolumes records that a volume with this name may be removed. A new one may get the name meanwhile.
func (l *dataLog) doomVolumes(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removals[name] = time.Now()
	for _, f := range l.volumes {
		f.doomed = f.doomed || f.name == name
	}
}

func (a *actor) snapshot(ctx context.Context) {
	st, some := a.status(ctx)
	if !some {
		return
	}
	name := fmt.Sprintf("snap-%d", captures.Add(1))
	a.data.capture(name, st.Instance.ID)
	_ = a.disks(a.lifetime(), func(s diskService) error {
		_, err := s.CreateSnapshot(ctx, st, name)
		if err == nil {
			a.tally.add("took a snapshot")
		}
		return err
	})
}

// captured picks a snapshot, with its instance.
func (a *actor) captured(ctx context.Context) (v croft.Volume, st croft.Status, ok bool) {
	all, err := a.store.Volumes.Snapshots(ctx, croft.DefaultProject)
	if err != nil {
		return v, st, false
	}
	v, ok = pick(a.rng, all)
	if !ok {
		return v, st, false
	}
	st, err = a.store.Instances.FindByID(ctx, v.Snapshot.Instance)
	return v, st, err == nil
}

func (a *actor) rollBack(ctx context.Context) {
	v, st, some := a.captured(ctx)
	if !some || !a.data.knows(v) { // no temporary one of an image or a backup
		return
	}
	defer a.data.rollBack(v)()
	_ = a.disks(a.lifetime(), func(s diskService) error {
		_, err := s.RollBack(ctx, st, v.Name, a.rng.IntN(2) == 0)
		if err == nil {
			a.tally.add("rolled back")
		}
		return err
	})
}

func (a *actor) removeSnapshot(ctx context.Context) {
	if v, st, some := a.captured(ctx); some {
		_ = a.disks(a.lifetime(), func(s diskService) error {
			_, err := s.RemoveSnapshot(ctx, st.Instance, v.Name)
			if err == nil {
				a.tally.add("removed a snapshot")
			}
			return err
		})
	}
}

// resize gives an instance another size; mostly it has to be stopped for that.
func (a *actor) resize(ctx context.Context) {
	st, some := a.status(ctx)
	if !some {
		return
	}
	id := string(st.Instance.ID)
	to := croft.Resources{croft.VCPU: 1 + int64(a.rng.IntN(2)), croft.MemoryMB: 512 * (1 + int64(a.rng.IntN(3)))}
	if a.rng.IntN(3) == 0 {
		to = croft.Resources{croft.DiskGB: st.Instance.Spec.Resources[croft.DiskGB] + int64(a.rng.IntN(2))}
	} else if a.rng.IntN(3) != 0 {
		a.stop(ctx, id)
	}
	_ = a.disks(a.lifetime(), func(s diskService) error {
		_, err := s.sizes.Resize(ctx, croft.DefaultProject, id, to)
		if err == nil {
			a.tally.add("resized an instance")
		}
		return err
	})
}

// stop stops an instance, and waits for that unless its host is away.
func (a *actor) stop(ctx context.Context, id string) {
	_ = a.scheduler(a.lifetime(), func(s *schedule.Scheduler) error {
		inst, err := s.Stop(ctx, croft.DefaultProject, id)
		if err == nil {
			soon, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			err = s.Wait(soon, inst, schedule.Stopped, nil)
		}
		return err
	})
}

// moveOne moves an instance with its disk; sometimes it ends the move again.
func (a *actor) moveOne(ctx context.Context) {
	st, some := a.status(ctx)
	if !some {
		return
	}
	to := ""
	if a.rng.IntN(2) == 0 {
		to = string(a.hosts[a.rng.IntN(len(a.hosts))].id)
	}
	_ = a.operate(a.lifetime(), func(o *operator) error {
		_, err := o.Move(ctx, st, to)
		if err == nil {
			a.tally.add("moved an instance with its disks")
		}
		return err
	})
	if a.rng.IntN(4) != 0 {
		return
	}
	a.linger(ctx)
	if now, err := a.store.Instances.Instance(ctx, st.Instance.ID); err == nil {
		_ = a.operate(a.lifetime(), func(o *operator) error { return o.EndCopy(ctx, now, "a user ended the move") })
	}
}

// addDisks lets some requests have volumes.
func (a *actor) addDisks(ctx context.Context, r *schedule.Request) {
	if a.rng.IntN(2) == 0 {
		r.Restart = croft.RestartElsewhere
	}
	if a.sharedDir() != "" && a.rng.IntN(2) == 0 {
		r.Storage, r.Query = croft.StorageShared, sharedQuery
	}
	switch a.rng.IntN(6) {
	case 0:
		if r.Storage == "" {
			r.Disks = []croft.NewDisk{{SizeGB: 2}}
		}
	case 1, 2:
		if v, some := a.volume(ctx); some {
			r.Volumes = []string{v.Name}
		}
	}
}

// populate lets users create instances with disks, which run before the faults begin.
func (w *world) populate() {
	w.calmed.Store(true)
	defer w.calmed.Store(false)
	var asking sync.WaitGroup
	for n := range 2 * len(w.hosts) {
		a := w.actor(100 + uint64(n))
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(w.t.Context(), limit)
			defer cancel()
			id := croft.NewInstanceID()
			a.create(ctx, id, false)
			a.createVolume(ctx)
			if inst, err := w.store.Instances.Instance(ctx, id); err == nil && inst.State == croft.StateScheduled &&
				inst.Spec.Image != missing {
				soon, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				_ = w.scheduler(0, func(s *schedule.Scheduler) error {
					return s.Wait(soon, inst, schedule.Running, nil)
				})
			}
			a.attach(ctx)
			a.writeSome(ctx)
			switch {
			case n < 2:
				a.resize(ctx)
			case n < 4:
				a.useBackups(ctx)
			}
		})
	}
	asking.Wait()
}

// fill lets many users ask for the last places at once, of all hosts that have power.
func (w *world) fill() {
	w.placementDown.Store(false)
	for _, m := range w.hosts {
		m.wire.Mend()
		m.slow.Store(false)
		m.dead.Store(false)
		m.boot(0)
		_ = w.store.Registry.Enable(w.t.Context(), m.id)
	}
	var asking sync.WaitGroup
	for n := range hostCPUs * len(w.hosts) {
		a := w.actor(200 + uint64(n))
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(w.t.Context(), limit)
			defer cancel()
			a.create(ctx, croft.NewInstanceID(), false)
		})
	}
	asking.Wait()
}
