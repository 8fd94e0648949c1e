package ipam

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"unicode/utf8"

	"croft"
)

const (
	maxBytes = 1 << 20 // of a file
	maxDepth = 16      // of directories, and of values in each other
)

// fresh begins the names of files that are being written. A crash may leave them; the next change removes them.
const fresh = ".new-"

// read returns a text. NotFound; Invalid: what is there is no file, or no text.
func (d *Dir) read(name string) ([]byte, error) {
	file, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, readError(name, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, readError(name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, croft.Errorf(croft.Invalid, "%s is no file", name)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	switch {
	case err != nil:
		return nil, readError(name, err)
	case len(text) > maxBytes:
		return nil, croft.Errorf(croft.Invalid, "%s has more than %d bytes", name, maxBytes)
	case !utf8.Valid(text):
		return nil, croft.Errorf(croft.Invalid, "%s is not in UTF-8", name)
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		for _, begins := range []string{"<<<<<<< ", ">>>>>>> ", "||||||| "} {
			if bytes.HasPrefix(line, []byte(begins)) {
				return nil, croft.Errorf(croft.Invalid, "%s:%d: a conflict of version control is not resolved here", name,
					i+1)
			}
		}
	}
	return text, nil
}

func readError(name string, err error) error {
	kind := croft.Invalid
	if notThere(err) {
		kind = croft.NotFound
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return croft.Errorf(kind, "read %s: %w", name, err)
}

// list returns what a directory has, in order, without hidden files. No directory is an empty one.
func (d *Dir) list(name string) ([]fs.DirEntry, error) {
	dir, err := d.root.Open(name)
	if notThere(err) {
		return nil, nil
	} else if err != nil {
		return nil, readError(name, err)
	}
	defer dir.Close()
	all, err := dir.ReadDir(-1)
	if err != nil {
		return nil, readError(name, err)
	}
	kept := all[:0]
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), ".") {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// target returns where a link leads below the directory, by its text alone. Invalid: out of it, or to an absolute path.
func (d *Dir) target(name string) (string, error) {
	to, err := d.root.Readlink(name)
	if err != nil {
		return "", readError(name, err)
	}
	at := path.Join(path.Dir(name), to)
	if path.IsAbs(to) || at == ".." || strings.HasPrefix(at, "../") {
		return "", croft.Errorf(croft.Invalid, "%s leads to %q, out of the cluster's directory: make it a relative link "+
			"within it", name, to)
	}
	return at, nil
}

func (d *Dir) makeDir(name string) error {
	if err := d.root.MkdirAll(name, 0o755); err != nil {
		return writeError("make the directory", name, err)
	}
	return nil
}

func writeError(what, name string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	} else if at, ok := errors.AsType[*os.LinkError](err); ok {
		err = at.Err
	}
	return croft.Errorf(croft.Unavailable, "%s %s: %w", what, name, err)
}

// step is called before each change of a file. Tests end the process there.
var step = func(what, name string) {}

// replace makes a file, or replaces what has its name, at once.
func (d *Dir) replace(name string, text []byte) error {
	return d.put(name, func(temporary string) error {
		f, err := d.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(text)
		step("flush", temporary)
		return errors.Join(err, f.Sync(), f.Close())
	})
}

// link makes a link, or replaces what has its name, at once.
func (d *Dir) link(name, to string) error {
	return d.put(name, func(temporary string) error { return d.root.Symlink(to, temporary) })
}

func (d *Dir) put(name string, create func(temporary string) error) error {
	dir := path.Dir(name)
	if err := d.makeDir(dir); err != nil {
		return err
	}
	temporary := path.Join(dir, fresh+rand.Text())
	step("create", temporary)
	err := create(temporary)
	if err == nil {
		step("rename", name)
		err = d.root.Rename(temporary, name)
	}
	if err == nil {
		step("flush", dir)
		err = d.flush(dir)
	}
	if err != nil {
		_ = d.root.Remove(temporary) // gone already if only the directory was not flushed
		return writeError("write", name, err)
	}
	return nil
}

// remove removes a file or link. NotFound.
func (d *Dir) remove(name string) error {
	step("remove", name)
	err := d.root.Remove(name)
	switch {
	case notThere(err):
		return croft.Errorf(croft.NotFound, "there is no %s", name)
	case err == nil:
		err = d.flush(path.Dir(name))
	}
	if err != nil {
		return writeError("remove", name, err)
	}
	return nil
}

// flush makes the names in a directory survive a crash.
func (d *Dir) flush(name string) error {
	dir, err := d.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// sweep removes what a process that crashed was writing in a directory. The caller has the lock.
func (d *Dir) sweep(name string) {
	dir, err := d.root.Open(name)
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what cannot be read is told by who needs it
	for _, n := range names {
		if strings.HasPrefix(n, fresh) {
			_ = d.root.Remove(path.Join(name, n)) // the next change tries again
		}
	}
}
