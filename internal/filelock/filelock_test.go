package filelock_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"croft/internal/filelock"
)

// opened opens a file again, like another holder of locks.
func opened(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // some are already closed
	return file
}

func TestALockIsWaitedForAMoment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, second := opened(t, path), opened(t, path)
	synctest.Test(t, func(t *testing.T) {
		if err := filelock.Take(first); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := filelock.Take(second); !errors.Is(err, filelock.ErrTaken) || time.Since(begun) != 3*time.Second {
			t.Errorf("got %v after %s", err, time.Since(begun))
		}
		time.AfterFunc(time.Second, func() { _ = first.Close() })
		begun = time.Now()
		if err := filelock.Take(second); err != nil || time.Since(begun) > 1100*time.Millisecond {
			t.Errorf("it was given back: got %v after %s", err, time.Since(begun))
		}
	})
}

func TestWhatIsClosedCannotBeLocked(t *testing.T) {
	file := opened(t, filepath.Join(t.TempDir(), "lock"))
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := filelock.Take(file); err == nil || errors.Is(err, filelock.ErrTaken) {
		t.Errorf("got %v", err)
	}
}
