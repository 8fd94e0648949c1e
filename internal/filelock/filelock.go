// Package filelock locks files for as long as the locking process keeps them open. A killed process may have had a
// child between fork and exec, which keeps the file open for some more milliseconds. So taking a lock waits briefly
// before it reports that another process has the lock.
package filelock

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// ErrTaken reports that another process holds the lock.
var ErrTaken = errors.New("another process has the lock")

// How long Take waits, and how often it tries.
const (
	patience = 3 * time.Second
	pause    = 5 * time.Millisecond
)

// Take locks a file until it is closed. ErrTaken: another process holds the lock.
func Take(file *os.File) error { return TakeWithin(file, patience) }

// TakeWithin is like Take, for locks whose holders take turns: it waits up to d.
func TakeWithin(file *os.File, d time.Duration) error {
	for deadline := time.Now().Add(d); ; time.Sleep(pause) {
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

// Held reports whether a process has the lock of the file now. A process that takes the lock at the same moment waits
// for this check.
func Held(file *os.File) bool {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
	}
	return errors.Is(err, syscall.EWOULDBLOCK)
}
