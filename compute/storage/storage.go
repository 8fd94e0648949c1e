// Package storage accesses a directory that several hosts mount, such as an NFS export, for the disks of instances.
//
// The file identityFile says which storage it is: one that is missing, because nothing is mounted, or another one,
// makes each access fail, and only Found creates it. No access blocks its caller: if the server does not respond, it is
// Unavailable. The lock of a disk belongs to one host; see Lock.
package storage

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"croft"
	"croft/internal/durable"
)

// Names in the directory.
const (
	identityFile = "croft-storage.json"
	disksDir     = "instances" // one directory per instance
	volumesDir   = "volumes"   // one directory per volume; made with the first one
	locksDir     = "locks"
)

// leaseAccess is what the renewal of the lease is about, for do.
const leaseAccess = "lease"

// Config configures a Dir. Name and Path are required; Host and Partition are, except to read the identity.
type Config struct {
	Name      string // as in the settings of each host that mounts it
	Path      string // absolute
	Host      croft.HostID
	Partition croft.PartitionID // empty: that of any cloud
	// how long an access may take before the storage counts as hung; 10 s by default
	Patience time.Duration
	// how often the lease of this host is renewed; 2 s by default
	RenewEvery time.Duration
	// called before each access; it may block, and its error fails the access; nil: nothing is called
	Fault func() error
}

// Dir is a shared directory, as one host uses it.
type Dir struct {
	Config

	mu    sync.Mutex
	busy  map[string]bool // accesses that have not returned, by what they are about
	hung  chan struct{}   // closed while the last renewal has not returned in time
	held  map[croft.InstanceID]int64
	wants croft.StorageID // the storage that has to be there; empty: not known yet
	count int64           // renewals

	leases map[croft.HostID]seenLease // of hosts from which a lock was to be taken
}

// Identity says which storage a directory is.
type Identity struct {
	ID        croft.StorageID   `json:"id"`
	Name      string            `json:"name"`
	Partition croft.PartitionID `json:"partition"`
}

// New returns the access to a directory, which need not exist.
func New(c Config) *Dir {
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
	}
	if c.RenewEvery == 0 {
		c.RenewEvery = 2 * time.Second
	}
	return &Dir{Config: c, busy: map[string]bool{}, hung: make(chan struct{}), held: map[croft.InstanceID]int64{},
		leases: map[croft.HostID]seenLease{}}
}

// Disks returns the directory with the disks of an instance.
func (d *Dir) Disks(id croft.InstanceID) string { return filepath.Join(d.Path, disksDir, string(id)) }

// Volume returns the directory with the file of a volume, whose lock has the name of its consumer.
func (d *Dir) Volume(id croft.VolumeID) string { return filepath.Join(d.Path, volumesDir, string(id)) }

// Expect sets the storage that has to be in the directory from now on.
func (d *Dir) Expect(id croft.StorageID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wants = id
}

// noResponse is the same text for all short accesses, so that a storage that hangs is logged once.
const noResponse = "its server does not respond"

// do runs f, which accesses the directory, and stops waiting for it when the storage hangs or ctx ends. While an
// abandoned access has not returned, another one about the same object fails, with busy as the reason. Unavailable.
func do[T any](ctx context.Context, d *Dir, about, busy string, f func() (T, error)) (none T, _ error) {
	type result struct {
		value T
		err   error
	}
	d.mu.Lock()
	hung := d.hung
	if about == leaseAccess {
		hung = nil // it finds out whether the storage responds again
	}
	if d.busy[about] {
		d.mu.Unlock()
		return none, d.silent(busy)
	}
	d.busy[about] = true
	d.mu.Unlock()
	done := make(chan result, 1)
	go func() {
		var r result
		if d.Fault != nil {
			r.err = d.Fault()
		}
		if r.err == nil {
			r.value, r.err = f()
		}
		d.mu.Lock()
		delete(d.busy, about)
		d.mu.Unlock()
		done <- r
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-hung:
		return none, d.silent(noResponse)
	case <-ctx.Done():
		return none, d.silent(context.Cause(ctx).Error())
	}
}

// within is do for a short access, which must return in time.
func within[T any](ctx context.Context, d *Dir, about string, f func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.Patience, errors.New(noResponse))
	defer cancel()
	return do(ctx, d, about, noResponse, f)
}

// Use runs f, which works on the disks of an instance, if the directory has the expected identity. f may take long, as
// long as the storage responds to other accesses; when Use returns early, f may still run, so f shares no variables
// with the caller. Unavailable: the storage does not respond, or is not there.
func Use[T any](ctx context.Context, d *Dir, id croft.InstanceID, f func() (T, error)) (T, error) {
	return do(ctx, d, string(id), "an earlier access to it has not returned", func() (none T, _ error) {
		if err := d.verify(); err != nil {
			return none, err
		}
		return f()
	})
}

// use is Use without a result.
func (d *Dir) use(ctx context.Context, id croft.InstanceID, f func() error) error {
	_, err := Use(ctx, d, id, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func (d *Dir) silent(why string) error {
	return croft.Errorf(croft.Unavailable, "use the shared storage %s at %s: %s; guests with disks there wait until "+
		"it "+
		"does", d.Name, d.Path, why)
}

// verify returns an error unless the directory has the expected identity.
func (d *Dir) verify() error {
	found, err := d.read()
	if err != nil { // it may be mounted again later
		return croft.Errorf(croft.Unavailable, "%w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wants == "" || found.ID != d.wants {
		return croft.Errorf(croft.Unavailable, "the directory %s has the storage %s now, and not %s: mount the "+
			"storage %s "+
			"there again", d.Path, found.ID, d.wants, d.Name)
	}
	return nil
}

// Identity reads which storage is in the directory. NotFound: it has no identity. Conflict: it belongs to another
// cloud, or has another name. Invalid: it is no directory, or the file is damaged. Unavailable: it does not respond.
func (d *Dir) Identity(ctx context.Context) (Identity, error) {
	return within(ctx, d, "identity", d.read)
}

// IsMountPoint reports whether another file system begins at the directory. It may block while the server hangs.
func (d *Dir) IsMountPoint() bool {
	var here, above unix.Stat_t
	if unix.Stat(d.Path, &here) != nil || unix.Stat(filepath.Dir(d.Path), &above) != nil {
		return false
	}
	return here.Dev != above.Dev
}

// read is Identity, without a limit of time.
func (d *Dir) read() (found Identity, err error) {
	info, err := os.Stat(d.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !info.IsDir():
		return found, croft.Errorf(croft.Invalid, "use the shared storage %s: %s is no directory; mount it "+
			"there", d.Name,
			d.Path)
	case err != nil:
		return found, d.failed("look at it", err)
	}
	f, err := os.Open(filepath.Join(d.Path, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return found, croft.Errorf(croft.NotFound, "use the shared storage %s: %s has no file %s, so it is not "+
			"mounted there; "+
			"mount it", d.Name, d.Path, identityFile)
	}
	if err != nil {
		return found, d.failed("read its identity", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return found, d.failed("read its identity", err)
	}
	return d.parse(text)
}

// parse reads an identity and compares it with the configuration.
func (d *Dir) parse(text []byte) (found Identity, err error) {
	if err := json.Unmarshal(text, &found); err == nil {
		found.ID, err = croft.ParseStorageID(string(found.ID))
		ours := d.Partition == "" || found.Partition == d.Partition
		if err == nil && ours && found.Name == d.Name {
			return found, nil
		}
		if err == nil && !ours {
			return found, croft.Errorf(croft.Conflict, "use the shared storage %s: the directory %s belongs to "+
				"another cloud, "+
				"%.80q; give each cloud a directory of its own", d.Name, d.Path, found.Partition)
		}
		if err == nil {
			return found, croft.Errorf(croft.Conflict, "use the shared storage %s: the directory %s is the storage "+
				"%.80q; "+
				"mount the right one there, or use that name in the settings", d.Name, d.Path, found.Name)
		}
	}
	return found, croft.Errorf(croft.Invalid, "use the shared storage %s: %s is damaged; restore it from a copy, or "+
		"write "+
		"its id, name and partition again", d.Name, filepath.Join(d.Path, identityFile))
}

// failed describes a failed access. Unavailable: another one may succeed.
func (d *Dir) failed(what string, err error) error {
	return croft.Errorf(croft.Unavailable, "%s, the shared storage %s at %s: %w", what, d.Name, d.Path, err)
}

// Found gives the directory its identity, unless it has one already. Only the host that recorded the storage in the
// cloud calls it.
func (d *Dir) Found(ctx context.Context, id croft.StorageID) error {
	_, err := within(ctx, d, "identity", func() (bool, error) {
		for _, name := range []string{disksDir, locksDir} {
			if err := os.Mkdir(filepath.Join(d.Path, name), 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
				return false, d.failed("make the directory "+name, err)
			}
		}
		text, err := json.Marshal(Identity{ID: id, Name: d.Name, Partition: d.Partition})
		if err != nil {
			return false, err
		}
		return d.create(filepath.Join(d.Path, identityFile), append(text, '\n'), 0o644)
	})
	return err
}

// create makes a file with this content if it is missing; false: there is one. The link is atomic on every file system
// that hosts share. Its answer may be lost, so the link count decides if it fails; if it succeeds, it alone does,
// because file systems keep counts for a moment.
func (d *Dir) create(path string, text []byte, mode fs.FileMode) (bool, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return false, d.failed("make a file", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return false, d.failed("write a file", err)
	}
	linkErr := os.Link(f.Name(), path)
	if linkErr == nil {
		return true, durable.FlushDir(filepath.Dir(path))
	}
	info, err := os.Stat(f.Name())
	if err != nil {
		return false, d.failed("make a file", err)
	}
	if stat, is := info.Sys().(*syscall.Stat_t); is && stat.Nlink > 1 {
		return true, durable.FlushDir(filepath.Dir(path))
	}
	switch {
	case errors.Is(linkErr, fs.ErrExist):
		return false, nil
	case errors.Is(linkErr, unix.EPERM), errors.Is(linkErr, unix.ENOTSUP):
		return false, croft.Errorf(croft.Invalid, "use the shared storage %s: the file system of %s has no hard "+
			"links, which "+
			"the locks of its disks need", d.Name, d.Path)
	}
	return false, d.failed("make a file", linkErr)
}

// Usage is the space of a storage.
type Usage struct {
	TotalGB   int64 // GiB
	ForeignGB int64 // GiB used by files other than the disks of instances and volumes, rounded up
	Free      int64 // bytes
}

// Usage reads the space of the storage.
func (d *Dir) Usage(ctx context.Context) (Usage, error) {
	return within(ctx, d, "usage", func() (u Usage, err error) {
		if err := d.verify(); err != nil {
			return u, err
		}
		var of unix.Statfs_t
		if err := unix.Statfs(d.Path, &of); err != nil {
			return u, d.failed("read its size", err)
		}
		var ours int64
		for _, dir := range []string{disksDir, volumesDir} {
			_ = filepath.WalkDir(filepath.Join(d.Path, dir), func(_ string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return nil // unreadable files count as foreign
				}
				if info, err := e.Info(); err == nil {
					if stat, is := info.Sys().(*syscall.Stat_t); is {
						ours += stat.Blocks * 512
					}
				}
				return nil
			})
		}
		return usageOf(of, ours), nil
	})
}

// usageOf returns the space of a file system with so many bytes of disks. Blocks that only root may use count as used:
// on NFS, the server refuses them.
func usageOf(of unix.Statfs_t, ours int64) Usage {
	used := (int64(of.Blocks) - int64(of.Bavail)) * of.Bsize
	return Usage{TotalGB: int64(of.Blocks) * of.Bsize >> 30, Free: int64(of.Bavail) * of.Bsize,
		ForeignGB: max(0, (used-ours+1<<30-1)>>30)}
}

// Prepare makes the directory of an instance, which has its lock.
func (d *Dir) Prepare(ctx context.Context, id croft.InstanceID) error {
	return d.makeDirs(ctx, id, d.Disks(id))
}

// PrepareVolume makes the directory of a volume.
func (d *Dir) PrepareVolume(ctx context.Context, id croft.VolumeID) error {
	return d.makeDirs(ctx, id.Consumer(), filepath.Join(d.Path, volumesDir), d.Volume(id))
}

// makeDirs makes the directories that are missing, the outermost first, for what has the lock.
func (d *Dir) makeDirs(ctx context.Context, locked croft.InstanceID, dirs ...string) error {
	return d.use(ctx, locked, func() error {
		for _, dir := range dirs {
			if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
				return d.failed("make the directory of a disk", err)
			}
		}
		return nil
	})
}

// Instances returns the instances with disks in the storage.
func (d *Dir) Instances(ctx context.Context) ([]croft.InstanceID, error) {
	return within(ctx, d, "list", func() (all []croft.InstanceID, err error) {
		if err := d.verify(); err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(filepath.Join(d.Path, disksDir))
		if err != nil {
			return nil, d.failed("list the disks", err)
		}
		for _, e := range entries {
			if id, err := croft.ParseInstanceID(e.Name()); err == nil {
				all = append(all, id)
			}
		}
		return all, nil
	})
}

// locked returns the error about a lock that another host has.
func (d *Dir) locked(id croft.InstanceID, host croft.HostID, why string) error {
	return croft.Errorf(croft.Conflict, "the disk %s on the shared storage %s belongs to host %s%s", id, d.Name, host,
		why)
}
