package ipam

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"croft"
)

const (
	maxBytes = 1 << 20 // size limit of a file
	maxDepth = 16      // nesting limit of directories and of YAML values
)

// fresh is the prefix of the names of temporary files. A crash may leave such files; the next change removes them.
const fresh = ".new-"

// read returns the content of a text file. NotFound. Invalid: it is not a regular file, is larger than maxBytes, is not
// in UTF-8, or has unresolved conflict markers of version control.
func (d *Dir) read(name string) ([]byte, error) {
	var file *os.File
	err := d.in(name, func(dir *os.Root, base string) (err error) {
		file, err = dir.OpenFile(base, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		return err
	})
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
				return nil, croft.Errorf(croft.Invalid, "%s:%d: a conflict of version control is not resolved here",
					name,
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

// list returns the entries of a directory without hidden files, in directory order, which is not sorted. A missing
// directory counts as empty.
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

// target returns the target of a symlink as a path below the cluster's directory. It resolves the text only, and does
// not follow the link. Invalid: the target is an absolute path or outside of the directory.
func (d *Dir) target(name string) (string, error) {
	var to string
	err := d.in(name, func(dir *os.Root, base string) (err error) {
		to, err = dir.Readlink(base)
		return err
	})
	if err != nil {
		return "", readError(name, err)
	}
	at := path.Join(path.Dir(name), to)
	if path.IsAbs(to) || at == ".." || strings.HasPrefix(at, "../") {
		return "", croft.Errorf(croft.Invalid,
			"%s leads to %q, outside the cluster's directory: make it a relative link inside it", name, to)
	}
	return at, nil
}

// makeDir makes a directory and its parents, and flushes them: they survive a crash after makeDir returns.
func (d *Dir) makeDir(name string) error {
	var fresh []string
	for at := name; at != "."; at = path.Dir(at) {
		if _, err := d.root.Lstat(at); !notThere(err) {
			break
		}
		fresh = append(fresh, at)
	}
	if err := d.root.MkdirAll(name, 0o755); err != nil {
		return writeError("make the directory", name, err)
	}
	for _, made := range slices.Backward(fresh) {
		if err := d.flush(path.Dir(made)); err != nil {
			return writeError("make the directory", made, err)
		}
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

// step is called before each change of a file. Tests replace it to end the process at that point.
var step = func(what, name string) {}

// flush makes written data survive a crash of the machine. It is a variable so that tests can observe the calls.
var flush = (*os.File).Sync

// An edit is one change of a file or link. A batch of edits is first prepared and then done. Preparing may fail, and
// changes nothing that readers see.
type edit struct {
	name      string
	create    func(temporary string) error // writes the new content; nil: the edit removes the file
	temporary string                       // the temporary name of the new content
}

// content returns the edit that creates a file, or replaces the file or link of that name.
func (d *Dir) content(name string, text []byte) *edit {
	return &edit{name: name, create: func(temporary string) error {
		f, err := d.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(text)
		step("flush", temporary)
		return errors.Join(err, flush(f), f.Close())
	}}
}

// link returns the edit that creates a symlink, or replaces the file or link of that name.
func (d *Dir) link(name, to string) *edit {
	return &edit{name: name, create: func(temporary string) error { return d.root.Symlink(to, temporary) }}
}

func (d *Dir) prepare(e *edit) error {
	if e.create == nil {
		return nil
	}
	dir := path.Dir(e.name)
	if err := d.makeDir(dir); err != nil {
		return err
	}
	e.temporary = path.Join(dir, fresh+rand.Text())
	step("create", e.temporary)
	if err := e.create(e.temporary); err != nil {
		return writeError("write", e.name, err)
	}
	return nil
}

// do makes an edit visible to readers. NotFound: the file to remove does not exist.
func (d *Dir) do(e *edit) error {
	if e.create == nil {
		step("remove", e.name)
		err := d.root.Remove(e.name)
		if notThere(err) {
			return croft.Errorf(croft.NotFound, "there is no %s", e.name)
		} else if err != nil {
			return writeError("remove", e.name, err)
		}
		return nil
	}
	step("rename", e.name)
	if err := d.root.Rename(e.temporary, e.name); err != nil {
		return writeError("write", e.name, err)
	}
	e.temporary = ""
	return nil
}

// discard removes the temporary files of edits that were prepared and not done.
func (d *Dir) discard(all []*edit) {
	for _, e := range all {
		if e.temporary != "" {
			_ = d.root.Remove(e.temporary) // the next change tries again
		}
	}
}

// flush makes changes to the names in a directory survive a crash.
func (d *Dir) flush(name string) error {
	dir, err := d.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(flush(dir), dir.Close())
}

// sweep removes the temporary files that a crashed process left in a directory. The caller holds the lock on net/.
func (d *Dir) sweep(name string) {
	dir, err := d.root.Open(name)
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // the code that needs the directory reports that it cannot be read
	for _, n := range names {
		if strings.HasPrefix(n, fresh) {
			_ = d.root.Remove(path.Join(name, n)) // the next change tries again
		}
	}
}
