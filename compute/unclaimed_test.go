package compute

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"croft"
)

// TestDisksThatNothingClaimsKeepTheirSpace: what a lost instance left, and a volume without a record, are not offered;
// disks with a claim are covered by it.
func TestDisksThatNothingClaimsKeepTheirSpace(t *testing.T) {
	t.Parallel()
	l, a := alone(t)
	a.Provider.Inventories = map[croft.ResourceClass]croft.Inventory{
		croft.VCPU: {Total: 4, AllocationRatio: 1}, croft.DiskGB: {Total: 10, Reserved: 2, AllocationRatio: 1}}
	instance := croft.InstanceID("00000000-0000-4000-8000-000000000001")
	volume := croft.Volume{ID: croft.NewVolumeID()}
	if err := a.makeMark(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
	for dir, mib := range map[string]int64{a.dir(guest): 600, a.dir(instance): 100, a.volumeDir(volume.ID): 1300,
		filepath.Join(a.Dir, "else"): 600} {
		err := os.MkdirAll(dir, 0o700)
		if err == nil {
			err = allocate(filepath.Join(dir, diskFile), mib<<20)
		}
		if err != nil {
			t.Skipf("a file of %d MiB: %v", mib, err)
		}
	}
	for i, c := range []struct {
		claimed  []croft.InstanceID
		reserved int64
		offers   int
	}{
		{[]croft.InstanceID{instance, guest, volume.ID.Consumer()}, 2, 0},
		{[]croft.InstanceID{instance, volume.ID.Consumer()}, 3, 1}, // of the guest
		{[]croft.InstanceID{instance, guest}, 3, 0},                // of the volume
		{nil, 4, 1}, // of all together
		{[]croft.InstanceID{guest, volume.ID.Consumer()}, 2, 1}, // 100 MiB
	} {
		claims := map[croft.InstanceID]croft.Resources{}
		for _, id := range c.claimed {
			claims[id] = croft.Resources{croft.DiskGB: 1}
		}
		l.offered = nil
		if err := errors.Join(a.reserveUnclaimed(claims), a.offerChanges(t.Context())); err != nil {
			t.Fatal(err)
		}
		inventory := a.offered().Inventories
		if got := inventory[croft.DiskGB].Reserved; got != c.reserved || len(l.offered) != c.offers ||
			inventory[croft.VCPU].Reserved != 0 {
			t.Errorf("%d: offers %+v, %d times; want %d reserved, offered %d times", i, inventory, len(l.offered),
				c.reserved, c.offers)
		}
	}
	if a.Provider.Inventories[croft.DiskGB].Reserved != 2 {
		t.Error("the settings of the host have changed")
	}
}

// allocate makes a file that takes so many bytes on disk.
func allocate(path string, bytes int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, bytes), f.Close())
}
