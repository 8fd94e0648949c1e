package place

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"croft/grid/state"
	"croft/internal/durable"
)

// Write writes a result of Decide to the cluster's directory: first the assigned ids and the roster, then each link, by
// renaming. After an error or a crash, another Decide and Write complete the change.
func (r *Result) Write(dir string) error {
	if r.IDs != nil {
		if err := durable.Write(filepath.Join(dir, state.IDsFile), []byte(r.IDs.Text()), 0o644); err != nil {
			return err
		}
	}
	if r.Roster != "" {
		if err := durable.Write(filepath.Join(dir, state.RosterFile), []byte(r.Roster), 0o644); err != nil {
			return err
		}
	}
	if len(r.Changes) == 0 {
		return nil
	}
	dirs := map[string]bool{} // directories in which names change
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("write links: %w", err)
	}
	defer root.Close()
	// Remove links first: a removed link may be at the path of a new directory.
	for _, c := range r.Changes {
		if c.To != "" {
			continue
		}
		if err := remove(root, c.link); err != nil {
			return fmt.Errorf("remove the link %s: %w", c.link, err)
		}
		dirs[path.Dir(c.link)] = true
	}
	for _, c := range r.Changes {
		if c.To == "" {
			continue
		}
		if err := link(root, c.link, c.target); err != nil {
			return fmt.Errorf("write the link %s: %w", c.link, err)
		}
		dirs[path.Dir(c.link)] = true
	}
	return flush(root, dirs)
}

// syncDir flushes a directory, so that its names survive a crash of the machine. It is a variable so that tests can
// observe it.
var syncDir = (*os.File).Sync

// flush flushes directories whose names changed, and all directories above them, which may be new, so that the changes
// survive a power failure.
func flush(root *os.Root, dirs map[string]bool) error {
	for _, dir := range slices.Collect(maps.Keys(dirs)) {
		for ; dir != "."; dir = path.Dir(dir) {
			dirs[dir] = true
		}
		dirs["."] = true
	}
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(dirs))) {
		d, err := root.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, since it was empty
		} else if err != nil {
			return fmt.Errorf("flush the links in %s: %w", dir, err)
		}
		if err := errors.Join(syncDir(d), d.Close()); err != nil {
			return fmt.Errorf("flush the links in %s: %w", dir, err)
		}
	}
	return nil
}

// link creates or replaces a symbolic link to a file, both below the root.
func link(root *os.Root, name, target string) error {
	dir := path.Dir(name)
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temporary := path.Join(dir, ".new-"+path.Base(name))
	if err := root.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	up := strings.Repeat("../", strings.Count(name, "/"))
	if err := root.Symlink(up+target, temporary); err != nil {
		return err
	}
	if err := root.Rename(temporary, name); err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	return nil
}

// remove removes a link, and the directories that become empty.
func remove(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := path.Dir(name); dir != "alloc" && dir != "."; dir = path.Dir(dir) {
		if root.Remove(dir) != nil {
			break // the directory is not empty
		}
	}
	return nil
}
