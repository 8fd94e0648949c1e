package checkup

import (
	"context"
	"errors"
	"fmt"

	"croft"
	"croft/compute/storage"
	"croft/internal/checks"
)

// lookStorage checks that a shared storage is mounted and responds. Whether all hosts have the same one is for their
// agents to compare, which `croft host list` shows; the ID is printed for people.
func lookStorage(dir *storage.Dir) func(context.Context) checks.Result {
	return func(ctx context.Context) checks.Result {
		identity, err := dir.Identity(ctx)
		switch {
		case err == nil:
			return checks.Good(fmt.Sprintf("%s at %s responds", identity.ID, dir.Path))
		case errors.Is(err, croft.NotFound) && dir.IsMountPoint():
			return checks.Warning(dir.Path+" is mounted and has no file croft-storage.json",
				"if other hosts use the storage already, mount the same export here; otherwise the first agent makes "+
					"the file")
		case errors.Is(err, croft.Unavailable):
			return checks.Failure(err.Error(), "check the file server and the network, and that root may read the "+
				"directory")
		case errors.Is(err, croft.NotFound):
			return checks.Failure("nothing is mounted at "+dir.Path, "mount the storage there")
		}
		return checks.Failure(err.Error(), "mount the right storage, or correct storage.shared in the settings")
	}
}
