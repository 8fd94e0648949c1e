package compute

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"croft"
	"croft/compute/storage"
	"croft/internal/delay"
	"croft/internal/durable"
)

// SharedDir is a directory of the settings that several hosts mount under the same path.
type SharedDir struct {
	Name, Path string

	// how often the lease of this host is renewed; 2 s by default
	RenewEvery time.Duration
	// called before each access to the directory; it may block as a server that hangs does, and its error fails the
	// access; nil: nothing is called
	Fault func() error
}

// sharing is the trait of a provider whose inventory the hosts in its aggregates can use.
const sharing croft.Trait = "MISC_SHARES_VIA_AGGREGATE"

// shared is a storage of the settings.
type shared struct {
	dir *storage.Dir

	mu      sync.Mutex
	id      croft.StorageID // empty: it is not mounted, or not known yet
	problem string          // why it is not offered; empty: it is
	full    string          // that it is nearly full; empty: it is not
	offered croft.Provider  // as last written
}

// mounted returns the storage's ID; false: it is not offered now.
func (s *shared) mounted() (croft.StorageID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.id != "" && s.problem == ""
}

// StorageAggregate returns the UUID of the aggregate that joins a shared storage to the hosts that mount it.
func StorageAggregate(partition croft.PartitionID, id croft.StorageID) string {
	space, err := uuid.Parse(string(partition))
	if err != nil {
		space = uuid.NewSHA1(uuid.NameSpaceOID, []byte(partition))
	}
	return uuid.NewSHA1(space, []byte("storage/"+string(id))).String()
}

// storageOf returns the shared storage with this ID. Unavailable: this host does not mount it now, or the ID is empty.
func (a *Agent) storageOf(id croft.StorageID) (*storage.Dir, error) {
	for _, s := range a.shared {
		if known, _ := s.mounted(); known == id && id != "" { // of one that is not examined yet, the ID is empty
			return s.dir, nil
		}
	}
	return nil, croft.Errorf(croft.Unavailable, "its disk is on the shared storage %s, which this host does not "+
		"mount; mount "+
		"it there, as storage.shared in its settings says", id)
}

// storageCheck is how often a storage that is not offered is examined again.
const storageCheck = 10 * time.Second

// watchStorages renews the leases of this host, and keeps the providers of the storages that it mounts. Each storage
// has separate goroutines, so that one that hangs delays nothing else.
func (a *Agent) watchStorages(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { a.announceStorages(ctx) })
	for _, s := range a.shared {
		work.Go(func() {
			delay.Every(ctx, s.dir.RenewEvery, func(ctx context.Context) { a.renew(ctx, s) })
		})
		work.Go(func() {
			for ctx.Err() == nil {
				wait := 10 * lifePoll // until this agent serves the host
				if a.locked.Load() {
					a.matchStorage(ctx, s)
					wait = a.SweepEvery
					if _, ok := s.mounted(); !ok {
						wait = min(wait, storageCheck)
					}
				}
				_ = delay.For(ctx, wait)
			}
		})
	}
	work.Wait()
}

// renew renews the lease on a storage. The power of a guest whose lock another host has taken meanwhile is cut at once:
// that host was suspended, and declared dead while it was.
func (a *Agent) renew(ctx context.Context, s *shared) {
	if id, _ := s.mounted(); id == "" || !a.locked.Load() {
		return
	}
	lost, err := s.dir.Renew(ctx)
	for _, id := range lost {
		a.endUsers(ctx, s, id)
	}
	if err != nil {
		a.troubled(s, err.Error())
	}
}

// endUsers cuts the power of the guests that have the disk of an instance, or the volume, whose lock another host has.
func (a *Agent) endUsers(ctx context.Context, s *shared, id croft.InstanceID) {
	users, err := a.usersOf(ctx, croft.VolumeID(id))
	if err != nil {
		a.logUnless(ctx, err, "look for the guests of a volume")
	}
	if _, err := a.Hypervisor.Get(ctx, id); !errors.Is(err, croft.NotFound) {
		users = append(users, id)
	}
	for _, user := range users {
		a.Log.Error("another host has a disk of this guest; its power is cut", "instance", user, "disk", id, "host",
			a.Host.ID, "storage", s.dir.Name)
		if err := errors.Join(a.settleMerges(ctx, user), a.Hypervisor.Remove(ctx, user)); err != nil {
			a.logUnless(ctx, fmt.Errorf("instance %s: %w", user, err), "cut the power")
		}
		a.workers.Wake(ctx, user)
	}
}

// troubled notes why a storage is not offered, and withdraws it; empty: it is offered. It returns whether that changed.
func (a *Agent) troubled(s *shared, why string) (changed bool) {
	s.mu.Lock()
	changed = s.problem != why
	s.problem = why
	s.mu.Unlock()
	if !changed {
		return false
	}
	if why != "" {
		a.Log.Warn("a shared storage is not offered", "host", a.Host.ID, "storage", s.dir.Name, "reason", why)
	} else {
		a.Log.Info("a shared storage is offered", "host", a.Host.ID, "storage", s.dir.Name)
	}
	a.noteStorages()
	return true
}

// matchStorage joins a storage, and keeps its provider.
func (a *Agent) matchStorage(ctx context.Context, s *shared) {
	err := a.joinStorage(ctx, s)
	if err == nil {
		err = errors.Join(a.offerStorage(ctx, s), a.sweepLocks(ctx, s))
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.troubled(s, err.Error())
	case a.troubled(s, ""):
		a.resync(ctx) // orders may have waited for the storage
	}
}

// joinStorage finds out which storage is in a directory. The record in etcd comes first: it names the host that gives
// the directory its identity, so that no other host does, nor this one once it is done. So a directory that is empty
// because nothing is mounted stays empty.
func (a *Agent) joinStorage(ctx context.Context, s *shared) error {
	record, err := a.Storages.Storage(ctx, s.dir.Name)
	if err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	unknown := err != nil
	found, err := s.dir.Identity(ctx)
	if err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	empty := err != nil
	switch {
	case unknown:
		record = croft.Storage{ID: croft.NewStorageID(), Name: s.dir.Name, Path: s.dir.Path, Founder: a.Host.ID,
			Created: time.Now().UTC().Truncate(time.Second)}
		if !empty { // the record was removed, and the directory was not
			record.ID, record.Founded = found.ID, true
		}
		if record, err = a.Storages.PutStorage(ctx, record); err != nil {
			return err
		}
	case empty && (record.Founded || record.Founder != a.Host.ID):
		return err
	}
	if record.Path != s.dir.Path {
		return croft.Errorf(croft.Invalid, "use the shared storage %s: it is at %s on other hosts, and at %s here; "+
			"mount it at "+
			"the same path, which the headers of disks name", s.dir.Name, record.Path, s.dir.Path)
	}
	if empty {
		if err := s.dir.Found(ctx, record.ID); err != nil {
			return err
		}
		if found, err = s.dir.Identity(ctx); err != nil {
			return err
		}
	}
	if found.ID != record.ID {
		return croft.Errorf(croft.Conflict, "use the shared storage %s: the directory %s is the storage %s, and the "+
			"other hosts "+
			"have %s under this name; mount the same one", s.dir.Name, s.dir.Path, found.ID, record.ID)
	}
	if !record.Founded && record.Founder == a.Host.ID {
		record.Founded = true
		if _, err := a.Storages.PutStorage(ctx, record); err != nil {
			return err
		}
	}
	s.dir.Expect(found.ID)
	s.mu.Lock()
	s.id = found.ID
	s.mu.Unlock()
	return nil
}

// offerStorage keeps the provider of a storage. Each of its hosts does; they read the same size.
func (a *Agent) offerStorage(ctx context.Context, s *shared) error {
	usage, err := s.dir.Usage(ctx)
	if err != nil {
		return err
	}
	if usage.TotalGB < 1 {
		return croft.Errorf(croft.Invalid, "use the shared storage %s: %s has less than 1 GiB", s.dir.Name, s.dir.Path)
	}
	a.noteFull(s, usage)
	s.mu.Lock()
	id, last := s.id, s.offered
	s.mu.Unlock()
	provider := croft.Provider{
		ID: id.Provider(), Name: s.dir.Name, Traits: []croft.Trait{sharing},
		Inventories: map[croft.ResourceClass]croft.Inventory{
			croft.DiskGB: inventory(usage.TotalGB, usage.ForeignGB, 1)},
		Aggregates: []string{StorageAggregate(a.Partition, id)},
	}
	if last.ID == provider.ID && maps.Equal(last.Inventories, provider.Inventories) {
		return nil
	}
	if err := a.Inventory.EnsureProvider(ctx, provider); err != nil {
		return fmt.Errorf("offer the shared storage %s: %w", s.dir.Name, err)
	}
	s.mu.Lock()
	s.offered = provider
	s.mu.Unlock()
	return nil
}

// noteFull notes whether a storage is nearly full. It stays offered: the claims say for whom its room is.
func (a *Agent) noteFull(s *shared, usage storage.Usage) {
	full := ""
	if usage.Free < littleDisk {
		full = fmt.Sprintf("less than 1 GiB is free on the shared storage %s at %s: when it is full, guests that "+
			"write there "+
			"are paused, and new ones cannot be built; make room there", s.dir.Name, s.dir.Path)
	}
	s.mu.Lock()
	changed := s.full != full
	s.full = full
	s.mu.Unlock()
	if !changed {
		return
	}
	if full != "" {
		a.Log.Warn("a shared storage is nearly full", "host", a.Host.ID, "storage", s.dir.Name, "reason", full)
	}
	a.noteStorages()
}

// noteStorages notes which storages the host mounts: in its record, where schedulers read it, and in the
// aggregates of its provider. announceStorages writes both.
func (a *Agent) noteStorages() {
	var mounts []croft.HostStorage
	var aggregates []string
	var problems []string
	for _, s := range a.shared {
		if id, ok := s.mounted(); ok {
			mounts = append(mounts, croft.HostStorage{ID: id, Name: s.dir.Name})
			aggregates = append(aggregates, StorageAggregate(a.Partition, id))
		}
		s.mu.Lock()
		if why := cmp.Or(s.problem, s.full); why != "" {
			problems = append(problems, why)
		}
		s.mu.Unlock()
	}
	a.introducing.Lock()
	a.mounts, a.storageProblems = mounts, problems
	a.Provider.Aggregates = slices.Concat(a.ownAggregates, aggregates)
	a.introducing.Unlock()
	select {
	case a.mountsChanged <- struct{}{}:
	default:
	}
}

// announceStorages announces the host again whenever its mounts change. It has a separate goroutine, because leases
// are renewed also while etcd does not answer.
func (a *Agent) announceStorages(ctx context.Context) {
	for {
		select {
		case <-a.mountsChanged:
		case <-ctx.Done():
			return
		}
		for !a.known.Load() && ctx.Err() == nil {
			_ = delay.For(ctx, lifePoll)
		}
		a.announce(ctx)
	}
}

// diskDir returns the directory with the disk of the pass's instance. Unavailable: it is on shared storage that this
// host does not mount now.
func (p *pass) diskDir() (string, error) {
	if p.want.Storage == "" {
		return p.agent.dir(p.id), nil
	}
	dir, err := p.storage()
	if err != nil {
		return "", err
	}
	return dir.Disks(p.id), nil
}

// storage returns the shared storage with the disk of the pass's instance.
func (p *pass) storage() (*storage.Dir, error) { return p.agent.storageOf(p.want.Storage) }

// lockDisk makes this host the one that may use the disk of the instance, if that is on shared storage. Conflict:
// another host has it; this is not final, since that host may release it.
func (p *pass) lockDisk(ctx context.Context) error {
	if p.want.Storage == "" {
		return nil
	}
	dir, err := p.storage()
	if err == nil {
		err = dir.Acquire(ctx, p.id, p.want.TakesFrom...)
	}
	if errors.Is(err, croft.Conflict) {
		err = croft.Errorf(croft.Unavailable, "%w", err)
	}
	return err
}

// checkLock cuts the power of a guest with a disk or a volume on shared storage that another host has.
func (p *pass) checkLock(ctx context.Context) error {
	if p.have.Domain == nil || p.have.Domain.Power == PowerOff {
		return nil
	}
	volume, holder, err := p.takenVolume(ctx)
	if err != nil {
		return err
	}
	if volume != "" {
		return p.cutPower(ctx, string(volume), holder)
	}
	if p.want.Storage == "" {
		return nil
	}
	if p.want.Want != croft.WantLeft { // it was lost with this host, so another one may have the disk any moment
		dir, err := p.storage()
		if err != nil {
			return nil // the guest waits for its disk by itself
		}
		holder, err = dir.Holder(ctx, p.id)
		if err != nil || holder == p.agent.Host.ID || holder == "" {
			return nil
		}
	}
	return p.cutPower(ctx, string(p.id), holder)
}

// cutPower cuts the power of the guest, since another host has one of its disks, or may have it any moment.
func (p *pass) cutPower(ctx context.Context, disk string, holder croft.HostID) error {
	p.agent.Log.Error("another host may use a disk of this guest; its power is cut", "instance", p.id, "disk", disk,
		"host", p.agent.Host.ID, "holder", holder)
	unsettled := p.agent.settleMerges(ctx, p.id)
	if err := p.agent.Hypervisor.Remove(ctx, p.id); err != nil {
		return err
	}
	p.have.Domain = nil
	return unsettled
}

// prepareDisk locks the disk of the instance and makes its directory. One that the instance must have already is not
// made anew. Conflict: it is gone.
func (p *pass) prepareDisk(ctx context.Context) error {
	if p.want.Storage == "" {
		return nil
	}
	if has, err := p.broughtDisk(ctx); has || err != nil {
		return err
	}
	if err := p.lockDisk(ctx); err != nil {
		return err
	}
	dir, err := p.storage()
	if err != nil {
		return err
	}
	if err := dir.Prepare(ctx, p.id); err != nil {
		return err
	}
	return p.ownDirectory(ctx, dir)
}

// recordFile, beside a disk on shared storage, names the record of the instance that it was made for.
const recordFile = "record"

// ownDirectory makes sure that what is in the directory of the instance on shared storage was made for its record.
// Clients choose the UUIDs of instances, and a disk can outlive its instance if its host does not return. Conflict: it
// was made for another record.
func (p *pass) ownDirectory(ctx context.Context, dir *storage.Dir) error {
	inst, err := p.agent.Records.Instance(ctx, p.id)
	if err != nil {
		return err
	}
	mark := recordMark(inst)
	_, err = storage.Use(ctx, dir, p.id, func() (none struct{}, err error) {
		path := filepath.Join(dir.Disks(p.id), recordFile)
		found, err := os.ReadFile(path)
		if err == nil && bytes.Equal(found, mark) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return none, err
		}
		entries, err := os.ReadDir(dir.Disks(p.id))
		switch {
		case err != nil:
			return none, err
		case len(entries) > 0:
			return none, croft.Errorf(croft.Conflict, "the shared storage %s has the disk of an earlier instance with this "+
				"UUID, which nothing removed: request the instance with another UUID, or have an operator remove its "+
				"directory instances/%s", dir.Name, p.id)
		}
		return none, durable.Write(path, mark, 0o600)
	})
	if errors.Is(err, croft.Conflict) { // the host of the earlier instance needs the lock to remove the disk
		err = errors.Join(err, dir.Release(ctx, p.id))
	}
	return err
}

// recordMark identifies the record of an instance. A later record with the same UUID has another mark.
func recordMark(inst croft.Instance) []byte {
	return []byte(string(inst.Project) + " " + inst.Created.UTC().Format(time.RFC3339Nano) + "\n")
}

// madeForAnother reports whether the disk on shared storage was made for another record than inst.
func (p *pass) madeForAnother(ctx context.Context, dir *storage.Dir, inst croft.Instance) (bool, error) {
	return storage.Use(ctx, dir, p.id, func() (bool, error) {
		found, err := os.ReadFile(filepath.Join(dir.Disks(p.id), recordFile))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil && !bytes.Equal(found, recordMark(inst)), err
	})
}

// broughtDisk locks the disk that the instance has from another host. False: no host has made it yet, because that one
// died before. Conflict: it is gone.
func (p *pass) broughtDisk(ctx context.Context) (bool, error) {
	if !p.hasDisk() {
		return false, nil
	}
	if err := p.lockDisk(ctx); err != nil {
		return false, err
	}
	dir, err := p.storage()
	if err != nil {
		return false, err
	}
	has, err := storage.Use(ctx, dir, p.id, func() (bool, error) { return diskIn(dir.Disks(p.id)) })
	if has || err != nil {
		return has, err
	}
	made, err := dir.WasMade(ctx, p.id)
	if err == nil && made {
		err = croft.Errorf(croft.Conflict, "its disk is not on the shared storage %s any more: it was removed past "+
			"croft; put it back, or rebuild the instance from its image", dir.Name)
	}
	return false, err
}

// lockArriving locks the disk of an instance that moves here. Invalid: no host has made it yet.
func (p *pass) lockArriving(ctx context.Context) error {
	has, err := p.broughtDisk(ctx)
	if err == nil && !has {
		err = croft.Errorf(croft.Invalid, "its disk was not made yet: move it once it has been started")
	}
	return err
}

// hasDisk reports whether the instance must have its disk already, because it comes from another host.
func (p *pass) hasDisk() bool {
	moved := p.want.Want == croft.WantArriving || p.want.MovedFrom != "" && !p.want.Spec.Ephemeral
	return p.want.Storage != "" && !p.fresh && (len(p.want.TakesFrom) > 0 || moved)
}

// noteDisk notes that the disk of the instance on shared storage is made.
func (p *pass) noteDisk(ctx context.Context) error {
	if p.want.Storage == "" {
		return nil
	}
	dir, err := p.storage()
	if err != nil {
		return err
	}
	return dir.NoteMade(ctx, p.id)
}

// leaveAll releases the disk and the volumes of an instance that was lost with this host, and whose guest is off, so
// that the host on which it starts again can have them.
func (p *pass) leaveAll(ctx context.Context) error {
	all, err := p.elsewhere(ctx)
	return errors.Join(err, p.unlockVolumes(ctx, all), p.leaveDisk(ctx))
}

// leaveDisk releases the disk of an instance on shared storage.
func (p *pass) leaveDisk(ctx context.Context) error {
	if p.want.Storage == "" {
		return nil
	}
	dir, err := p.storage()
	if err != nil {
		return err
	}
	return dir.Release(ctx, p.id)
}

// removeDisk removes the disk of an instance on shared storage, if it is this host's to remove. The disk of an instance
// that is lost, or has another host, stays. That of one that ended goes, although this host may have released it when
// the instance was lost.
func (p *pass) removeDisk(ctx context.Context) error {
	if p.want.Storage == "" {
		return nil
	}
	dir, err := p.storage()
	if err != nil {
		return err
	}
	inst, err := p.agent.Records.Instance(ctx, p.id)
	ended := errors.Is(err, croft.NotFound)
	if err != nil && !ended {
		return err
	}
	remains := false
	if !ended {
		if remains, err = p.madeForAnother(ctx, dir, inst); err != nil {
			return err
		}
	}
	switch {
	case p.want.Move != nil && !ended: // a move that ended on the other host, which has the disk
		return dir.Release(ctx, p.id)
	case ended, inst.Storage != p.want.Storage, inst.Project != p.want.Project: // or it only has the same UUID
		if mine, err := p.takeRemains(ctx, dir); err != nil || !mine {
			return err
		}
	case remains: // the host of the later instance, which has the lock for moments, waits until the disk is gone
		if err := p.lockDisk(ctx); err != nil {
			return err
		}
	case inst.State == croft.StateLost || inst.Host != p.agent.Host.ID && !inst.Spec.Ephemeral:
		return dir.Release(ctx, p.id)
	case inst.Host == p.agent.Host.ID: // a move that ended may have left it without a lock
		if err := p.lockDisk(ctx); err != nil {
			return err
		}
	}
	return dir.Remove(ctx, p.id)
}

// takeRemains locks the disk of an instance that ended. False: another host has it, and removes it.
func (p *pass) takeRemains(ctx context.Context, dir *storage.Dir) (bool, error) {
	err := dir.Acquire(ctx, p.id, p.want.TakesFrom...)
	if !errors.Is(err, croft.Conflict) {
		return err == nil, err
	}
	holder, read := dir.Holder(ctx, p.id)
	if read == nil && slices.Contains(p.want.TakesFrom, holder) { // it was lost with that host, which will release it
		return false, croft.Errorf(croft.Unavailable, "%w", err)
	}
	return false, read
}

// onStorage runs f, which accesses the disk of the pass's instance.
func onStorage[T any](ctx context.Context, p *pass, f func() (T, error)) (none T, _ error) {
	if p.want.Storage == "" {
		return f()
	}
	dir, err := p.storage()
	if err != nil {
		return none, err
	}
	return storage.Use(ctx, dir, p.id, f)
}

// diskIn reports whether a directory has the disk of an instance.
func diskIn(dir string) (bool, error) { return exists(filepath.Join(dir, diskFile)) }
