// Package ipam manages addresses as files of a directory that is kept under version control.
//
//	net/pools/NAME.yaml          a pool of addresses to lease
//	net/lease/v4/10.0.0.5        a link to the owner, ../../../alloc/JOB/SLOT; a regular file if the address was freed
//	net/lease/v6/2001-db8--5     IPv6 has - for :
//	net/meta/v4/10.0.0.0_8.yaml  tags and other facts about a prefix; those about an address are in 10.0.0.5.yaml
//	net/sets/NAME                an expression (package setexpr)
//	net/access/NAME.yaml         a firewall rule
//
// The path of a lease is its address, so two branches that lease one address to two owners conflict when they are
// merged. Every change of a lease is one rename or one removal, so a crash leaves the tree as it was before or after
// the change. A process that makes changes holds a lock on net/, so concurrent processes lose no lease and lease no
// address twice. Readers take no lock.
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

	mu   sync.Mutex          // guards near: several goroutines read facts
	near map[string]*os.Root // directories kept open, by name
}

// Open opens a cluster's directory. NotFound.
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

// in calls a function with the directory of a file and the file's base name. The directory may stay open afterwards. If
// the file is missing because a checkout replaced the directory, in calls the function again with the new directory.
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

// replaced reports whether another directory now has the name of a directory that is kept open. If so, it forgets the
// old directory. It does not close it, because other goroutines may be reading there.
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

// forget closes the directories that are kept open. After a checkout, an open directory may no longer be the one that
// has its name.
func (d *Dir) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, dir := range d.near {
		_ = dir.Close() // nothing was written through it
		delete(d.near, name)
	}
}

// maxNear is the maximum number of directories kept open.
const maxNear = 64

// beside opens the directory of a file and returns it with the file's base name. Directories stay open for a while, so
// that reading thousands of files does not look up each path from the top.
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
			continue // other goroutines may be reading there
		}
		_ = was.Close()
		delete(d.near, old)
		d.near[dir] = at
		break
	}
	return at, file, nil
}

// notThere reports whether an error means that a file does not exist.
func notThere(err error) bool { return errors.Is(err, fs.ErrNotExist) }
