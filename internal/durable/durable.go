// Package durable replaces files atomically: after a crash a file has either the old or the new content, complete. The
// parent directories must exist.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// flush makes written data survive a crash of the machine. It is a variable, so that tests can replace it.
var flush = (*os.File).Sync

// Write replaces the file at path atomically. The file has the mode from the start.
func Write(path string, text []byte, mode fs.FileMode) error {
	return WriteFrom(path, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// WriteFrom is Write for a text that fill writes. If fill returns an error, the file stays as it was. An error of the
// disk names the file, the reason and what to do.
func WriteFrom(path string, mode fs.FileMode, fill func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // readable only by its owner
	if err != nil {
		return explain(path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // it does not exist any more if only flushing the directory failed
		}
	}()
	if err := fill(f); err != nil {
		if on, is := errors.AsType[*fs.PathError](err); is && on.Path == f.Name() {
			err = explain(path, err)
		}
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Chmod(mode), flush(f), f.Close()); err != nil {
		return explain(path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return explain(path, err)
	}
	if err := FlushDir(filepath.Dir(path)); err != nil {
		return explain(path, err)
	}
	return nil
}

// explain names the file in an error instead of the temporary one, and adds what to do.
func explain(path string, err error) error {
	if on, is := errors.AsType[*fs.PathError](err); is {
		err = on.Err
	} else if on, is := errors.AsType[*os.LinkError](err); is {
		err = on.Err
	}
	remedy := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		remedy = "; free space there, or name a file on another disk"
	case errors.Is(err, syscall.EROFS):
		remedy = "; name a file on a disk that can be written"
	case errors.Is(err, fs.ErrPermission):
		remedy = "; name a file in a directory that you may write to"
	case errors.Is(err, fs.ErrNotExist):
		remedy = "; create the directory " + filepath.Dir(path) + " first"
	}
	return fmt.Errorf("write %s: %w%s", path, err, remedy)
}

// FlushDir makes the names in a directory, for example of a renamed file, survive a crash.
func FlushDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(flush(dir), dir.Close())
}
