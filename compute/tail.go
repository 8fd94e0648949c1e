package compute

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// tail copies a file to w and, with follow, what is appended later, across rotations, until ctx ends or the
// file's directory is removed.
func tail(ctx context.Context, path string, w io.Writer, follow bool) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the console log: %w", err)
	}
	defer func() { _ = f.Close() }() // f is replaced on rotation
	if !follow {
		_, err := io.Copy(w, f)
		return err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the console log: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	dir := filepath.Dir(path)
	// Watch the directory for writes, and its parent for the directory's removal.
	if err := errors.Join(watcher.Add(dir), watcher.Add(filepath.Dir(dir))); err != nil {
		return fmt.Errorf("watch the console log: %w", err)
	}
	for {
		if _, err := io.Copy(w, f); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			return fmt.Errorf("watch the console log: %w", err)
		case event := <-watcher.Events:
			if event.Name == dir && event.Has(fsnotify.Remove) {
				return nil
			}
		}
		if f, err = reopened(f, path, w); err != nil {
			return err
		}
	}
}

// reopened returns the file that path names now: f, or after a rotation the new file, once the rest of f is
// copied.
func reopened(f *os.File, path string, w io.Writer) (*os.File, error) {
	now, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return f, nil // between two names, or its directory is being removed
	}
	if err != nil {
		return f, err
	}
	was, err := f.Stat()
	if err != nil || os.SameFile(was, now) {
		return f, err
	}
	if _, err := io.Copy(w, f); err != nil {
		return f, err
	}
	next, err := os.Open(path)
	if err != nil {
		return f, err
	}
	return next, f.Close()
}
