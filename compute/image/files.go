package image

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"croft"
)

// noSpace gives an out-of-space error its kind and message.
func noSpace(err error, dir string) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return croft.Errorf(croft.Unavailable, "the file system of %s is full: free some space there", dir)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// replaceFile writes a file atomically and durably with the content from fill: after a crash there is the old
// file or the complete new one.
func replaceFile(name string, mode os.FileMode, fill func(*os.File) error) (err error) {
	temp := name + tempSuffix
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(temp)
		}
	}()
	if err := f.Chmod(mode); err != nil { // regardless of the umask
		return err
	}
	if err := fill(f); err != nil {
		return noSpace(err, filepath.Dir(name))
	}
	if err := f.Sync(); err != nil {
		return noSpace(err, filepath.Dir(name))
	}
	if err := os.Rename(temp, name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// tempSuffix marks temporary files, which are useless after a crash.
const tempSuffix = ".tmp"

func replaceJSON(name string, v any) error {
	return replaceFile(name, 0o600, func(f *os.File) error { // URLs may contain passwords
		enc := json.NewEncoder(f)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	})
}

func isRegular(name string) bool {
	fi, err := os.Lstat(name)
	return err == nil && fi.Mode().IsRegular()
}

// allocated returns a file's space on the disk, which is less than its size if it has holes.
func allocated(fi os.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return fi.Size()
}
