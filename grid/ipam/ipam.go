// Package ipam manages addresses as files of a directory that is kept under version control.
//
//	net/pools/NAME.yaml          where addresses are taken from
//	net/lease/v4/10.0.0.5        a link to ../../../alloc/JOB/SLOT, which has the address; a file where it was freed
//	net/lease/v6/2001-db8--5     IPv6 has - for :
//	net/meta/v4/10.0.0.0_8.yaml  tags and other facts about a prefix, or an address: 10.0.0.5.yaml
//	net/sets/NAME                an expression (package setexpr)
//	net/access/NAME.yaml         who may reach whom
//
// The path is the address: two branches that give one address to two owners conflict when they are merged. Every change
// of a lease is one rename or one new link, so a crash leaves the tree as before or after it, and whoever changes
// something has a lock on net/, so processes at once lose nothing and give nothing twice. Readers take no lock.
package ipam

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

	"croft"
)

// Dir is a cluster's directory. It may be empty. One goroutine uses it at a time.
type Dir struct {
	root *os.Root

	mu   sync.Mutex // reading facts has several goroutines
	near map[string]*os.Root
}

// Open opens a directory. NotFound.
func Open(name string) (*Dir, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, croft.Errorf(croft.NotFound, "open the cluster's directory: %w", err)
	}
	return &Dir{root: root, near: map[string]*os.Root{}}, nil
}

func (d *Dir) Close() error {
	d.forget()
	return d.root.Close()
}

// in calls a function with the directory of a file, which may be kept open, and the file's name in it. Where the file
// is not there because a checkout replaced the directory, it calls the function again with the new one.
func (d *Dir) in(name string, look func(dir *os.Root, base string) error) error {
	dir, base, err := d.beside(name)
	if err != nil {
		return err
	}
	if err := look(dir, base); !notThere(err) || dir == d.root || !d.replaced(path.Dir(name), dir) {
		return err
	}
	if dir, base, err = d.beside(name); err != nil {
		return err
	}
	return look(dir, base)
}

// replaced reports whether a directory that is kept open has its name no more, and keeps it open no longer. It is not
// closed, since others may be reading there.
func (d *Dir) replaced(name string, dir *os.Root) bool {
	have, err := dir.Stat(".")
	now, nowErr := d.root.Stat(name)
	if err == nil && nowErr == nil && os.SameFile(have, now) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.near[name] == dir {
		delete(d.near, name)
	}
	return true
}

// forget closes the directories that are kept open. They are directories, not names: after a checkout they may be
// others than those that have the names.
func (d *Dir) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, dir := range d.near {
		_ = dir.Close() // nothing was written through it
		delete(d.near, name)
	}
}

// maxNear is how many directories are kept open.
const maxNear = 64

// beside opens the directory of a file and returns it with the file's name in it. Directories stay open for a while, so
// that reading thousands of files does not look up each of their paths from the top.
func (d *Dir) beside(name string) (*os.Root, string, error) {
	dir, file := path.Split(name)
	dir = path.Clean(dir)
	if dir == "." {
		return d.root, file, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := d.near[dir]; at != nil {
		return at, file, nil
	}
	at, err := d.root.OpenRoot(dir)
	if err != nil {
		return nil, file, err
	}
	if len(d.near) < maxNear { // the directories of leases and facts are read first
		d.near[dir] = at
		return at, file, nil
	}
	for old, was := range d.near {
		if strings.HasPrefix(old, "net/") {
			continue // others may be reading there
		}
		_ = was.Close()
		delete(d.near, old)
		d.near[dir] = at
		break
	}
	return at, file, nil
}

// notThere reports whether an error says that there is no such file.
func notThere(err error) bool { return errors.Is(err, fs.ErrNotExist) }
