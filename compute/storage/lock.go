package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/internal/delay"
	"croft/internal/durable"
)

// Lock says which host may use the disks of an instance. The lock is the file of the instance with the highest number,
// which never changes: whoever takes the lock creates the next one exclusively. So of two hosts one gets it, and what a
// host does late, after it was suspended, changes no newer lock.
//
// A lock never expires by itself. The lease of its host shows that the host uses the storage: its renewals are observed
// by the clock of the reader alone. A lock may be taken from a host that was declared dead, but not while that host
// still renews its lease, because then it is not off.
type Lock struct {
	Host   croft.HostID `json:"host,omitempty"`   // empty: released
	Volume bool         `json:"volume,omitempty"` // of a volume, which may have no file: yet, or any more
	At     time.Time    `json:"at"`               // for people
	Number int64        `json:"-"`
}

// lease is the content of the lease of a host.
type lease struct {
	Count int64     `json:"count"` // differs after each renewal
	At    time.Time `json:"at"`    // for people
}

func (d *Dir) lockPath(id croft.InstanceID, number int64) string {
	return filepath.Join(d.Path, locksDir, fmt.Sprintf("%s.%d", id, number))
}

// madePath is next to the lock: it stays if the directory of the disk is removed past croft.
func (d *Dir) madePath(id croft.InstanceID) string {
	return filepath.Join(d.Path, locksDir, string(id)+".made")
}

func (d *Dir) leasePath(host croft.HostID) string {
	return filepath.Join(d.Path, locksDir, string(host)+".lease")
}

// numbers returns the numbers of all locks.
func (d *Dir) numbers() (map[croft.InstanceID][]int64, error) {
	entries, err := os.ReadDir(filepath.Join(d.Path, locksDir))
	if err != nil {
		return nil, d.failed("list the locks", err)
	}
	all := map[croft.InstanceID][]int64{}
	for _, e := range entries {
		name, number, _ := strings.Cut(e.Name(), ".")
		id, err := croft.ParseInstanceID(name)
		n, bad := strconv.ParseInt(number, 10, 64)
		if err == nil && bad == nil && n > 0 {
			all[id] = append(all[id], n)
		}
	}
	for _, numbers := range all {
		slices.Sort(numbers)
	}
	return all, nil
}

// stack is the lock of an instance, and the numbers of older ones that were not removed yet.
type stack struct {
	Lock
	older []int64
}

// top returns the lock of an instance; its number is 0 if it is missing.
func (d *Dir) top(id croft.InstanceID) (s stack, err error) {
	all, err := d.numbers()
	if err != nil || len(all[id]) == 0 {
		return s, err
	}
	last := len(all[id]) - 1
	s.older = all[id][:last]
	s.Lock, err = d.readLock(id, all[id][last])
	return s, err
}

func (d *Dir) readLock(id croft.InstanceID, number int64) (l Lock, err error) {
	text, err := os.ReadFile(d.lockPath(id, number))
	if err != nil {
		return l, d.failed("read a lock", err)
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, croft.Errorf(croft.Invalid, "the lock %s is damaged: find out which host runs the instance, and restore it",
			d.lockPath(id, number))
	}
	l.Number = number
	return l, nil
}

// put creates the next lock after one that was read. Conflict: another host was faster.
func (d *Dir) put(id croft.InstanceID, after stack, l Lock) error {
	l.At = time.Now().UTC()
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	next := after.Number + 1
	made, err := d.create(d.lockPath(id, next), append(text, '\n'), 0o644)
	if err != nil {
		return err
	}
	now, err := d.top(id)
	if err != nil {
		return err
	}
	if !made || now.Number != next {
		return d.locked(id, now.Host, ", which took it at the same time")
	}
	if l.Host == d.Host {
		d.hold(id, next)
	}
	// A late host may create a removed number again, and then finds the newest one, which stays.
	for _, number := range append(after.older, after.Number) {
		if err := os.Remove(d.lockPath(id, number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d.failed("remove an older lock", err)
		}
	}
	return nil
}

// Acquire gives this host the lock of an instance. It may be taken from the hosts in dead, which were declared dead.
// Conflict: another host has it, or a host in dead still renews its lease. Unavailable: the storage does not respond,
// or is not there.
func (d *Dir) Acquire(ctx context.Context, id croft.InstanceID, dead ...croft.HostID) error {
	return d.acquire(ctx, id, Lock{Host: d.Host}, dead)
}

// AcquireVolume is Acquire for a volume.
func (d *Dir) AcquireVolume(ctx context.Context, id croft.VolumeID, dead ...croft.HostID) error {
	return d.acquire(ctx, id.Consumer(), Lock{Host: d.Host, Volume: true}, dead)
}

func (d *Dir) acquire(ctx context.Context, id croft.InstanceID, l Lock, dead []croft.HostID) error {
	was, err := Use(ctx, d, id, func() (stack, error) { return d.top(id) })
	if err != nil {
		return err
	}
	switch {
	case was.Number > 0 && was.Host == d.Host:
		d.hold(id, was.Number)
		return nil
	case was.Host != "" && !slices.Contains(dead, was.Host):
		return d.locked(id, was.Host, ": if that is dead, `croft host fence` says so, and other hosts can have the disk")
	case was.Host != "":
		if err := d.observe(ctx, id, was.Host); err != nil {
			return err
		}
	}
	return d.use(ctx, id, func() error { return d.put(id, was, l) })
}

// observe returns a Conflict if a host renews its lease within a little more than two intervals.
func (d *Dir) observe(ctx context.Context, id croft.InstanceID, host croft.HostID) error {
	read := func() (string, error) {
		return Use(ctx, d, id, func() (string, error) {
			text, err := os.ReadFile(d.leasePath(host))
			if errors.Is(err, fs.ErrNotExist) {
				return "", nil
			}
			return string(text), err
		})
	}
	before, err := read()
	if err != nil {
		return err
	}
	if err := delay.For(ctx, d.RenewEvery*5/2-d.unchanged(host, before)); err != nil {
		return err
	}
	after, err := read()
	if err == nil && before != after {
		err = d.locked(id, host, ", which was declared dead and still uses the storage: switch it off")
	}
	return err
}

// unchanged returns for how long the lease of a host has had this text, as far as this host knows. So several disks are
// taken from a dead host in the time of one.
func (d *Dir) unchanged(host croft.HostID, text string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen, has := d.leases[host]
	if !has || seen.text != text {
		seen = seenLease{text, time.Now()}
		d.leases[host] = seen
	}
	return time.Since(seen.since)
}

// seenLease is the lease of another host, and since when it is known to be the same.
type seenLease struct {
	text  string
	since time.Time
}

// Release gives up the lock of an instance, if this host has it.
func (d *Dir) Release(ctx context.Context, id croft.InstanceID) error {
	d.drop(id) // before another host can have it
	return d.use(ctx, id, func() error {
		now, err := d.top(id)
		if err != nil || now.Host != d.Host {
			return err
		}
		return d.put(id, now, Lock{Volume: now.Volume})
	})
}

// Remove removes the disks of an instance, and its lock, if this host has the lock; otherwise they are another host's,
// and stay. It can be repeated.
func (d *Dir) Remove(ctx context.Context, id croft.InstanceID) error {
	return d.remove(ctx, id, d.Disks(id))
}

// RemoveVolume is Remove for a volume.
func (d *Dir) RemoveVolume(ctx context.Context, id croft.VolumeID) error {
	return d.remove(ctx, id.Consumer(), d.Volume(id))
}

func (d *Dir) remove(ctx context.Context, id croft.InstanceID, dir string) error {
	err := d.use(ctx, id, func() error {
		now, err := d.top(id)
		if err != nil || now.Host != d.Host {
			return err
		}
		if err := os.Remove(d.madePath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d.failed("remove the note that the disk is made", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			return d.failed("remove the disk", err)
		}
		return d.removeLocks(id, now)
	})
	if err == nil {
		d.drop(id)
	}
	return err
}

// Holder returns the host that has the lock of an instance; empty: none.
func (d *Dir) Holder(ctx context.Context, id croft.InstanceID) (croft.HostID, error) {
	now, err := Use(ctx, d, id, func() (stack, error) { return d.top(id) })
	if err == nil && now.Host == d.Host {
		d.hold(id, now.Number)
	}
	return now.Host, err
}

// NoteMade notes that the disk of an instance is made, before its guest writes to it.
func (d *Dir) NoteMade(ctx context.Context, id croft.InstanceID) error {
	return d.use(ctx, id, func() error {
		if _, err := os.Stat(d.madePath(id)); err == nil {
			return nil
		}
		if err := durable.Write(d.madePath(id), nil, 0o644); err != nil {
			return d.failed("note that the disk is made", err)
		}
		return nil
	})
}

// WasMade reports whether a host has made the disk of an instance. A host that dies before leaves only its lock, which
// may have several hosts before one makes the disk.
func (d *Dir) WasMade(ctx context.Context, id croft.InstanceID) (bool, error) {
	return Use(ctx, d, id, func() (bool, error) {
		_, err := os.Stat(d.madePath(id))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
}

// Locks are the locks of this host that a process may have left which ended between two steps.
type Locks struct {
	Volumes []croft.VolumeID   // also those without a file
	Bare    []croft.InstanceID // the locks of instances without a disk
}

// Locked returns the locks of this host. A host that died before it made the file, or after it removed the file, leaves
// a lock without one; so does an access that the server carries out late.
func (d *Dir) Locked(ctx context.Context) (Locks, error) {
	return within(ctx, d, "volumes", func() (locked Locks, err error) {
		if err := d.verify(); err != nil {
			return locked, err
		}
		all, err := d.numbers()
		if err != nil {
			return locked, err
		}
		for id, numbers := range all {
			l, err := d.readLock(id, numbers[len(numbers)-1])
			if err != nil || l.Host != d.Host {
				continue // unreadable ones are reported when they are used
			}
			if _, err = os.Stat(d.Volume(croft.VolumeID(id))); l.Volume || err == nil {
				locked.Volumes = append(locked.Volumes, croft.VolumeID(id))
				continue
			}
			if _, err = os.Stat(d.Disks(id)); errors.Is(err, fs.ErrNotExist) {
				locked.Bare = append(locked.Bare, id)
			}
		}
		return locked, nil
	})
}

// RemoveBare removes the lock of an instance that has no disk, if this host has it. Nothing may make the disk
// meanwhile.
func (d *Dir) RemoveBare(ctx context.Context, id croft.InstanceID) error {
	return d.use(ctx, id, func() error {
		now, err := d.top(id)
		if err != nil || now.Host != d.Host {
			return err
		}
		if _, err := os.Stat(d.Disks(id)); !errors.Is(err, fs.ErrNotExist) {
			return err // nil: there is a disk
		}
		d.drop(id)
		return d.removeLocks(id, now)
	})
}

// removeLocks removes the locks of an instance. The newest is removed last: until then a repetition finds the disk.
func (d *Dir) removeLocks(id croft.InstanceID, s stack) error {
	for _, number := range append(s.older, s.Number) {
		if err := os.Remove(d.lockPath(id, number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d.failed("remove the lock", err)
		}
	}
	return nil
}

func (d *Dir) hold(id croft.InstanceID, number int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[id] = number
}

func (d *Dir) drop(id croft.InstanceID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.held, id)
}

// Renew renews the lease of this host, and returns the instances whose locks this host had and others have taken since:
// their guests must not write any more. If the storage does not respond in time, all accesses to it fail until it does.
func (d *Dir) Renew(ctx context.Context) ([]croft.InstanceID, error) {
	lost, err := within(ctx, d, leaseAccess, func() ([]croft.InstanceID, error) {
		// The rename is a change of the directory by this host, so that its next list is not an old one from a cache.
		if err := d.renew(); err != nil {
			return nil, err
		}
		return d.compare()
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.hung:
		if !d.busy[leaseAccess] {
			d.hung = make(chan struct{})
		}
	default:
		if d.busy[leaseAccess] && ctx.Err() == nil {
			close(d.hung)
		}
	}
	return lost, err
}

func (d *Dir) renew() error {
	if err := d.verify(); err != nil {
		return err
	}
	d.mu.Lock()
	d.count++
	text, err := json.Marshal(lease{Count: d.count, At: time.Now().UTC()})
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if err := durable.Write(d.leasePath(d.Host), append(text, '\n'), 0o644); err != nil {
		return d.failed("renew the lease", err)
	}
	return nil
}

// compare returns the held locks that are other hosts' now.
func (d *Dir) compare() (lost []croft.InstanceID, err error) {
	all, err := d.numbers()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	changed := map[croft.InstanceID]int64{}
	for id, number := range d.held {
		if numbers := all[id]; len(numbers) > 0 && numbers[len(numbers)-1] != number {
			changed[id] = numbers[len(numbers)-1]
		}
	}
	d.mu.Unlock()
	for id, number := range changed {
		l, err := d.readLock(id, number)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it changed once more; the next renewal finds out
		case err != nil:
			return lost, err
		case l.Host != d.Host && l.Host != "":
			lost = append(lost, id)
			d.drop(id)
		}
	}
	return lost, nil
}
