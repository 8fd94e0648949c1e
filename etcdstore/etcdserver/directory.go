package etcdserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"croft"
)

// checkDir returns an error if the embedded etcd may not use a directory, which need not exist yet: it is a file, this
// user may not write to it, or it contains files of other programs. It changes nothing. Invalid; Unavailable: its file
// system is read-only.
func checkDir(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return unusable(dir, "it is a link to a directory that does not exist")
	case err == nil && !info.IsDir():
		return unusable(dir, "it is a file")
	}
	if err := checkAccess(dir); err != nil {
		return err
	}
	if err := checkKinds(dir); err != nil {
		return err
	}
	if IsMember(dir) {
		return nil
	}
	return checkForeign(dir)
}

// unusable returns the error for a directory that the embedded etcd leaves alone.
func unusable(dir, why string) error {
	return croft.Errorf(croft.Invalid, "use %s as the directory of the embedded etcd: %s; move it away, or give another "+
		"state directory with --state-dir", dir, why)
}

// checkAccess returns an error if this user may not read and write a directory and the files of etcd in it. Invalid;
// Unavailable: the file system is read-only.
func checkAccess(dir string) error {
	check := func(path string, entry fs.DirEntry, err error) error {
		mode := uint32(unix.R_OK | unix.W_OK)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			mode |= unix.X_OK
		case !entry.Type().IsRegular():
			return nil
		}
		if err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS); err != nil {
			return &fs.PathError{Op: "write to", Path: path, Err: err}
		}
		return nil
	}
	info, err := os.Stat(dir)
	if err == nil {
		err = check(dir, fs.FileInfoToDirEntry(info), nil)
	}
	if err == nil {
		err = filepath.WalkDir(filepath.Join(dir, "member"), check)
	}
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return croft.Errorf(croft.Invalid, "use the files of the embedded etcd: %w; give everything below %s to the user "+
			"of croft up (chown -R, chmod -R u+rwX), or start croft up as the user who has it", err, dir)
	case errors.Is(err, unix.EROFS):
		return croft.Errorf(croft.Unavailable, "use the files of the embedded etcd: %w; look in the kernel's log why, and "+
			"mount it writable, or give another state directory with --state-dir", err)
	}
	return damaged(dir, err.Error())
}

// checkKinds returns an error if there is a file where there should be one of etcd's directories, or the reverse.
func checkKinds(dir string) error {
	for path, isDir := range map[string]bool{"member": true, "member/wal": true, "member/snap": true,
		"member/snap/db": false} {
		info, err := os.Stat(filepath.Join(dir, path))
		switch {
		case err != nil: // it does not exist, or its parent is not a directory
		case isDir && !info.IsDir():
			return unusable(dir, path+" in it is a file, and no directory of etcd's")
		case !isDir && !info.Mode().IsRegular():
			return unusable(dir, path+" in it is no file of etcd's")
		}
	}
	return nil
}

// layout lists patterns of the files that etcd and croft write in a directory and its subdirectories. Names that start
// with a dot are temporary files, or belong to the file system.
var layout = map[string][]string{
	"":            {".*", "lost+found", "member", "ballast", "client.sock", "peer.sock"},
	"member":      {".*", "snap", "wal", "wal.*"},
	"member/snap": {".*", "db", "db.tmp*", "tmp*", "*.snap", "*.snap.db", "*.broken"},
	"member/wal":  {".*", "*.wal", "*.tmp", "*.broken"},
}

// checkForeign returns an error if a directory that no etcd has used yet contains files of other programs.
func checkForeign(dir string) error {
	for _, sub := range []string{"", "member", "member/snap", "member/wal"} {
		all, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read the directory of the embedded etcd: %w", err)
		}
		for _, entry := range all {
			if !isLaidOut(sub, entry.Name()) {
				return unusable(dir, filepath.Join(sub, entry.Name())+" in it is of another program")
			}
		}
	}
	return nil
}

func isLaidOut(sub, name string) bool {
	for _, pattern := range layout[sub] {
		if is, _ := filepath.Match(pattern, name); is {
			return true
		}
	}
	return false
}

// checkOwner returns an error if the server that wrote the files was not started by croft, which gives each server the
// UUID of its host as its name. own is the name of the present server.
func checkOwner(dir, own string, log *logged, db *contents) error {
	if db == nil {
		return nil
	}
	name := db.names[log.member]
	if name == "" || name == own || name == nameless || uuid.Validate(name) == nil {
		return nil
	}
	return unusable(dir, fmt.Sprintf("an etcd that croft did not start has its data there, under the name %.80q",
		strings.ToValidUTF8(name, "")))
}
