package move

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"croft"
	"croft/hosts"
	"croft/schedule/volumes"
)

// roomForVolumes is the DISK_GB of each host besides that for instances.
const roomForVolumes = 10

func withRoom(w *world) { w.ForVolumes = roomForVolumes }

// volumes returns the requests for volumes.
func (w *world) volumes() *volumes.Manager {
	return &volumes.Manager{Partition: w.Store.Partition(), Store: w.Store.Volumes, Claims: w.Claims,
		Hosts: w.Store.Registry, Instances: w.Store.Instances, Log: slog.New(slog.DiscardHandler)}
}

// awaitVolume waits until a volume is as wanted.
func (w *world) awaitVolume(what, name string, wanted func(croft.Volume) bool) croft.Volume {
	w.Helper()
	var v croft.Volume
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if v, err = w.Store.Volumes.Find(w.Context(), croft.DefaultProject, name); err == nil && wanted(v) {
			return v
		}
	}
	w.Fatalf("never: %s; the volume is %+v, %v", what, v, err)
	return v
}

func (w *world) volumeFile(host string, v croft.Volume) string {
	return filepath.Join(w.Dir, host, "volumes", string(v.ID), "disk.qcow2")
}

// attach creates a volume on the host of an instance, attaches it, and writes data on it.
func (w *world) attach(name, host string, inst croft.Instance, sizeGB int64, data []byte) croft.Volume {
	w.Helper()
	_, err := w.volumes().Create(w.Context(), croft.DefaultProject, name, sizeGB, host)
	w.must(err)
	w.awaitVolume("it is made", name, func(v croft.Volume) bool { return v.MadeGB == sizeGB })
	for {
		_, err = w.volumes().Attach(w.Context(), croft.DefaultProject, name, w.status(inst.ID).Instance)
		if !errors.Is(err, croft.Conflict) {
			break
		}
	}
	w.must(err)
	v := w.awaitVolume("the guest has it", name, func(v croft.Volume) bool { // no watch reports that
		has, err := w.Hosts[host].Hypervisor.Volumes(w.Context(), inst.ID)
		return err == nil && slices.Contains(has, v.ID)
	})
	w.must(os.WriteFile(w.volumeFile(host, v), data, 0o600))
	return v
}

// awaitVolumeOnly waits until a volume is attached on one host with this data and claims there alone, and no other host
// has anything of it.
func (w *world) awaitVolumeOnly(v croft.Volume, on string, want []byte) {
	w.Helper()
	var claim croft.Claim
	now := w.awaitVolume("it is only on "+on, v.Name, func(now croft.Volume) bool {
		var err error
		claim, err = w.Claims.ClaimOf(w.Context(), v.ID.Consumer())
		return err == nil && now.Host == w.host(on) && len(claim.Allocations) == 1
	})
	if claim.Allocations[w.host(on)][croft.DiskGB] != v.ClaimedGB {
		w.Errorf("volume %s claims %v", v.Name, claim.Allocations)
	}
	if now.Instance != v.Instance || now.ID != v.ID || now.Error != "" {
		w.Errorf("the volume is %+v", now)
	}
	got, err := os.ReadFile(w.volumeFile(on, v))
	if err != nil || !bytes.Equal(got, want) {
		w.Errorf("the volume on %s has %d bytes, not the %d of the guest: %v", on, len(got), len(want), err)
	}
	has, err := w.Hosts[on].Hypervisor.Volumes(w.Context(), v.Instance)
	if err != nil || !slices.Contains(has, v.ID) {
		w.Errorf("the guest on %s has the volumes %v, %v", on, has, err)
	}
	for name := range maps.Keys(w.Hosts) {
		dir := filepath.Dir(w.volumeFile(name, v))
		if _, err := os.Stat(dir); name != on && !errors.Is(err, os.ErrNotExist) {
			w.Errorf("host %s still has %s: %v", name, dir, err)
		}
	}
}

func TestVolumesMoveWithTheirInstance(t *testing.T) {
	w, disk := newWorld(t, withRoom), data(2)
	inst := w.place("web", "a", disk)
	one, two := data(3), data(1)
	first, second := w.attach("one", "a", inst, 3, one), w.attach("two", "a", inst, 2, two)
	for _, to := range []string{"b", "a", "c"} {
		w.must(w.move(inst.ID, to))
		w.awaitOnly(inst.ID, to, croft.StateRunning, disk)
		w.awaitVolumeOnly(first, to, one)
		w.awaitVolumeOnly(second, to, two)
	}
	_, err := w.volumes().Grow(t.Context(), croft.DefaultProject, "one", 4)
	w.must(err)
	_, err = w.scheduler.Destroy(t.Context(), croft.DefaultProject, "web", false)
	w.must(err)
	w.awaitVolume("it outlives its instance on the new host", "one", func(v croft.Volume) bool {
		return v.Instance == "" && v.Host == w.host("c") && v.MadeGB == 4
	})
}

// A host without room for a volume is refused before the guest is stopped, and keeps no claim.
func TestAHostWithoutRoomForAVolumeIsRefused(t *testing.T) {
	w, disk := newWorld(t, withRoom), data(1)
	inst := w.place("web", "a", disk)
	content := data(1)
	small, v := w.attach("small", "a", inst, 1, content), w.attach("data", "a", inst, 6, content)
	_, err := w.volumes().Create(t.Context(), croft.DefaultProject, "other", 7, "b")
	w.must(err)
	if err := w.move(inst.ID, "b"); !errors.Is(err, croft.NoCapacity) {
		t.Fatalf("got %v", err)
	}
	if st := w.status(inst.ID); !runsOn(st, w.host("a")) || st.Instance.Moving != "" {
		t.Errorf("it is %+v", st.Instance)
	}
	w.awaitVolumeOnly(v, "a", content)
	w.awaitVolumeOnly(small, "a", content)
}

// While the disks are copied, no request changes a volume; a move that is ended leaves all as it was.
func TestVolumesStayWithAMoveThatIsEnded(t *testing.T) {
	gate := make(chan struct{})
	w, disk := newWorld(t, func(w *world) { withRoom(w); w.Peers = heldUntil(gate) }), data(2)
	defer close(gate)
	inst := w.place("web", "a", disk)
	content := data(1)
	v := w.attach("data", "a", inst, 3, content)
	var before croft.Volume
	w.fleet.Instances = reads{w.fleet.Instances, func() {
		var err error
		before, err = w.Store.Volumes.Find(t.Context(), croft.DefaultProject, "data")
		w.must(err)
	}}
	w.must(w.move(inst.ID, "b"))
	for name, do := range map[string]func() error{
		"grow":   func() error { _, err := w.volumes().Grow(t.Context(), croft.DefaultProject, "data", 4); return err },
		"detach": func() error { _, err := w.volumes().Detach(t.Context(), croft.DefaultProject, "data"); return err },
		"a detachment that has not seen the move": func() error {
			_, err := w.Store.Volumes.Detach(t.Context(), before)
			return err
		},
	} {
		if err := do(); !errors.Is(err, croft.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.must(w.fleet.EndCopy(t.Context(), w.status(inst.ID).Instance, "an operator ended the move"))
	w.awaitOnly(inst.ID, "a", croft.StateRunning, disk)
	w.awaitVolumeOnly(v, "a", content)
	_, err := w.volumes().Detach(t.Context(), croft.DefaultProject, "data")
	w.must(err)
	w.awaitVolume("it is detached", "data", func(v croft.Volume) bool { return v.Instance == "" })
}

// A request that dies after it claimed on the target is ended by a caretaker, and its claims with it.
func TestAMoveThatDiesBeforeItsOrdersReturnsTheClaims(t *testing.T) {
	w, disk := newWorld(t, withRoom), data(1)
	inst := w.place("web", "a", disk)
	content := data(1)
	v := w.attach("data", "a", inst, 3, content)
	w.fleet.Instances = dies{w.fleet.Instances}
	if err := w.move(inst.ID, "b"); !errors.Is(err, errDead) {
		t.Fatalf("got %v", err)
	}
	w.fleet.Instances = w.Store.Instances
	claim, err := w.Claims.ClaimOf(t.Context(), v.ID.Consumer())
	w.must(err)
	if len(claim.Allocations) != 2 {
		t.Errorf("the volume claims %v, want both hosts", claim.Allocations)
	}
	w.must(w.fleet.EndMove(t.Context(), w.status(inst.ID)))
	w.awaitOnly(inst.ID, "a", croft.StateRunning, disk)
	w.awaitVolumeOnly(v, "a", content)
}

var errDead = errors.New("the process is dead")

// Files of something else on the target are neither used nor removed.
func TestOldFilesOfAVolumeOnTheTargetAreKept(t *testing.T) {
	w, disk := newWorld(t, withRoom), data(1)
	inst := w.place("web", "a", disk)
	content := data(1)
	v := w.attach("data", "a", inst, 3, content)
	old := w.volumeFile("b", v)
	w.must(os.MkdirAll(filepath.Dir(old), 0o711))
	w.must(os.WriteFile(old, []byte("old"), 0o600))
	w.must(w.move(inst.ID, "b"))
	w.await("it stays", inst.ID, func(st croft.Status) bool {
		return st.Instance.Unmoved != "" && runsOn(st, w.host("a"))
	})
	if got, err := os.ReadFile(old); err != nil || string(got) != "old" {
		t.Errorf("the old file: %q, %v", got, err)
	}
	w.must(os.RemoveAll(filepath.Dir(old)))
	w.awaitOnly(inst.ID, "a", croft.StateRunning, disk)
	w.awaitVolumeOnly(v, "a", content)
}

// dies is a store whose process dies before it writes the orders of a move.
type dies struct{ hosts.Instances }

func (dies) Carry(context.Context, croft.Instance, croft.Order, croft.Order) (croft.Instance, error) {
	return croft.Instance{}, errDead
}

func (dies) Fence(context.Context, croft.Instance) (croft.Instance, error) {
	return croft.Instance{}, errDead
}

// reads is a store with another reader just before the orders of a move are written.
type reads struct {
	hosts.Instances
	read func()
}

func (r reads) Carry(ctx context.Context, inst croft.Instance, leaving, arriving croft.Order) (croft.Instance, error) {
	r.read()
	return r.Instances.Carry(ctx, inst, leaving, arriving)
}
