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

// ErrLocked means that another process was changing addresses all the time.
var ErrLocked = errors.New("another process changes addresses here, and does not end")

// lockPatience is how long a change waits for those of other processes.
const lockPatience = 5 * time.Minute

// Change runs a function that reads and then changes files while no other process does. ErrLocked. Conflict: a checkout
// replaced net/ meanwhile; nothing was changed.
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

// lock locks net/, until the file that it returns is closed. The lock is on the directory, so that version control sees
// no file for it. A checkout may replace the directory while a process waits for the lock of the old one, which then
// excludes no process that came later: so the lock counts only where its directory still has the name.
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

// isNet reports whether a directory that was opened is the one that is called net now.
func (d *Dir) isNet(dir *os.File) bool {
	have, err := dir.Stat()
	now, nowErr := d.root.Stat("net")
	return err == nil && nowErr == nil && os.SameFile(have, now)
}
