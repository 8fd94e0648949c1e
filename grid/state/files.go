package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"croft/internal/lazyregexp"
)

// Limits of files.
const (
	maxFile    = 1 << 20 // bytes of a file of the cluster's directory
	maxContent = 8 << 20 // bytes of a file that a job gives to its units
	maxPath    = 12      // nested directories
)

// File is a text file of the cluster's directory.
type File struct {
	Path string // relative to the cluster's directory
	Text string
}

// files reads the cluster's directory. It follows no link that leads out of it.
type files struct{ root *os.Root }

var validName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// nameHint says which names are valid.
const nameHint = "names have 1 to 63 of a-z 0-9 . _ - and start with a letter or digit"

// entry is a file or a symbolic link.
type entry struct {
	path string // relative to the cluster's directory
	name string // without .yaml
	link bool
	to   string // the target of a link, as written
}

// walk calls each for every directory below top, parents first, with the files and links in it, sorted by name. It
// skips hidden entries.
func (f files) walk(top string, ext string, p *problems, each func(dir string, in []entry)) {
	info, err := f.root.Lstat(top)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		each(top, nil)
	case err != nil:
		p.add(Position{File: top}, "%s", reasonOf(err))
	case !info.IsDir():
		p.add(Position{File: top}, "this is no directory")
	default:
		w := walking{ext, p, each}
		in, err := f.root.OpenRoot(top)
		if err != nil {
			p.add(Position{File: top}, "%s", reasonOf(err))
			return
		}
		defer in.Close()
		w.below(in, top, 0)
	}
}

type walking struct {
	ext  string
	p    *problems
	each func(dir string, in []entry)
}

// below visits one directory, which is opened as in.
func (w walking) below(in *os.Root, dir string, depth int) {
	list, err := fs.ReadDir(in.FS(), ".")
	if err != nil {
		w.p.add(Position{File: dir}, "%s", reasonOf(err))
		return
	}
	if depth > maxPath {
		w.p.add(Position{File: dir}, "more than %d directories below each other", maxPath)
		return
	}
	var found []entry
	var dirs []string
	for _, one := range list {
		name, at := one.Name(), Position{File: path.Join(dir, one.Name())}
		switch {
		case strings.HasPrefix(name, "."):
		case one.IsDir():
			dirs = append(dirs, name)
		case one.Type()&fs.ModeSymlink != 0:
			to, err := in.Readlink(name)
			if err != nil {
				w.p.add(at, "%s", reasonOf(err))
				continue
			}
			found = append(found, entry{at.File, strings.TrimSuffix(name, w.ext), true, to})
		case !one.Type().IsRegular():
			w.p.add(at, "this is neither a file, a directory nor a symbolic link")
		case strings.HasSuffix(name, w.ext):
			found = append(found, entry{path: at.File, name: strings.TrimSuffix(name, w.ext)})
		case strings.HasSuffix(name, ".yml"):
			w.p.add(at, "files of this name are not read: rename it to %s.yaml", strings.TrimSuffix(name, ".yml"))
		}
	}
	w.each(dir, found)
	for _, name := range dirs {
		sub, err := in.OpenRoot(name)
		if err != nil {
			w.p.add(Position{File: path.Join(dir, name)}, "%s", reasonOf(err))
			continue
		}
		w.below(sub, path.Join(dir, name), depth+1)
		_ = sub.Close()
	}
}

// has reports whether a name exists.
func (f files) has(name string) bool {
	_, err := f.root.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// read reads a regular file of at most max bytes.
func (f files) read(name string, max int64) (string, error) {
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", errors.New(reasonOf(err))
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", errors.New(reasonOf(err))
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("this is no file")
	}
	if info.Size() > max {
		return "", fmt.Errorf("the file has %d bytes; at most %d are read", info.Size(), max)
	}
	text := make([]byte, info.Size()+1)
	n, err := io.ReadFull(file, text)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", errors.New(reasonOf(err))
	}
	if int64(n) > info.Size() {
		return "", errors.New("the file grows while it is read")
	}
	return string(text[:n]), nil
}

// target returns the path of a link's target relative to the cluster's directory. It computes it from the text of the
// link only.
func target(link, to string) (string, error) {
	if path.IsAbs(to) {
		return "", fmt.Errorf("the link leads to %s, an absolute path: make it relative", to)
	}
	at := path.Join(path.Dir(link), to)
	if at == ".." || strings.HasPrefix(at, "../") {
		return "", fmt.Errorf("the link leads to %s, outside the cluster's directory", to)
	}
	return at, nil
}

// reasonOf returns the text of a file system error without its path, because the message names the path already.
func reasonOf(err error) string {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err.Error()
	}
	return err.Error()
}
