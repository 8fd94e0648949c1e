// Package durable replaces files atomically: after a crash a file has either the old or the new content, complete. The
// parent directories must exist.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// flush makes written data survive a crash of the machine. It is a variable, so that tests can replace it.
var flush = (*os.File).Sync

// Write replaces the file at path atomically. The file has the mode from the start.
func Write(path string, text []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // readable only by its owner
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // it does not exist any more if only flushing the directory failed
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), flush(f), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return FlushDir(filepath.Dir(path))
}

// FlushDir makes the names in a directory, for example of a renamed file, survive a crash.
func FlushDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(flush(dir), dir.Close())
}
