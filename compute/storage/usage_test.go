package storage

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestBlocksThatOnlyRootMayUseAreNotOffered(t *testing.T) {
	// 252 GiB, of which disks have 20 and other files 46; users may write 25 of the 186 that are free
	of := unix.Statfs_t{Bsize: 1 << 20, Blocks: 252 << 10, Bfree: 186 << 10, Bavail: 25 << 10}
	u := usageOf(of, 20<<30)
	if want := (Usage{TotalGB: 252, ForeignGB: 252 - 25 - 20, Free: 25 << 30}); u != want {
		t.Errorf("got %+v, want %+v", u, want)
	}
}
