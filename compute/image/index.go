package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"croft"
)

// index records the image that each reference resolved to. It is an optimization: without it the files stay valid, and
// unpinned images are fetched again.
type index struct {
	References map[string]entry `json:"references"`
}

// entry records the image of a reference.
type entry struct {
	SHA256  string    `json:"sha256"`           // of the file in the cache
	Packed  string    `json:"packed,omitempty"` // SHA-256 of the published file, if it differs
	SHA512  string    `json:"sha512,omitempty"` // of the published file, if requested
	Format  string    `json:"format"`
	Size    int64     `json:"size"`
	Checked time.Time `json:"checked"` // when the server last confirmed that it is the newest
	validator
	Stamp *stamp `json:"stamp,omitempty"` // of a local file
}

// publish records a checksum of the published file.
func (e *entry) publish(d digest) {
	switch {
	case d.algo == "sha512":
		e.SHA512 = d.hex
	case d.algo == "sha256" && d.hex != e.SHA256:
		e.Packed = d.hex
	}
}

// published reports whether the published file has the checksum.
func (e entry) published(d digest) bool {
	return d.algo == "sha512" && e.SHA512 == d.hex || d.algo == "sha256" && e.Packed == d.hex
}

// validator is a server's identification of one version of a file.
type validator struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
}

// guests is where make guest puts its output.
const guests = "/var/lib/croft/guests"

// stamp identifies the version of a local file that was copied.
type stamp struct {
	Device   uint64 `json:"device"`
	Inode    uint64 `json:"inode"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // nanoseconds
}

// openIn opens a regular file in one of the directories that no link leads out of. Other files might block,
// be endless, or be confidential. For files elsewhere it does not even reveal whether they exist.
func openIn(dirs []string, name string) (*os.File, os.FileInfo, error) {
	for _, dir := range dirs {
		if rel, err := filepath.Rel(dir, name); err == nil && filepath.IsLocal(rel) {
			return openLocal(dir, rel)
		}
	}
	return nil, nil,
		croft.Errorf(croft.Invalid,
			"only files in the directories of the host's setting images.allow_files are used: put it there, or give a URL")
}

func openLocal(dir, rel string) (*os.File, os.FileInfo, error) {
	name := filepath.Join(dir, rel)
	place, err := findBelow(dir, rel)
	switch {
	case errors.Is(err, fs.ErrNotExist) && filepath.Dir(name) == guests:
		return nil, nil,
			croft.Errorf(croft.NotFound,
				"it is not built on this host yet: run make guest in croft's sources there, or take an image that is fetched, such as cirros")
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil,
			croft.Errorf(croft.NotFound, "there is no such file on this host: check the path, or put the image there")
	case err != nil:
		return nil, nil, croft.Errorf(croft.Invalid, "it cannot be opened on this host: %w", err)
	}
	defer place.Close()
	fi, err := place.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, croft.Errorf(croft.Invalid, "it is not a regular file: give the path of an image")
	}
	// Reopen the very file that was checked, whatever its name refers to now.
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", place.Fd()), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, croft.Errorf(croft.Invalid, "it cannot be opened on this host: %w", err)
	}
	return os.NewFile(uintptr(fd), name), fi, nil
}

// findBelow follows links as long as they stay below dir. The result is a path-only descriptor: opening a
// device or FIFO for reading may already have an effect.
func findBelow(dir, rel string) (*os.File, error) {
	const flags = unix.O_PATH | unix.O_CLOEXEC
	if dir == "/" { // nothing is outside, and absolute links are common
		return os.OpenFile(filepath.Join(dir, rel), flags, 0)
	}
	root, err := os.OpenFile(dir, flags|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), rel, &unix.OpenHow{Flags: flags,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(dir, rel), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir, rel)), nil
}

func stampOf(fi os.FileInfo) stamp {
	s := stamp{Size: fi.Size(), Modified: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.Device, s.Inode = st.Dev, st.Ino
	}
	return s
}
