package compute_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/internal/testing/patient"
)

func TestTheDiskOfAnEarlierInstanceWithTheSameUUIDIsNotUsed(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.mounts()
	c.start()
	inst := croft.Instance{ID: croft.NewInstanceID(), Project: "berta", Name: "web", Storage: c.storage(),
		Spec: croft.Spec{Image: "http://images/web", Resources: croft.Resources{croft.VCPU: 1, croft.MemoryMB: 256,
			croft.DiskGB: 1}}}
	dir := filepath.Join(c.mounted, "instances", string(inst.ID))
	left := filepath.Join(dir, "disk.qcow2")
	c.check(os.Mkdir(dir, 0o711))
	c.check(os.WriteFile(left, []byte("of another project"), 0o600))

	inst = c.requestInstance(inst)
	if seen := c.await(inst, croft.StateFailed); !strings.Contains(seen.Error, "earlier instance with this UUID") {
		t.Errorf("it failed with %q", seen.Error)
	}
	if text, err := os.ReadFile(left); err != nil || string(text) != "of another project" || len(c.guests()) > 0 {
		t.Errorf("the disk has %q, %v; guests: %v", text, err, c.guests())
	}

	c.check(os.RemoveAll(dir))
	inst = c.reorder(inst, croft.WantRunning)
	c.await(inst, croft.StateRunning)
	inst = c.again(inst, func(o *croft.Order) { o.Rebuilt = o.Generation })
	c.await(inst, croft.StateRunning)
}

// The directory has the identity of another cloud, so the agent does not know the ID of its storage, as before it has
// examined the directory.
func TestADiskOfTheHostIsNotLookedForOnAStorageThatIsNotExamined(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.mounts()
	c.check(os.WriteFile(filepath.Join(c.mounted, "croft-storage.json"), fmt.Appendf(nil,
		`{"id":%q,"name":"nfs1","partition":%q}`, croft.NewHostID(), croft.NewHostID()), 0o600))
	c.start()
	inst := c.requestInstance(croft.Instance{ID: croft.NewInstanceID(), Project: "berta", Name: "web",
		Spec: croft.Spec{Image: "http://images/web", Resources: croft.Resources{croft.VCPU: 1, croft.MemoryMB: 256,
			croft.DiskGB: 1}}})
	c.await(inst, croft.StateRunning)
	if _, err := os.Stat(filepath.Join(c.mounted, "instances")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the storage has instances: %v", err)
	}
}

// An access that the server carries out late leaves such a lock, as does an agent that is killed.
func TestALockWithoutADiskIsRemovedOnceItsInstanceHasNoOrder(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.mounts()
	c.sweep = time.Millisecond
	c.start()
	c.storage()
	id := croft.NewInstanceID()
	lock := filepath.Join(c.mounted, "locks", string(id)+".1")
	c.check(os.WriteFile(lock, fmt.Appendf(nil, `{"host":%q}`, c.host.ID), 0o600))
	patient.Until(t, "the lock is removed", func() bool {
		_, err := os.Stat(lock)
		return errors.Is(err, fs.ErrNotExist)
	})
}
