package compute_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
	"croft/internal/testing/patient"
)

// snapshot orders a snapshot of an instance and its volumes.
func (c *cloud) snapshot(name string, inst croft.Instance, disks ...croft.Volume) croft.Volume {
	c.t.Helper()
	inst = c.record(inst)
	s := croft.Volume{ID: croft.NewVolumeID(), Project: inst.Project, Name: name, Host: c.host.ID, Instance: inst.ID,
		SizeGB: 3, Snapshot: &croft.Snapshot{Instance: inst.ID}}
	for i, v := range disks {
		s.Snapshot.Volumes = append(s.Snapshot.Volumes, v.ID)
		disks[i] = c.find(v.ID)
	}
	for {
		made, err := c.store.Volumes.CreateSnapshot(c.t.Context(), s, inst, disks)
		if errors.Is(err, croft.Unavailable) {
			continue // its agent was killed, and the host is not alive yet
		}
		if err == nil {
			c.ledger.claim(s.ID.Consumer())
			made, err = c.store.Volumes.Settle(c.t.Context(), made)
		}
		c.check(err)
		return made
	}
}

// withVolume returns an instance that runs, and the volume that is attached to it.
func (c *cloud) withVolume() (croft.Instance, croft.Volume) {
	c.t.Helper()
	v := c.volume("data")
	c.awaitVolume(v.ID, "made", made)
	inst := c.requestWithVolumes("web", c.find(v.ID))
	c.await(inst, croft.StateRunning)
	return inst, v
}

func ready(v *croft.Volume) bool { return v != nil && v.State() == croft.SnapshotReady }

// taken orders a snapshot and waits until it is taken.
func (c *cloud) taken(name string, inst croft.Instance, disks ...croft.Volume) croft.Volume {
	c.t.Helper()
	s := c.snapshot(name, inst, disks...)
	c.awaitVolume(s.ID, "ready", ready)
	return c.find(s.ID)
}

func (c *cloud) condemn(v croft.Volume) {
	c.t.Helper()
	for {
		_, err := c.store.Volumes.Condemn(c.t.Context(), c.find(v.ID))
		if !errors.Is(err, croft.Conflict) {
			c.check(err)
			return
		}
	}
}

func (c *cloud) rollBack(s croft.Volume, how croft.Rollback) croft.Volume {
	c.t.Helper()
	_, err := c.store.Volumes.RollBack(c.t.Context(), c.find(s.ID), how)
	c.check(err)
	c.awaitVolume(s.ID, "ready", ready)
	return c.find(s.ID)
}

// files returns the names of the qcow2 files of a disk.
func (c *cloud) files(dir string) (names []string) {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "disk*"))
	c.check(err)
	for _, file := range found {
		names = append(names, filepath.Base(file))
	}
	return names
}

// on checks which snapshot has put the topmost files on the disks of an instance; none: all its snapshots are removed.
func (c *cloud) on(inst croft.Instance, v croft.Volume, s ...croft.Volume) {
	c.t.Helper()
	name := "disk.qcow2"
	for _, one := range s {
		name = "disk." + string(one.ID) + ".qcow2"
	}
	want := map[croft.VolumeID]string{compute.RootDisk: filepath.Join(c.dir, string(inst.ID), name),
		v.ID: filepath.Join(filepath.Dir(c.file(v)), name)}
	got, err := c.hv.Tops(c.t.Context(), inst.ID)
	if c.check(err); !maps.Equal(got, want) {
		c.t.Errorf("the guest writes to %v, want %v", got, want)
	}
	for _, file := range got {
		if have := len(c.files(filepath.Dir(file))); have != len(s)+1 {
			c.t.Errorf("the disk has %d files: %v", have, c.files(filepath.Dir(file)))
		}
	}
}

func TestASnapshotIsTakenRolledBackToAndRemovedWhereverTheAgentIsKilled(t *testing.T) {
	atEachStep(t, 52, 6, []string{sim.OpPutOver, sim.OpMerge, sim.OpRedefine}, func(t *testing.T, c *cloud) {
		inst, v := c.withVolume()
		first := c.taken("first", inst, v)
		c.on(inst, v, first)
		second := c.taken("second", inst, v)
		c.on(inst, v, first, second)
		c.condemn(first) // in the middle
		c.awaitVolume(first.ID, "gone", gone)
		c.on(inst, v, second)
		rolled := c.rollBack(second, croft.RollbackStop)
		if rolled.Error != "" || rolled.Snapshot.RolledBack.IsZero() {
			t.Errorf("the snapshot is %+v, %+v", rolled, rolled.Snapshot)
		}
		c.on(inst, v, second)
		c.await(inst, croft.StateRunning)
		c.condemn(second) // on the top
		c.awaitVolume(second.ID, "gone", gone)
		c.on(inst, v)
		c.await(c.reorder(c.record(inst), croft.WantStopped), croft.StateStopped)
		off := c.taken("off", inst, v)
		c.on(inst, v, off)
		last := c.taken("last", inst, v)
		c.condemn(off)
		c.awaitVolume(off.ID, "gone", gone)
		c.on(inst, v, last)
		c.reorder(c.record(inst), croft.WantGone)
		c.await(inst, "")
		c.awaitVolume(last.ID, "gone", gone)
		c.awaitVolume(v.ID, "available", available)
		if files := c.files(filepath.Dir(c.file(v))); len(files) != 1 {
			t.Errorf("the instance is gone, and the volume has the files %v", files)
		}
		entries, err := os.ReadDir(filepath.Join(c.dir, "volumes"))
		if c.check(err); len(entries) != 1 {
			t.Errorf("left are %v", entries)
		}
		claims, err := c.ledger.Claims(t.Context(), c.host.ID)
		if _, kept := claims[v.ID.Consumer()]; err != nil || len(claims) != 1 || !kept {
			t.Errorf("left are the claims %v, %v", claims, err)
		}
	})
}

// interrupted is a store whose Forget ends with the pass's context, as if the watch had reported sooner than the answer
// arrived that the order is gone.
type interrupted struct{ compute.Orders }

func (i interrupted) Forget(ctx context.Context, o croft.Order) error {
	if err := i.Orders.Forget(ctx, o); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestASnapshotIsRemovedWithItsInstanceThoughTheEndOfItsOrderInterruptsThePass(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.between = interrupted{c.store.Orders}
	c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	s := c.taken("first", inst)
	c.reorder(c.record(inst), croft.WantGone)
	c.awaitVolume(s.ID, "gone", gone)
}

func TestARollbackIsNotDoneWhileTheGuestRuns(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	inst, v := c.withVolume()
	s := c.taken("first", inst, v)
	if s.Snapshot.Method != croft.MethodDisks || s.Snapshot.Note != compute.ErrNoAgent.Error() {
		t.Errorf("a guest without an agent: %+v", s.Snapshot)
	}
	const refused = "not rolled back, and nothing was lost: "
	if s = c.rollBack(s, croft.RollbackOff); s.Error != refused+"the instance runs: stop it first" ||
		!s.Snapshot.RolledBack.IsZero() {
		t.Errorf("the snapshot is %+v, %+v", s, s.Snapshot)
	}
	c.await(inst, croft.StateRunning)
	c.check(c.hv.Answer(inst.ID, true))
	if s := c.taken("second", inst, v); s.Snapshot.Method != croft.MethodQuiesced || s.Snapshot.Note != "" {
		t.Errorf("a guest with an agent: %+v", s.Snapshot)
	}
	if s := c.rollBack(s, croft.RollbackStop); s.Error != refused+"there is a newer snapshot: remove it first" {
		t.Errorf("the snapshot is %+v, %+v", s, s.Snapshot)
	}
	c.await(inst, croft.StateRunning)
}

func TestARollbackOnAFullDiskLosesNothingAndIsDoneOnceThereIsSpace(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("mounts a disk: run as root")
	}
	c := newCloud(t)
	if err := unix.Mount("none", c.dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		c.stop()
		c.check(unix.Unmount(c.dir, unix.MNT_DETACH))
	})
	c.start()
	inst, v := c.withVolume()
	s := c.taken("first", inst, v)
	overlay := filepath.Join(c.dir, string(inst.ID), "disk."+string(s.ID)+".qcow2")
	before, err := os.Stat(overlay)
	c.check(err)
	var disk unix.Statfs_t
	c.check(unix.Statfs(c.dir, &disk))
	fill := filepath.Join(c.dir, "fill") // leaves space for the new overlay of one disk, not for those of both
	c.check(os.WriteFile(fill, make([]byte, int64(disk.Bavail-1)*disk.Bsize), 0o600))
	if s = c.rollBack(s, croft.RollbackStop); !strings.HasPrefix(s.Error, "not rolled back, and nothing was lost: ") ||
		!strings.Contains(s.Error, "no space left on device") || !s.Snapshot.RolledBack.IsZero() {
		t.Errorf("the snapshot is %+v, %+v", s, s.Snapshot)
	}
	c.on(inst, v, s)
	if after, err := os.Stat(overlay); err != nil || !os.SameFile(before, after) {
		t.Errorf("the disk was replaced: %v", err)
	}
	c.check(os.Remove(fill))
	c.await(inst, croft.StateRunning)
	if s = c.rollBack(s, croft.RollbackStop); s.Error != "" || s.Snapshot.RolledBack.IsZero() {
		t.Errorf("the snapshot is %+v, %+v", s, s.Snapshot)
	}
	if after, err := os.Stat(overlay); err != nil || os.SameFile(before, after) {
		t.Errorf("the disk is the old one: %v", err)
	}
}

// The agent was interrupted while the guest merged the files of a snapshot, and the record of the snapshot ended before
// the instance. Only the definition of the domain says whether that was done.
func TestAnInterruptedMergeIsSettledBeforeTheDomainGoes(t *testing.T) {
	t.Parallel()
	for name, used := range map[string]bool{"it was not done": true, "it was done": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			c.start()
			inst, v := c.withVolume()
			dir := filepath.Dir(c.file(v))
			if used {
				s := c.taken("first", inst, v)
				inst = c.record(inst)
				c.check(c.store.Volumes.GiveUpLost(t.Context(), c.find(s.ID)))
				c.check(os.WriteFile(filepath.Join(dir, "disk."+string(s.ID)+".qcow2.merged"), nil, 0o600))
			} else {
				left := filepath.Join(dir, "disk."+string(croft.NewVolumeID())+".qcow2")
				c.check(os.WriteFile(left, nil, 0o600))
				c.check(os.WriteFile(left+".merged", nil, 0o600))
			}
			inst = c.reorder(c.record(inst), croft.WantGone)
			c.await(inst, "")
			patient.Until(t, "the volume has its file alone", func() bool {
				return slices.Equal(c.files(dir), []string{"disk.qcow2"})
			})
		})
	}
}

func TestAVolumeWithASnapshotOfAnotherInstanceIsAttachedOnceThatIsRemoved(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	one, v := c.withVolume()
	s := c.taken("first", one, v)
	c.check(c.store.Instances.Bury(t.Context(), c.record(one), croft.Order{})) // as of a silent host
	c.check(c.hv.Remove(t.Context(), one.ID))
	two := c.request("two")
	c.await(two, croft.StateRunning)
	c.attach(v, two)
	c.awaitVolume(v.ID, "refused", func(v *croft.Volume) bool {
		return v != nil && strings.HasSuffix(v.Error, "snapshot first of volume data is not removed yet")
	})
	c.condemn(s)
	c.awaitVolume(s.ID, "gone", gone)
	c.hasVolume(two, v, true)
	c.on(two, v)
}

func TestSnapshotsOfAProjectWhoseAgentsHangDelayNoOther(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	hangs, within, most := map[croft.InstanceID]bool{}, 0, 0
	release := make(chan struct{})
	c := newFaultyCloud(t, func(ctx context.Context, op string, id croft.InstanceID) error {
		mu.Lock()
		waits := op == sim.OpPutOver && hangs[id]
		if waits {
			delete(hangs, id)
			within++
			most = max(most, within)
		}
		mu.Unlock()
		if !waits {
			return nil
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
		mu.Lock()
		defer mu.Unlock()
		within--
		return ctx.Err()
	})
	c.start()
	var hostile []croft.Instance
	for i := range 4 {
		hostile = append(hostile, c.requestAs("hostile", fmt.Sprint("slow", i), croft.Spec{}))
	}
	other := c.request("quick")
	c.await(other, croft.StateRunning)
	var slow []croft.Volume
	began := time.Now()
	for _, inst := range hostile {
		c.await(inst, croft.StateRunning)
		mu.Lock()
		hangs[inst.ID] = true
		mu.Unlock()
		slow = append(slow, c.snapshot("s", inst))
	}
	patient.Until(t, "two agents are called", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return within >= 2
	})
	c.taken("s", other)
	mu.Lock()
	if most > 2 && time.Since(began) < time.Minute { // later, guests are not quiesced
		t.Errorf("%d agents of one project are called at once", most)
	}
	mu.Unlock()
	close(release)
	for _, s := range slow {
		c.awaitVolume(s.ID, "ready", ready)
	}
}
