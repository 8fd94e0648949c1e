package compute_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/storage"
)

// mounts makes the host mount a shared storage, on which the volumes of the test are from then on.
func (c *cloud) mounts() { c.mounted = c.t.TempDir() }

// storage returns the shared storage of the host once its agent has joined it; empty: it mounts none.
func (c *cloud) storage() croft.StorageID {
	c.t.Helper()
	for c.mounted != "" {
		found, err := c.store.Storages.Storage(c.t.Context(), "nfs1")
		if err == nil && found.Founded {
			return found.ID
		}
		if err != nil && !errors.Is(err, croft.NotFound) {
			c.t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	return ""
}

// neighbour returns the shared storage as another host mounts it, which does not renew its lease.
func (c *cloud) neighbour() *storage.Dir {
	c.t.Helper()
	d := storage.New(storage.Config{Name: "nfs1", Path: c.mounted, Host: croft.NewHostID(),
		Partition: c.store.Partition(), RenewEvery: 20 * time.Millisecond})
	d.Expect(c.storage())
	return d
}

// lockedBy waits until a host has the lock of a volume; empty: until none has it. Volumes that are not on shared
// storage have none.
func (c *cloud) lockedBy(v croft.Volume, want croft.HostID) {
	c.t.Helper()
	if c.mounted == "" {
		return
	}
	d := c.neighbour()
	var last croft.HostID
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var err error
		if last, err = d.Holder(c.t.Context(), v.ID.Consumer()); err == nil && last == want {
			return
		}
	}
	c.t.Fatalf("the lock of volume %s belongs to %q, want %q", v.Name, last, want)
}

// startShared starts a host that mounts a shared storage, with a volume there that is made.
func startShared(t *testing.T) (*cloud, croft.Volume) {
	t.Parallel()
	c := newCloud(t)
	c.mounts()
	c.start()
	v := c.volume("data")
	c.awaitVolume(v.ID, "made", made)
	c.lockedBy(v, "")
	return c, v
}

func TestAHostHasTheLockOfAVolumeAsLongAsItIsAttachedWhereverTheAgentIsKilled(t *testing.T) {
	atEachStep(t, 20, 4, volumeOps, volumeLives, (*cloud).mounts)
}

func TestAVolumeThatAnotherHostHasIsAttachedOnceThatReleasesIt(t *testing.T) {
	c, v := startShared(t)
	other := c.neighbour()
	c.check(other.Acquire(t.Context(), v.ID.Consumer()))
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	c.attach(v, inst)
	c.awaitVolume(v.ID, "refused", func(v *croft.Volume) bool {
		return v != nil && strings.Contains(v.Error, "belongs to host "+string(other.Host))
	})
	if has, err := c.hv.Volumes(t.Context(), inst.ID); err != nil || len(has) > 0 {
		t.Errorf("two hosts have the volume: %v, %v", has, err)
	}
	c.check(other.Release(t.Context(), v.ID.Consumer()))
	c.hasVolume(inst, v, true)
	c.lockedBy(v, c.host.ID)
}

func TestAVolumeIsTakenFromAHostOnceThatIsDeclaredDead(t *testing.T) {
	c, v := startShared(t)
	other := c.neighbour()
	c.check(c.store.Registry.PutHost(t.Context(), croft.Host{ID: other.Host, Name: "other"}))
	c.check(other.Acquire(t.Context(), v.ID.Consumer()))
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	c.attach(v, inst)
	c.awaitVolume(v.ID, "refused", func(v *croft.Volume) bool { return v != nil && v.Error != "" })
	death, err := c.store.Registry.BeginDeath(t.Context(), other.Host)
	c.check(err)
	_, err = c.store.Registry.DeclareDead(t.Context(), other.Host, death, croft.ConfirmedOff)
	c.check(err)
	c.hasVolume(inst, v, true)
	c.lockedBy(v, c.host.ID)
}

// TestTheGuestOfAVolumeThatAnotherHostTookIsOff has a host take a volume as from one that is dead, and only frozen.
func TestTheGuestOfAVolumeThatAnotherHostTookIsOff(t *testing.T) {
	c, v := startShared(t)
	inst := c.requestWithVolumes("web", c.find(v.ID))
	c.await(inst, croft.StateRunning)
	c.lockedBy(v, c.host.ID)
	other := c.neighbour()
	for end := time.Now().Add(30 * time.Second); ; { // the host seems silent between two renewals
		err := other.Acquire(t.Context(), v.ID.Consumer(), c.host.ID)
		if err == nil {
			break
		}
		if !errors.Is(err, croft.Conflict) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		domains, err := c.hv.List(t.Context())
		c.check(err)
		runs := func(d compute.Domain) bool { return d.ID == inst.ID && d.Power == compute.PowerOn }
		if !slices.ContainsFunc(domains, runs) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the guest runs on with a volume that another host has")
		}
	}
	c.lockedBy(v, other.Host)
}

func TestAVolumeIsReleasedWhenItsKeeperIsAnotherHost(t *testing.T) {
	c, v := startShared(t)
	inst := c.requestWithVolumes("web", c.find(v.ID))
	c.await(inst, croft.StateRunning)
	c.check(c.store.Instances.Bury(t.Context(), c.record(inst), croft.Order{})) // its domain stays, as on a silent host
	keeper := croft.NewHostID()
	c.check(c.store.Registry.PutHost(t.Context(), croft.Host{ID: keeper, Name: "keeper"}))
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.store.Registry.StayAlive(ctx, keeper) }()
	defer func() { end(); <-ended }()
	for {
		_, err := c.store.Volumes.Keep(t.Context(), c.find(v.ID), croft.Host{ID: c.host.ID}, keeper)
		if err == nil {
			break
		}
		if !errors.Is(err, croft.Unavailable) {
			t.Fatal(err)
		}
	}
	c.lockedBy(v, c.host.ID) // its guest has the volume
	c.stop()
	c.check(c.hv.Remove(t.Context(), inst.ID))
	c.start()
	c.lockedBy(v, "")
}
