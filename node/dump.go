package node

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// keepMemory disables core dumps of this process, and lets only root read its memory, because it contains keys and,
// briefly, the secrets that they seal.
func keepMemory() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep the keys of clusters out of core dumps: %w", err)
	}
	return nil
}
