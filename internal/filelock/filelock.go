// Package filelock takes locks of files, which are gone with whoever has them open. A
// process that is killed may have had a child on the way to another program; until it
// gets there, within milliseconds, that has the file open too. So a lock that is taken
// is waited for a moment before it counts as somebody else's.
package filelock

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// ErrTaken says that another process has the lock.
var ErrTaken = errors.New("another process has the lock")

// How long is waited, and how often looked.
const (
	patience = 3 * time.Second
	pause    = 5 * time.Millisecond
)

// Take locks a file until that is closed. ErrTaken.
func Take(file *os.File) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return err
		case !time.Now().Before(deadline):
			return ErrTaken
		}
	}
}
