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
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/internal/filelock"
)

// Dir is a cluster's directory. It may be empty. One goroutine uses it at a time.
type Dir struct{ root *os.Root }

// Open opens a directory. NotFound.
func Open(name string) (*Dir, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, croft.Errorf(croft.NotFound, "open the cluster's directory: %w", err)
	}
	return &Dir{root}, nil
}

func (d *Dir) Close() error { return d.root.Close() }

// ErrLocked means that another process was changing addresses all the time.
var ErrLocked = errors.New("another process changes addresses here, and does not end")

// lockPatience is how long a change waits for those of other processes.
const lockPatience = 5 * time.Minute

// Change runs a function that reads and then changes files while no other process does. ErrLocked.
func (d *Dir) Change(ctx context.Context, change func(n *Net) error) error {
	if err := d.makeDir("net"); err != nil {
		return err
	}
	dir, err := d.root.Open("net") // the lock is on the directory, so that version control sees no file for it
	if err != nil {
		return fmt.Errorf("lock net: %w", err)
	}
	defer dir.Close()
	for began := time.Now(); ; {
		err := filelock.Take(dir)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, filelock.ErrTaken) {
			return fmt.Errorf("lock net: %w", err)
		}
		if time.Since(began) > lockPatience {
			return croft.Errorf(croft.Unavailable, "lock %s: %w", path.Join(d.root.Name(), "net"), ErrLocked)
		}
	}
	n, err := d.Read()
	if err != nil {
		return err
	}
	if err := change(n); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return n.write()
}

// An Owner has leases: a slot of a job, or whatever else is named in that form.
type Owner struct {
	Job  string `json:"job"` // parts joined by /, such as web/front@7
	Slot int    `json:"slot"`
}

func (o Owner) String() string { return o.Job + "/" + strconv.Itoa(o.Slot) }

// maxSlot is the largest slot.
const maxSlot = 999_999

// ParseOwner reads JOB/SLOT; without a slot it is slot 0. Invalid.
func ParseOwner(text string) (Owner, error) {
	o := Owner{Job: text}
	if dir, last := path.Split(text); dir != "" && allDigits(last) {
		slot, err := strconv.Atoi(last)
		if err != nil || slot > maxSlot || strconv.Itoa(slot) != last {
			return o, croft.Errorf(croft.Invalid, "%q: a slot is a number from 0 to %d without zeros before it", text,
				maxSlot)
		}
		o = Owner{strings.TrimSuffix(dir, "/"), slot}
	}
	return o, o.check()
}

func allDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

func (o Owner) check() error {
	parts := strings.Split(o.Job, "/")
	for _, part := range parts {
		name, instance, is := strings.Cut(part, "@")
		if !validName(name) || is && !validName(instance) || len(parts) > maxDepth || len(part) > 128 {
			return croft.Errorf(croft.Invalid, "%q is no name of a job: write names of a to z, 0 to 9 and . _ - joined "+
				"by /, such as web/front or web/front@7", o.Job)
		}
	}
	if o.Slot < 0 || o.Slot > maxSlot {
		return croft.Errorf(croft.Invalid, "slot %d of %s: give 0 to %d", o.Slot, o.Job, maxSlot)
	}
	return nil
}

// Compare orders owners by job and then by slot.
func (o Owner) Compare(other Owner) int {
	if c := strings.Compare(o.Job, other.Job); c != 0 {
		return c
	}
	return o.Slot - other.Slot
}

// notThere reports whether an error says that there is no such file.
func notThere(err error) bool { return errors.Is(err, fs.ErrNotExist) }
