package node

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// keepMemory has the kernel write no core of this process, and let nobody but root read its memory: it holds keys, and
// for moments what they seal.
func keepMemory() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep the keys of clusters out of core dumps: %w", err)
	}
	return nil
}
