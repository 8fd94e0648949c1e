package ipam

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"croft"
	"croft/internal/filelock"
)

// ErrLocked means that another process held the lock on net/ for longer than lockPatience.
var ErrLocked = errors.New("another process changes addresses here, and does not end")

// lockPatience is how long a change waits for the changes of other processes.
const lockPatience = 5 * time.Minute

// Change reads the directory, runs a function that records changes, and writes them. It holds the lock on net/, so no
// other process makes changes meanwhile. ErrLocked: the wait for the lock took too long. Conflict: a checkout replaced
// net/ meanwhile, and nothing was changed.
func (d *Dir) Change(ctx context.Context, change func(n *Net) error) error {
	lock, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	n, err := d.Read()
	if err != nil {
		return err
	}
	if err := change(n); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return n.todo.write(func() error {
		if !d.isNet(lock) {
			return croft.Errorf(croft.Conflict, "change addresses: %s was replaced meanwhile, as a checkout does: try again",
				path.Join(d.root.Name(), "net"))
		}
		return nil
	})
}

// lock locks net/ until the returned file is closed. The lock is on the directory itself, so that version control sees
// no lock file. A checkout may replace the directory while a process waits for the lock. A lock on the old directory
// does not exclude processes that open the new one. So lock checks that the locked directory still is net/, and tries
// again if not.
func (d *Dir) lock(ctx context.Context) (*os.File, error) {
	for began := time.Now(); ; {
		if err := d.makeDir("net"); err != nil {
			return nil, err
		}
		dir, err := d.root.Open("net")
		if notThere(err) {
			continue // a checkout removed it again
		} else if err != nil {
			return nil, fmt.Errorf("lock net: %w", err)
		}
		err = filelock.Take(dir)
		if err == nil && d.isNet(dir) {
			return dir, nil
		}
		_ = dir.Close() // nothing was written through it
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && !errors.Is(err, filelock.ErrTaken):
			return nil, fmt.Errorf("lock net: %w", err)
		case time.Since(began) > lockPatience:
			return nil, croft.Errorf(croft.Unavailable, "lock %s: %w", path.Join(d.root.Name(), "net"), ErrLocked)
		}
	}
}

// isNet reports whether an open directory is still the one named net.
func (d *Dir) isNet(dir *os.File) bool {
	have, err := dir.Stat()
	now, nowErr := d.root.Stat("net")
	return err == nil && nowErr == nil && os.SameFile(have, now)
}
