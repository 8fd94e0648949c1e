package compute

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"croft"
)

// reserveUnclaimed keeps the space of disks on this host for which nothing is claimed: what lost instances left here,
// and files without a record. No guest writes to them, so they need only the space that they use now.
func (a *Agent) reserveUnclaimed(claims map[croft.InstanceID]croft.Resources) error {
	gb, err := a.unclaimedGB(claims)
	if err != nil {
		return err
	}
	a.introducing.Lock()
	defer a.introducing.Unlock()
	if a.unclaimed != gb {
		a.unclaimed, a.offerChanged = gb, true
		a.Log.Info("space is reserved for disks that nothing claims", "host", a.Host.ID, "disk_gb", gb)
	}
	return nil
}

// offerChanges writes the inventories if they changed since they were last written. A failure is repaired by the next
// call.
func (a *Agent) offerChanges(ctx context.Context) error {
	a.offering.Lock()
	defer a.offering.Unlock()
	a.introducing.Lock()
	changed := a.offerChanged
	a.offerChanged = false
	a.introducing.Unlock()
	if !changed {
		return nil
	}
	err := a.Inventory.EnsureProvider(ctx, a.offered())
	if err != nil {
		a.introducing.Lock()
		defer a.introducing.Unlock()
		a.offerChanged = true
	}
	return err
}

// unclaimedGB returns the space that disks without a claim use on this host, in GiB, rounded: the host does not offer
// the last, incomplete GiB of its file system anyway.
func (a *Agent) unclaimedGB(claims map[croft.InstanceID]croft.Resources) (int64, error) {
	entries, err := os.ReadDir(a.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	var bytes int64
	for _, e := range entries {
		id, err := croft.ParseInstanceID(e.Name())
		if _, claimed := claims[id]; err == nil && !claimed {
			bytes += UsedBytes(a.dir(id))
		}
	}
	volumes, err := a.ownVolumes()
	for _, id := range volumes {
		if _, claimed := claims[id.Consumer()]; !claimed {
			bytes += UsedBytes(a.volumeDir(id))
		}
	}
	return (bytes + 1<<29) >> 30, err
}

// recallUnclaimed finds the disks for which nothing is claimed, and the PCI devices, before the host is offered for the
// first time.
func (a *Agent) recallUnclaimed(ctx context.Context) error {
	claims, err := a.Inventory.Claims(ctx, a.Host.ID)
	if err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	gb, err := a.unclaimedGB(claims)
	a.introducing.Lock()
	a.unclaimed = gb
	a.introducing.Unlock()
	if err != nil {
		return err
	}
	return a.countPCI(ctx, claims)
}

// UsedBytes sums the bytes that the files below dir take on disk.
func UsedBytes(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		if err != nil {
			return nil // unreadable files are treated as not ours
		}
		sum += onDisk(entry)
		return nil
	})
	return sum
}

// onDisk returns the number of bytes that a file takes on disk, divided by its number of hard links.
func onDisk(entry os.DirEntry) int64 {
	info, err := entry.Info()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Size()
	}
	return st.Blocks * 512 / int64(max(st.Nlink, 1))
}
