package compute

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"croft"
	"croft/internal/durable"
	"croft/internal/filelock"
)

// StateDir is a host's state directory, locked by one process.
type StateDir struct {
	Path string
	lock *os.File
}

// OpenStateDir creates the directory if it is missing and locks it. Conflict: another process holds the lock; the
// message names the process.
func OpenStateDir(path string) (*StateDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "state directory %s: %w", path, err)
	}
	if err := os.MkdirAll(path, dirMode); err != nil {
		return nil, croft.Errorf(croft.Invalid, "make the state directory: %w; give another with --state-dir", err)
	}
	f, err := os.OpenFile(filepath.Join(path, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "lock the state directory: %w; give another with --state-dir", err)
	}
	if err := filelock.Take(f); err != nil {
		holder, _ := os.ReadFile(f.Name())
		return nil, errors.Join(
			croft.Errorf(croft.Conflict,
				"the state directory %s is in use by croft with process id %s; stop that one or give another with --state-dir", path, strings.TrimSpace(string(holder))),
			f.Close())
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, fmt.Sprintln(os.Getpid()))); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the state directory %s: %w", path, err), f.Close())
	}
	return &StateDir{Path: path, lock: f}, nil
}

// lockFile, in the state directory, is locked by the process that uses it and has its process ID.
const lockFile = "croft.pid"

// hypervisorFile, in the state directory, has the setting hypervisor of the process that uses the directory.
const hypervisorFile = "hypervisor"

// NoteHypervisor records the setting hypervisor of this process for Running.
func (d *StateDir) NoteHypervisor(setting string) error {
	if err := os.WriteFile(filepath.Join(d.Path, hypervisorFile), []byte(setting+"\n"), 0o644); err != nil {
		return fmt.Errorf("record which hypervisor runs: %w", err)
	}
	return nil
}

// Holder is the process that uses a state directory.
type Holder struct {
	PID        int
	Hypervisor string // its setting; empty: unknown
}

// Running returns the process that has locked the state directory now; false: none has, or the directory is unreadable.
func Running(stateDir string) (Holder, bool) {
	f, err := os.Open(filepath.Join(stateDir, lockFile))
	if err != nil {
		return Holder{}, false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil || !filelock.Held(f) {
		return Holder{}, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return Holder{}, false
	}
	hypervisor, _ := os.ReadFile(filepath.Join(stateDir, hypervisorFile))
	return Holder{pid, strings.TrimSpace(string(hypervisor))}, true
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// Close unlocks the directory.
func (d *StateDir) Close() error { return d.lock.Close() }

// HostID returns the host's UUID, created at the first call and permanent.
func (d *StateDir) HostID() (croft.HostID, error) { return ReadHostID(d.Path, true) }

// KeepHostID stores a UUID that was chosen elsewhere. Conflict: the host has another one.
func (d *StateDir) KeepHostID(id croft.HostID) error {
	have, err := ReadHostID(d.Path, false)
	switch {
	case errors.Is(err, croft.NotFound):
		return durable.Write(filepath.Join(d.Path, "host-id"), []byte(string(id)+"\n"), 0o644)
	case err == nil && have != id:
		return croft.Errorf(croft.Conflict, "%s belongs to host %s and cannot be used for host %s", d.Path, have, id)
	}
	return err
}

// Secret returns the secret with this name. The first call creates it with mint; later calls return the same secret.
// Only the directory's owner can read it.
func (d *StateDir) Secret(name string, mint func() string) (string, error) {
	path := filepath.Join(d.Path, name)
	text, err := os.ReadFile(path)
	switch secret := strings.TrimSpace(string(text)); {
	case err == nil && secret != "":
		return secret, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	secret := mint()
	return secret, durable.Write(path, []byte(secret+"\n"), 0o600)
}

// ReadHostID returns the UUID stored in a state directory. NotFound: it has no UUID, and mint is false.
func ReadHostID(dir string, mint bool) (croft.HostID, error) {
	path := filepath.Join(dir, "host-id")
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		id, err := croft.ParseHostID(strings.TrimSpace(string(b)))
		if err != nil {
			return "",
				croft.Errorf(croft.Invalid,
					"the host's UUID in %s is damaged: %w; restore the file, or remove it to begin as a new host", path,
					err)
		}
		return id, nil
	case !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("read the host's UUID: %w", err)
	case !mint:
		return "",
			croft.Errorf(croft.NotFound,
				"%s holds no host's UUID; start `croft up` or `croft serve compute` with this --state-dir first", dir)
	}
	id := croft.NewHostID()
	return id, durable.Write(path, []byte(string(id)+"\n"), 0o644)
}

// Modes of the agent's files. QEMU's user must be able to pass through the directories; no other user needs to list
// them. Their files belong to root, or to QEMU's user while the guest runs (libvirt's dynamic_ownership).
const (
	dirMode  fs.FileMode = 0o711
	seedMode fs.FileMode = 0o600
)

// seedFile names the metadata disk in an instance's directory. It holds the user-data and the guest's private host key.
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
