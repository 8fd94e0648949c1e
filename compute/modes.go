package compute

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"croft"
)

// Modes of the agent's files. QEMU's user must be able to pass through the directories; nobody else needs to
// list them. Their files belong to root, or to QEMU's user while the guest runs (libvirt's
// dynamic_ownership).
const (
	dirMode  fs.FileMode = 0o711
	seedMode fs.FileMode = 0o600
)

// seedFile names the metadata disk in an instance's directory. It holds the user-data and the guest's private
// host key.
const seedFile = "seed.iso"

// tighten removes permissions that an earlier version granted to all users of the host.
func (a *Agent) tighten() error {
	entries, err := os.ReadDir(a.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	errs := []error{limitMode(a.Dir, dirMode)}
	for _, e := range entries {
		if _, err := croft.ParseInstanceID(e.Name()); err == nil && e.IsDir() {
			dir := filepath.Join(a.Dir, e.Name())
			errs = append(errs, limitMode(dir, dirMode), limitMode(filepath.Join(dir, seedFile), seedMode))
		}
	}
	return errors.Join(errs...)
}

// limitMode clears the mode bits of a file that are not in most. A missing file is not an error.
func limitMode(path string, most fs.FileMode) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Mode().Perm()&^most == 0 || info.Mode()&fs.ModeSymlink != 0 {
		return err
	}
	return os.Chmod(path, info.Mode().Perm()&most)
}
