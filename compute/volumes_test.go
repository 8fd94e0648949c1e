package compute_test

import (
	"cmp"
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
	"croft/internal/testing/sample"
)

// volume writes the record and the claim of a volume, as a request does.
func (c *cloud) volume(name string, change ...func(*croft.Volume)) croft.Volume {
	c.t.Helper()
	v := croft.Volume{ID: croft.NewVolumeID(), Project: croft.DefaultProject, Name: name, Host: c.host.ID, SizeGB: 2,
		Storage: c.storage()}
	for _, one := range change {
		one(&v)
	}
	for {
		made, err := c.store.Volumes.Create(c.t.Context(), v)
		if errors.Is(err, croft.Unavailable) {
			continue // the host is not alive yet
		}
		if err == nil {
			c.ledger.claim(v.ID.Consumer())
			made, err = c.store.Volumes.Settle(c.t.Context(), made)
		}
		c.check(err)
		return made
	}
}

func (c *cloud) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// awaitVolume waits until a volume is as wanted; nil: it has no record any more.
func (c *cloud) awaitVolume(id croft.VolumeID, what string, wanted func(*croft.Volume) bool) {
	c.t.Helper()
	var last *croft.Volume
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		v, err := c.store.Volumes.Volume(c.t.Context(), c.host.ID, id)
		if last = &v; errors.Is(err, croft.NotFound) {
			last = nil
		} else {
			c.check(err)
		}
		if wanted(last) {
			return
		}
	}
	c.t.Fatalf("the volume is never %s: it is %+v", what, last)
}

func made(v *croft.Volume) bool      { return v != nil && v.MadeGB == v.ClaimedGB && v.Error == "" }
func gone(v *croft.Volume) bool      { return v == nil }
func available(v *croft.Volume) bool { return v != nil && v.State() == croft.VolumeAvailable }

func (c *cloud) find(id croft.VolumeID) croft.Volume {
	c.t.Helper()
	v, err := c.store.Volumes.Volume(c.t.Context(), c.host.ID, id)
	c.check(err)
	return v
}

// record returns the record of an instance, as stored.
func (c *cloud) record(inst croft.Instance) croft.Instance {
	c.t.Helper()
	inst, err := c.store.Instances.Instance(c.t.Context(), inst.ID)
	c.check(err)
	return inst
}

func (c *cloud) attach(v croft.Volume, inst croft.Instance) {
	c.t.Helper()
	_, err := c.store.Volumes.Attach(c.t.Context(), c.find(v.ID), c.record(inst))
	c.check(err)
}

func (c *cloud) detach(v croft.Volume) {
	c.t.Helper()
	_, err := c.store.Volumes.Detach(c.t.Context(), c.find(v.ID))
	c.check(err)
}

func (c *cloud) file(v croft.Volume) string {
	return filepath.Join(cmp.Or(c.mounted, c.dir), "volumes", string(v.ID), "disk.qcow2")
}

// hasVolume waits until the guest has the volume, or has not.
func (c *cloud) hasVolume(inst croft.Instance, v croft.Volume, want bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	err := c.hv.Watch(ctx, func(croft.InstanceID) {
		if all, err := c.hv.Volumes(ctx, inst.ID); err == nil && slices.Contains(all, v.ID) == want {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		c.t.Fatalf("that the guest of %s has volume %s is never %v: %v", inst.Name, v.Name, want, err)
	}
}

// dying makes the agent stop before or after one of its steps, as if it was killed there.
type dying struct {
	compute.Volumes
	mu    sync.Mutex
	left  int // steps until it dies; negative: it lives on
	kill  func()
	steps int
}

var errKilled = errors.New("killed")

// step fails once the agent is killed.
func (d *dying) step() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.steps++
	if d.left < 0 {
		return nil
	}
	if d.left > 0 {
		d.left--
		return nil
	}
	d.kill()
	return errKilled
}

func (d *dying) around(do func() error) error {
	if err := d.step(); err != nil {
		return err
	}
	return errors.Join(do(), d.step())
}

func (d *dying) MadeVolume(ctx context.Context, h croft.HostID, id croft.VolumeID, size int64) error {
	return d.around(func() error { return d.Volumes.MadeVolume(ctx, h, id, size) })
}

func (d *dying) DetachedVolume(ctx context.Context, h croft.HostID, id croft.VolumeID, from croft.InstanceID) error {
	return d.around(func() error { return d.Volumes.DetachedVolume(ctx, h, id, from) })
}

func (d *dying) ForgetVolume(ctx context.Context, h croft.HostID, id croft.VolumeID) error {
	return d.around(func() error { return d.Volumes.ForgetVolume(ctx, h, id) })
}

func (d *dying) TookSnapshot(ctx context.Context, h croft.HostID, id croft.VolumeID, how croft.Snapshot) error {
	return d.around(func() error { return d.Volumes.TookSnapshot(ctx, h, id, how) })
}

func (d *dying) RolledBack(ctx context.Context, h croft.HostID, id croft.VolumeID, at time.Time, why string) error {
	return d.around(func() error { return d.Volumes.RolledBack(ctx, h, id, at, why) })
}

// startDying returns a cloud whose agent is killed at its nth step, and then started again. The steps are the
// operations of the hypervisor in ops, and those of dying.
func startDying(t *testing.T, n int, died *bool, prepare []func(*cloud), ops ...string) *cloud {
	d := &dying{left: n}
	c := newFaultyCloud(t, func(_ context.Context, op string, _ croft.InstanceID) error {
		if slices.Contains(ops, op) {
			return d.step()
		}
		return nil
	})
	d.Volumes, c.volumes = c.store.Volumes, d
	for _, first := range prepare {
		first(c)
	}
	killed := make(chan struct{})
	d.kill = sync.OnceFunc(func() { close(killed) })
	c.start()
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		select {
		case <-killed:
			*died = true
			c.stop()
			d.mu.Lock()
			d.left = -1
			d.mu.Unlock()
			c.launch(func() {})
		case <-t.Context().Done():
		}
	}()
	t.Cleanup(func() { <-restarted })
	return c
}

// atEachStep runs a test with an agent that is killed at its nth step, for one in some of the steps, and with one that
// does all its steps, which are at most so many.
func atEachStep(t *testing.T, most, oneIn int, ops []string, test func(*testing.T, *cloud), prepare ...func(*cloud)) {
	t.Parallel()
	steps := make([]int, most)
	for n := range steps {
		steps[n] = n
	}
	for _, n := range append(sample.OneIn(t, oneIn, steps), most) {
		t.Run(fmt.Sprintf("at step %d", n), func(t *testing.T) {
			t.Parallel()
			died := false
			t.Cleanup(func() {
				if died && n == most {
					t.Errorf("the agent does more than %d steps", most)
				}
			})
			test(t, startDying(t, n, &died, prepare, ops...))
		})
	}
}

func TestAVolumeIsMadeAttachedDetachedAndRemovedWhereverTheAgentIsKilled(t *testing.T) {
	atEachStep(t, 20, 3, volumeOps, volumeLives)
}

// volumeOps are the operations that a hypervisor does in volumeLives.
var volumeOps = []string{sim.OpAttach, sim.OpDetach, sim.OpDefine, sim.OpGrow}

// volumeLives has a volume made, attached, detached and removed. If it is on shared storage, the host has its lock as
// long as it is attached.
func volumeLives(t *testing.T, c *cloud) {
	v := c.volume("data")
	c.awaitVolume(v.ID, "made", made)
	c.lockedBy(v, "")
	inst := c.requestWithVolumes("web", c.find(v.ID))
	c.await(inst, croft.StateRunning)
	c.hasVolume(inst, v, true)
	c.lockedBy(v, c.host.ID)
	other := c.volume("other")
	c.awaitVolume(other.ID, "made", made)
	c.attach(other, inst)
	c.hasVolume(inst, other, true)
	c.detach(v)
	c.awaitVolume(v.ID, "detached", available)
	c.hasVolume(inst, v, false)
	c.lockedBy(v, "")
	c.lockedBy(other, c.host.ID)
	c.reorder(c.record(inst), croft.WantGone)
	c.await(inst, "")
	for _, v := range []croft.Volume{v, other} {
		c.awaitVolume(v.ID, "available", available)
		c.lockedBy(v, "")
		if _, err := os.Stat(c.file(v)); err != nil {
			t.Errorf("the instance is gone, and the file of volume %s: %v", v.Name, err)
		}
		_, err := c.store.Volumes.Condemn(t.Context(), c.find(v.ID))
		c.check(err)
		c.awaitVolume(v.ID, "gone", gone)
		if _, err := os.Stat(filepath.Dir(c.file(v))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the record of volume %s is gone, and its files are there: %v", v.Name, err)
		}
	}
	if claims, err := c.ledger.Claims(t.Context(), c.host.ID); err != nil || len(claims) > 0 {
		t.Errorf("left are the claims %v, %v", claims, err)
	}
}

// requestWithVolumes is like request, for an instance with volumes.
func (c *cloud) requestWithVolumes(name string, volumes ...croft.Volume) croft.Instance {
	c.t.Helper()
	c.attaching = volumes
	defer func() { c.attaching = nil }()
	return c.request(name)
}

// The instance that a volume of a backup is restored for may be removed before its host has the data.
func TestAVolumeWhoseDataNeverArrivedIsNotMadeEmpty(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	v := c.volume("data", func(v *croft.Volume) { v.CopyOf = croft.NewVolumeID() })
	c.awaitVolume(v.ID, "refused", func(v *croft.Volume) bool {
		return v != nil && strings.Contains(v.Error, "restore the backup again")
	})
	if _, err := os.Stat(c.file(v)); !errors.Is(err, os.ErrNotExist) || c.find(v.ID).MadeGB > 0 {
		t.Errorf("it is made: %v, %+v", err, c.find(v.ID))
	}
	_, err := c.store.Volumes.Condemn(t.Context(), c.find(v.ID))
	c.check(err)
	c.awaitVolume(v.ID, "gone", gone)
}

func TestAGuestThatKeepsItsVolumeIsReportedUntilItReleasesIt(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	v := c.volume("data")
	c.awaitVolume(v.ID, "made", made)
	inst := c.requestWithVolumes("web", c.find(v.ID))
	c.await(inst, croft.StateRunning)
	c.check(c.hv.Cling(inst.ID, true))
	c.detach(v)
	c.awaitVolume(v.ID, "failed", func(v *croft.Volume) bool {
		return v != nil && v.State() == croft.VolumeFailed && v.Instance == inst.ID &&
			strings.Contains(v.Error, "stop the guest, and it is detached")
	})
	c.await(inst, croft.StateRunning)
	c.check(c.hv.Cling(inst.ID, false))
	c.awaitVolume(v.ID, "detached", available)
}

func TestAVolumeThatAnotherGuestStillHasIsNotAttachedNorRemoved(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	v := c.volume("data")
	c.awaitVolume(v.ID, "made", made)
	one := c.requestWithVolumes("one", c.find(v.ID))
	c.await(one, croft.StateRunning)
	c.check(c.store.Instances.Bury(t.Context(), c.record(one), croft.Order{})) // its domain stays, as on a silent host
	two := c.request("two")
	c.await(two, croft.StateRunning)
	c.attach(v, two)
	c.awaitVolume(v.ID, "refused", func(v *croft.Volume) bool { return v != nil && v.State() == croft.VolumeFailed })
	if all, err := c.hv.Volumes(t.Context(), two.ID); err != nil || len(all) > 0 {
		t.Errorf("two guests have the volume: %v, %v", all, err)
	}
	c.check(c.hv.Remove(t.Context(), one.ID))
	c.hasVolume(two, v, true)
	c.awaitVolume(v.ID, "in use", func(v *croft.Volume) bool { return v != nil && v.State() == croft.VolumeInUse })
}

func TestAFileOfAVolumeWithoutARecordStays(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	v := c.volume("data")
	c.awaitVolume(v.ID, "made", made)
	c.check(c.store.Volumes.GiveUp(t.Context(), croft.Volume{ID: v.ID, Host: v.Host, Name: v.Name, Project: v.Project,
		SizeGB: v.SizeGB, Revision: c.find(v.ID).Revision})) // removes the record, past the agent
	c.awaitVolume(v.ID, "gone", gone)
	c.stop()
	c.start()
	contents, err := agent.Contents(t.Context())
	if err != nil || !slices.Equal(contents.Volumes, []croft.VolumeID{v.ID}) {
		t.Errorf("the host has the volumes %v, %v", contents.Volumes, err)
	}
	if _, err := os.Stat(c.file(v)); err != nil {
		t.Error(err)
	}
}
