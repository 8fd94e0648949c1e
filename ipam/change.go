package ipam

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"croft"
	"croft/internal/filelock"
)

// ErrLocked means that another process was changing addresses all the time.
var ErrLocked = errors.New("another process changes addresses here, and does not end")

// lockPatience is how long a change waits for those of other processes.
const lockPatience = 5 * time.Minute

// Change runs a function that reads and then changes files while no other process does. ErrLocked.
func (d *Dir) Change(ctx context.Context, change func(n *Net) error) error {
	if err := d.makeDir("net"); err != nil {
		return err
	}
	dir, err := d.root.Open("net") // the lock is on the directory, so that version control sees no file for it
	if err != nil {
		return fmt.Errorf("lock net: %w", err)
	}
	defer dir.Close()
	for began := time.Now(); ; {
		err := filelock.Take(dir)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, filelock.ErrTaken) {
			return fmt.Errorf("lock net: %w", err)
		}
		if time.Since(began) > lockPatience {
			return croft.Errorf(croft.Unavailable, "lock %s: %w", path.Join(d.root.Name(), "net"), ErrLocked)
		}
	}
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
	return n.todo.write()
}
