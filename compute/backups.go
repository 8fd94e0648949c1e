package compute

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"croft"
	"croft/compute/backup"
	"croft/internal/delay"
	"croft/internal/wording"
)

// Backups is the store of the jobs of the host.
type Backups interface {
	// WatchJobs calls wake for every job of the host, then for every job that changes or disappears. It lists again
	// after a compaction or a lost connection, and returns only when ctx ends.
	WatchJobs(ctx context.Context, host croft.HostID, wake func(id string)) error
	// Job returns a job of the host. NotFound.
	Job(ctx context.Context, host croft.HostID, id string) (backup.Job, error)
	// Report records what was done about a job. NotFound: it is gone. A report about a job that is done changes
	// nothing.
	Report(ctx context.Context, host croft.HostID, id string, r backup.Report) error
}

// Repository is the program that keeps disks in a repository. ErrDamaged: data there is missing or was changed.
// ErrLocked: another process uses the repository. Denied: it has another password. Unavailable: it cannot be reached,
// or is full.
type Repository interface {
	// Open checks the password of a repository, and makes the repository if it is missing.
	Open(ctx context.Context, a backup.Access) error
	// Copy stores a disk of a backup under a name, and returns the snapshot that has it, and how many bytes were new.
	Copy(ctx context.Context, a backup.Access, id, name string, r io.Reader) (snapshot string, added int64, err error)
	// Describe completes a backup by the text from which its record can be made again.
	Describe(ctx context.Context, a backup.Access, id string, text []byte) error
	// Kept returns the snapshots of a backup that the repository has. Copy may return only the start of such an ID.
	Kept(ctx context.Context, a backup.Access, id string) (snapshots []string, err error)
	// Read writes a disk that Copy stored. What it writes is verified only when it returns nil.
	Read(ctx context.Context, a backup.Access, snapshot, name string, w io.Writer) error
	// Verify reads all data of the repository.
	Verify(ctx context.Context, a backup.Access) error
	// Recover removes what processes that were killed on this host left in the repository, such as locks.
	Recover(ctx context.Context, a backup.Access) error
	// Discard removes what Copy and Describe stored of a backup, also of an incomplete one, and, with prune, the data
	// that no backup needs any more.
	Discard(ctx context.Context, a backup.Access, id string, prune bool) error
}

// ErrDamaged says that a repository lacks data that it should have, or has other data.
var ErrDamaged = croft.Errorf(croft.Invalid, "the data of the backup is damaged")

// ErrLocked says that another process uses a repository.
var ErrLocked = croft.Errorf(croft.Unavailable, "another process has locked the repository")

// Bounds of jobs.
const (
	mostJobs     = 2                // jobs at once for each store
	stall        = 20 * time.Minute // a store that takes or gives no data for so long is given up
	lockWait     = time.Hour        // how long a job waits for a locked repository
	lockRetry    = 10 * time.Second
	progressStep = 2 * time.Second // between two reports of progress
	openTime     = 3 * time.Minute
)

// watchJobs wakes the jobs of the host as they change, until ctx ends.
func (a *Agent) watchJobs(ctx context.Context) {
	if a.Backups == nil || a.Repository == nil {
		return
	}
	_ = a.Backups.WatchJobs(ctx, a.Host.ID, func(id string) {
		a.knownJobs.Store(id, true)
		a.jobWorkers.Wake(ctx, id)
	})
}

// wakeJobs wakes the jobs that are known, for an agent that had not had the lock of the host.
func (a *Agent) wakeJobs(ctx context.Context) {
	a.knownJobs.Range(func(id, _ any) bool {
		a.jobWorkers.Wake(ctx, id.(string))
		return true
	})
}

// passJob carries out a job. The workers run at most one per job at a time. A job that was interrupted starts again.
func (a *Agent) passJob(ctx context.Context, id string) {
	if !a.locked.Load() {
		return
	}
	j, err := a.Backups.Job(ctx, a.Host.ID, id)
	switch {
	case errors.Is(err, croft.NotFound) || err == nil && j.Report.Done:
		a.knownJobs.Delete(id)
		return
	case err == nil && j.Kind == backup.Restore:
		a.workers.Wake(ctx, j.Instance) // the pass of its instance carries it out
		return
	case err == nil:
		err = a.doJob(ctx, j)
	}
	if err != nil && ctx.Err() == nil {
		a.Log.Warn("the result of a job for a backup is not recorded; it is tried again", "job", id, "host", a.Host.ID,
			"err", err)
		if delay.For(ctx, lastWait) == nil {
			a.jobWorkers.Wake(ctx, id)
		}
	}
}

// doJob carries out a job and reports its result.
func (a *Agent) doJob(ctx context.Context, j backup.Job) error {
	turn, err := a.jobs.turn(ctx, j)
	if err != nil {
		return err
	}
	defer turn.end()
	// The job may have been withdrawn while it waited, for example because the instance is being destroyed.
	j, err = a.Backups.Job(ctx, a.Host.ID, j.ID)
	if errors.Is(err, croft.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	log := a.Log.With("job", j.ID, "host", a.Host.ID, "op", string(j.Kind), "store", j.Store, "backup", j.Backup)
	log.Info("working for a backup")
	access, err := a.Key.Open(j)
	var r backup.Report
	if err == nil {
		r, err = a.carryOutJob(ctx, j, access, turn)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.Done, r.At, r.Room = true, time.Now().UTC(), roomOf(access.Repository)
	if err != nil {
		r.Error, r.Damaged = masked(err.Error(), access), errors.Is(err, ErrDamaged)
		log.Warn("a job for a backup failed", "err", r.Error)
	}
	a.metrics.jobs.WithLabelValues(string(j.Kind), outcome(ctx, err)).Inc()
	if err := a.Backups.Report(ctx, a.Host.ID, j.ID, r); err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	return nil
}

// roomOf returns the space of the file system with a repository; nil: the repository is no directory.
func roomOf(repository string) *backup.Room {
	var of unix.Statfs_t
	if !strings.HasPrefix(repository, "/") || unix.Statfs(repository, &of) != nil {
		return nil
	}
	return &backup.Room{Free: int64(of.Bavail) * of.Bsize, Size: int64(of.Blocks) * of.Bsize, At: time.Now().UTC()}
}

// longestError limits the error in a report, in bytes.
const longestError = 2000

// masked returns an error without the secrets of an access.
func masked(text string, a backup.Access) string {
	secrets := []string{a.Password}
	for _, value := range a.Environment {
		secrets = append(secrets, value)
	}
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[secret]")
		}
	}
	if len(text) > longestError {
		text = strings.ToValidUTF8(text[:longestError], "")
	}
	return text
}

func (a *Agent) carryOutJob(ctx context.Context, j backup.Job, access backup.Access, turn *jobTurn) (r backup.Report,
	err error) {
	unlocked := func(do func() error) error { return a.unlocked(ctx, j, turn, do) }
	switch j.Kind {
	case backup.Open:
		ctx, cancel := context.WithTimeoutCause(ctx, openTime, croft.Errorf(croft.Unavailable, "the store does not "+
			"answer"))
		defer cancel()
		if err := a.Repository.Open(ctx, access); err != nil {
			return r, cmp.Or(context.Cause(ctx), err)
		}
		return r, nil
	case backup.Copy:
		r.Disks, err = a.copyDisks(ctx, j, access, turn)
		if err != nil && ctx.Err() == nil {
			// Its data would stay for good. A store that does not answer gets it removed with the record.
			after, cancel := context.WithTimeout(ctx, openTime)
			defer cancel()
			r.Disks, r.Nothing = nil, a.unlocked(after, j, turn, func() error {
				return a.Repository.Discard(after, access, j.Backup, false)
			}) == nil
		}
		return r, err
	case backup.Verify:
		if len(j.Disks) == 0 {
			return r, unlocked(func() error { return a.Repository.Verify(ctx, access) })
		}
		for i, d := range j.Disks {
			if err := a.readBack(ctx, j, access, i, io.Discard); err != nil {
				return r, fmt.Errorf("%s: %w", diskWord(d), err)
			}
		}
		return r, nil
	case backup.Discard:
		return r, unlocked(func() error { return a.Repository.Discard(ctx, access, j.Backup, true) })
	}
	return r, croft.Errorf(croft.Invalid, "this agent does not know the job %q: upgrade it", j.Kind)
}

func diskWord(d backup.Disk) string {
	if d.Volume == "" {
		return "the disk of the instance"
	}
	return "volume " + d.Name
}

// diskName is the name of a disk in a repository.
func diskName(d backup.Disk) string {
	if d.Volume == "" {
		return "disk.raw"
	}
	return "volume-" + string(d.Volume) + ".raw"
}

// copyDisks copies the disks of a snapshot into a repository.
func (a *Agent) copyDisks(ctx context.Context, j backup.Job, access backup.Access, turn *jobTurn) ([]backup.Disk,
	error) {
	s, err := a.Volumes.Volume(ctx, a.Host.ID, j.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("read the snapshot of the backup: %w", err)
	}
	if s.Snapshot == nil || s.MadeGB == 0 || s.Snapshot.Instance != j.Instance {
		return nil, croft.Errorf(croft.Conflict, "the snapshot of the backup is not taken")
	}
	progress := a.reporter(ctx, j)
	for _, d := range j.Disks {
		progress.total += d.SizeGB << 30
	}
	if j.Report.Progress != nil { // an attempt was interrupted
		err = a.Repository.Recover(ctx, access)
		if err == nil {
			err = a.unlocked(ctx, j, turn, func() error {
				return a.Repository.Discard(ctx, access, j.Backup, false)
			})
		}
	} else { // the repository changes only after that is recorded
		j.Report = progress.report()
		err = a.Backups.Report(ctx, a.Host.ID, j.ID, j.Report)
	}
	if err != nil {
		return nil, err
	}
	var disks []backup.Disk
	for _, d := range j.Disks {
		layers, err := a.captured(ctx, s, d.Volume)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", diskWord(d), err)
		}
		if err := a.unlocked(ctx, j, turn, func() (err error) {
			d, err = a.copyDisk(ctx, j, access, d, layers, progress)
			return err
		}); err != nil {
			return nil, fmt.Errorf("copy %s: %w", diskWord(d), err)
		}
		disks = append(disks, d)
	}
	if err := a.stillCaptured(ctx, j); err != nil {
		return nil, err
	}
	text, err := describe(j, disks)
	if err == nil {
		err = a.unlocked(ctx, j, turn, func() error { return a.Repository.Describe(ctx, access, j.Backup, text) })
	}
	if err == nil {
		err = a.kept(ctx, j, access, disks)
	}
	return disks, err
}

// kept returns Unavailable unless the repository has all that was copied to it. The file system or the server of the
// store may have been another one for a while.
func (a *Agent) kept(ctx context.Context, j backup.Job, access backup.Access, disks []backup.Disk) error {
	all, err := a.Repository.Kept(ctx, access, j.Backup)
	if err != nil {
		return err
	}
	for _, d := range disks {
		has := func(snapshot string) bool { return d.Restic != "" && strings.HasPrefix(snapshot, d.Restic) }
		if !slices.ContainsFunc(all, has) {
			return croft.Errorf(croft.Unavailable, "%s was copied, and is not in the store now: is its file system "+
				"mounted?", diskWord(d))
		}
	}
	return nil
}

// describe completes the description of a backup by its disks.
func describe(j backup.Job, disks []backup.Disk) ([]byte, error) {
	var b backup.Backup
	if err := json.Unmarshal(j.Describe, &b); err != nil {
		return nil, croft.Errorf(croft.Invalid, "the description of the backup is damaged: %v", err)
	}
	b.Disks, b.State, b.Done = disks, backup.Ready, time.Now().UTC()
	return json.Marshal(b)
}

// captured returns the layers that have a disk as it was at the moment of a snapshot.
func (a *Agent) captured(ctx context.Context, s croft.Volume, disk croft.VolumeID) ([]Layer, error) {
	for _, c := range a.captures(s) {
		if c.disk != disk {
			continue
		}
		tops, err := a.Hypervisor.Tops(ctx, s.Snapshot.Instance)
		if err != nil && !errors.Is(err, croft.NotFound) {
			return nil, err
		}
		var layers []Layer
		if top := tops[disk]; top != "" {
			layers, err = a.layers(top)
		} else {
			layers, err = a.topmost(c.dir)
		}
		if err != nil {
			return nil, err
		}
		at := LayerAt(layers, c.overlay)
		if at < 0 || at+1 >= len(layers) {
			return nil, croft.Errorf(croft.Conflict, "the disk has no layer of snapshot %s", s.Name)
		}
		return layers[at+1:], nil
	}
	return nil, croft.Errorf(croft.Conflict, "snapshot %s does not have the disk", s.Name)
}

// stillCaptured returns a Conflict unless the snapshot was there all the while: its removal changes the layers below.
func (a *Agent) stillCaptured(ctx context.Context, j backup.Job) error {
	s, err := a.Volumes.Volume(ctx, a.Host.ID, j.Snapshot)
	gone := croft.Errorf(croft.Conflict, "the instance was removed while it was copied")
	if errors.Is(err, croft.NotFound) || err == nil && (s.Removing || s.Instance == "") {
		return gone
	}
	if err != nil {
		return err
	}
	o, err := a.Orders.Order(ctx, a.Host.ID, j.Instance)
	if errors.Is(err, croft.NotFound) || err == nil && o.Want.Withdrawn() {
		return gone
	}
	return err
}

// copyDisk copies one disk.
func (a *Agent) copyDisk(ctx context.Context, j backup.Job, access backup.Access, d backup.Disk, layers []Layer,
	progress *reporter) (backup.Disk, error) {
	begun := progress.done.Load()
	sum := sha256.New()
	counted := &counter{}
	err := a.stalling(ctx, counted, func(ctx context.Context) error {
		r, w, err := os.Pipe() // the engine gets it as it is
		if err != nil {
			return err
		}
		widen(w)
		read := make(chan error, 1)
		go func() {
			err := a.Images.ReadDisk(ctx, layers, io.MultiWriter(&hashed{w, sum}, counted, progress))
			read <- errors.Join(err, w.Close())
		}()
		d.Restic, d.Added, err = a.Repository.Copy(ctx, access, j.Backup, diskName(d), r)
		_ = r.Close() // a disk that is still being read is not read any more
		if readErr := <-read; readErr != nil && (err == nil || !errors.Is(readErr, syscall.EPIPE)) {
			err = errors.Join(readErr, err) // the copy ends where the disk could not be read
		}
		return err
	})
	if err != nil {
		progress.done.Store(begun)
		return d, err
	}
	d.Bytes, d.SHA256 = counted.n.Load(), hex.EncodeToString(sum.Sum(nil))
	return d, nil
}

// pipeSize is how much of a disk a pipe holds.
const pipeSize = 1 << 20

// widen lets a pipe hold more, if the system permits it: a smaller one is only slower.
func widen(w *os.File) {
	if raw, err := w.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}

// hashed hashes data while it is written.
type hashed struct {
	io.Writer
	sum hash.Hash
}

func (h *hashed) Write(p []byte) (int, error) {
	var hashing sync.WaitGroup
	hashing.Go(func() { h.sum.Write(p) })
	defer hashing.Wait()
	return h.Writer.Write(p)
}

// readBack writes a disk of a backup, and compares its digest. What it wrote is good only if it returns nil.
// ErrDamaged.
func (a *Agent) readBack(ctx context.Context, j backup.Job, access backup.Access, disk int, w io.Writer) error {
	d := j.Disks[disk]
	progress := a.reporter(ctx, j)
	for i, other := range j.Disks {
		progress.total += other.Bytes
		if i < disk {
			progress.done.Add(other.Bytes)
		}
	}
	sum, counted := sha256.New(), &counter{}
	err := a.stalling(ctx, counted, func(ctx context.Context) error {
		return a.Repository.Read(ctx, access, d.Restic, diskName(d), io.MultiWriter(w, sum, counted, progress))
	})
	if err == nil && (hex.EncodeToString(sum.Sum(nil)) != d.SHA256 || counted.n.Load() != d.Bytes) {
		err = fmt.Errorf("%w: it has another digest than when it was copied", ErrDamaged)
	}
	return err
}

// counter counts the bytes that are written to it.
type counter struct{ n atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// stalling does something that counts bytes, and ends it when the count has not changed for a long time.
func (a *Agent) stalling(ctx context.Context, c *counter, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for last := int64(-1); ; {
			now := c.n.Load()
			if now == last {
				cancel(croft.Errorf(croft.Unavailable, "the store has taken or given no data for %s",
					wording.Duration(stall)))
				return
			}
			last = now
			if delay.For(ctx, stall) != nil {
				return
			}
		}
	}()
	err := do(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// reporter records the progress of a job from time to time.
type reporter struct {
	ctx   context.Context
	agent *Agent
	job   backup.Job
	total int64
	done  atomic.Int64
	last  atomic.Int64 // when it last reported, in nanoseconds since 1970
}

func (a *Agent) reporter(ctx context.Context, j backup.Job) *reporter {
	return &reporter{ctx: ctx, agent: a, job: j}
}

func (r *reporter) Write(p []byte) (int, error) {
	r.done.Add(int64(len(p)))
	now := time.Now().UnixNano()
	if last := r.last.Load(); now-last > int64(progressStep) && r.last.CompareAndSwap(last, now) {
		err := r.agent.Backups.Report(r.ctx, r.agent.Host.ID, r.job.ID, r.report())
		if errors.Is(err, croft.NotFound) {
			return 0, croft.Errorf(croft.Conflict, "the job was withdrawn")
		}
	}
	return len(p), nil
}

func (r *reporter) report() backup.Report {
	return backup.Report{Progress: &croft.Progress{Done: r.done.Load(), Total: r.total}, At: time.Now().UTC()}
}
