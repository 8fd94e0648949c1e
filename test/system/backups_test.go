package system

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"croft"
	"croft/cluster"
	"croft/compute"
	"croft/compute/backup"
	"croft/etcdstore"
	"croft/schedule"
	backuprequests "croft/schedule/backups"
)

// repository has the backups of a world in memory: each call of restic takes about a second.
type repository struct {
	mu      sync.Mutex
	disks   map[string]stored // by the snapshot
	records map[string]bool   // backups that are described
}

type stored struct {
	backup, name string
	data         []byte
}

var _ compute.Repository = gatedRepository{}

func newRepository() *repository {
	return &repository{disks: map[string]stored{}, records: map[string]bool{}}
}

// left lists what the repository has.
func (r *repository) left() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.disks {
		all = append(all, fmt.Sprintf("the repository has disk %s of backup %s", d.name, d.backup))
	}
	for id := range r.records {
		all = append(all, "the repository has the record of backup "+id)
	}
	return all
}

// gatedRepository is the repository of an agent, through its gate.
type gatedRepository struct {
	gate *gate
	*repository
}

func (g gatedRepository) Open(context.Context, backup.Access) error {
	return g.gate.do("repository Open", "", func() error { return nil })
}

func (g gatedRepository) Copy(_ context.Context, _ backup.Access, id, name string, r io.Reader) (string, int64, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return "", 0, err
	}
	snapshot, err := through(g.gate, "repository Copy", "", func() (string, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		snapshot := uuid.NewString()
		g.disks[snapshot] = stored{id, name, data}
		return snapshot, nil
	})
	return snapshot, int64(len(data)), err
}

func (g gatedRepository) Describe(_ context.Context, _ backup.Access, id string, _ []byte) error {
	return g.gate.do("repository Describe", "", func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.records[id] = true
		return nil
	})
}

func (g gatedRepository) Kept(_ context.Context, _ backup.Access, id string) ([]string, error) {
	return through(g.gate, "repository Kept", "", func() (all []string, _ error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for snapshot, d := range g.disks {
			if d.backup == id {
				all = append(all, snapshot)
			}
		}
		return all, nil
	})
}

func (g gatedRepository) Read(_ context.Context, _ backup.Access, snapshot, name string, w io.Writer) error {
	return g.gate.do("repository Read", "", func() error {
		g.mu.Lock()
		d, has := g.disks[snapshot]
		g.mu.Unlock()
		if !has || d.name != name {
			return fmt.Errorf("%w: it has no disk %s of snapshot %s", compute.ErrDamaged, name, snapshot)
		}
		_, err := io.Copy(w, bytes.NewReader(d.data))
		return err
	})
}

func (g gatedRepository) Verify(context.Context, backup.Access) error {
	return g.gate.do("repository Verify", "", func() error { return nil })
}

func (g gatedRepository) Recover(context.Context, backup.Access) error {
	return g.gate.do("repository Recover", "", func() error { return nil })
}

func (g gatedRepository) Discard(_ context.Context, _ backup.Access, id string, _ bool) error {
	return g.gate.do("repository Discard", "", func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		maps.DeleteFunc(g.disks, func(_ string, d stored) bool { return d.backup == id })
		delete(g.records, id)
		return nil
	})
}

// agentBackups is an agent's view of its jobs, through its gate.
type agentBackups struct {
	gate *gate
	compute.Backups
}

func (a agentBackups) Job(ctx context.Context, h croft.HostID, id string) (backup.Job, error) {
	return through(a.gate, "agent Job", "", func() (backup.Job, error) { return a.Backups.Job(ctx, h, id) })
}

func (a agentBackups) Report(ctx context.Context, h croft.HostID, id string, r backup.Report) error {
	return a.gate.do("agent Report", "", func() error { return a.Backups.Report(ctx, h, id, r) })
}

// backupRecords is the store under a name that differs from its method.
type backupRecords interface{ backuprequests.Store }

// backupStore is the store of a process that carries out requests for backups, through its gate.
type backupStore struct {
	gate *gate
	backupRecords
}

func (s backupStore) PutBackup(ctx context.Context, b backup.Backup) (backup.Backup, error) {
	return through(s.gate, "backups PutBackup", b.Instance, func() (backup.Backup, error) {
		return s.backupRecords.PutBackup(ctx, b)
	})
}

func (s backupStore) RemoveBackup(ctx context.Context, b backup.Backup) error {
	return s.gate.do("backups RemoveBackup", b.Instance, func() error { return s.backupRecords.RemoveBackup(ctx, b) })
}

func (s backupStore) PutJob(ctx context.Context, j backup.Job) error {
	return s.gate.do("backups PutJob", j.Instance, func() error { return s.backupRecords.PutJob(ctx, j) })
}

func (s backupStore) RemoveJob(ctx context.Context, h croft.HostID, id string) error {
	return s.gate.do("backups RemoveJob", "", func() error { return s.backupRecords.RemoveJob(ctx, h, id) })
}

// plainVault seals nothing.
type plainVault struct{}

func (plainVault) Seal(s cluster.Secret, _ string) (cluster.Sealed, error) {
	return cluster.Sealed(fmt.Sprintf("%q", s.Reveal())), nil
}

func (plainVault) Open(v cluster.Sealed, _ string) (cluster.Secret, error) {
	var text string
	_, err := fmt.Sscanf(string(v), "%q", &text)
	return cluster.NewSecret(text), err
}

// withBackups runs do as one process that carries out requests for backups, which may die in the middle.
func (w *world) withBackups(g *gate, do func(*backuprequests.Manager) error) error {
	store := w.open()
	defer func() { _ = store.Close() }()
	defer g.late.Wait()
	return w.scheduler(0, func(s *schedule.Scheduler) error {
		return do(backuprequests.New(w.backupManager(g, store, s)))
	})
}

func (w *world) backupManager(g *gate, store *etcdstore.Store, s *schedule.Scheduler) backuprequests.Manager {
	return backuprequests.Manager{Partition: store.Partition(), Store: backupStore{g, store.Backups},
		Vault: plainVault{}, Snapshots: w.volumes(g, store), Scheduler: s, Instances: store.Instances,
		Hosts:       store.Registry,
		Labels:      func(context.Context, croft.Project) (map[croft.InstanceID][]string, error) { return nil, nil },
		ForgetAfter: 5 * time.Second, Log: slog.New(slog.DiscardHandler)}
}

// startBackups adds a store of backups, and runs a process that carries out requests; if it dies, another one does.
func (w *world) startBackups() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var work sync.WaitGroup
	a := w.actor(98)
	work.Go(func() {
		for ctx.Err() == nil {
			lifetime := a.lifetime() * 10
			if w.calmed.Load() {
				lifetime = 0
			}
			g := w.gate(lifetime)
			w.keeping.Store(g)
			serving, stop := context.WithCancel(ctx)
			work.Go(func() {
				defer stop()
				select {
				case <-g.died:
				case <-serving.Done():
				}
			})
			_ = w.withBackups(g, func(m *backuprequests.Manager) error { return m.Run(serving) })
			stop()
		}
	})
	w.t.Cleanup(func() {
		cancel()
		if g := w.keeping.Load(); g != nil {
			g.resume()
		}
		work.Wait()
	})
	w.await(w.t, "the store of backups is added", func() bool {
		err := w.withBackups(w.gate(0), func(m *backuprequests.Manager) error {
			_, err := m.AddStore(w.t.Context(), backup.Store{Name: "main", Repository: "/repository"},
				backup.Access{Password: "secret"})
			return err
		})
		return err == nil || croft.KindOf(err) == croft.Conflict
	})
	w.await(w.t, "the store of backups is ready", func() bool {
		s, err := w.store.Backups.Store(w.t.Context(), "main")
		if err == nil && s.State == backup.Failed { // the host that was to open it failed: an operator tries again
			_ = w.withBackups(w.gate(0), func(m *backuprequests.Manager) error {
				_, err := m.CheckStore(w.t.Context(), "main")
				return err
			})
		}
		return err == nil && s.State == backup.Ready
	})
}

// backupNumber numbers the backups, so that no two have one name.
var backupNumber atomic.Int64

// useBackups does one random action of a user with backups.
func (a *actor) useBackups(ctx context.Context) {
	all, err := a.store.Backups.Backups(ctx, croft.DefaultProject)
	if err != nil {
		return
	}
	all = slices.DeleteFunc(all, func(b backup.Backup) bool { return !b.Usable() && a.rng.IntN(8) != 0 })
	b, some := pick(a.rng, all)
	n := a.rng.IntN(8)
	_ = a.withBackups(a.gate(a.lifetime()), func(m *backuprequests.Manager) (err error) {
		switch {
		case n < 5 || !some:
			if b, some, err = a.backUp(ctx, m); some {
				err = a.restore(ctx, m, b)
			}
		case n < 7:
			err = a.restore(ctx, m, b)
		default:
			if _, err = m.Remove(ctx, b.Project, b.Name); err == nil {
				a.tally.add("removed a backup")
			}
		}
		return err
	})
}

// restore restores a backup as a new instance, with or without its volumes, or in place.
func (a *actor) restore(ctx context.Context, m *backuprequests.Manager, b backup.Backup) error {
	if a.rng.IntN(3) != 0 {
		inst, err := m.Restore(ctx, backuprequests.RestoreRequest{Project: b.Project, Backup: b.Name,
			As: fmt.Sprintf("restored-%d", a.rng.IntN(20)), WithoutVolumes: a.rng.IntN(3) == 0})
		if err == nil {
			a.tally.add("restored a backup as a new instance")
			a.writeFirst(ctx, inst)
		}
		return err
	}
	if a.rng.IntN(3) != 0 {
		a.stop(ctx, string(b.Instance))
	}
	a.data.restoreInPlace(b)
	_, err := m.Restore(ctx, backuprequests.RestoreRequest{Project: b.Project, Backup: b.Name, InPlace: true})
	if err == nil {
		a.tally.add("restored a backup in place")
	}
	return err
}

// writeFirst lets the guest of a new instance read and write, if it soon runs.
func (a *actor) writeFirst(ctx context.Context, inst croft.Instance) {
	soon, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if a.scheduler(0, func(s *schedule.Scheduler) error { return s.Wait(soon, inst, schedule.Running, nil) }) != nil {
		return
	}
	if m := a.machineOrNil(inst.Host); m != nil {
		a.write(ctx, m, inst.ID)
	}
}

// backUp makes a backup of an instance whose guest has just written, mostly of one without disks on shared storage, and
// returns it if it is soon made.
func (a *actor) backUp(ctx context.Context, m *backuprequests.Manager) (b backup.Backup, made bool, err error) {
	st, some := a.status(ctx)
	for range 4 {
		if st.Instance.Storage != "" {
			st, some = a.status(ctx)
		}
	}
	if !some {
		return b, false, nil
	}
	if on := a.machineOrNil(st.Instance.Host); on != nil {
		a.write(ctx, on, st.Instance.ID)
	}
	name := fmt.Sprintf("b-%d", backupNumber.Add(1))
	a.data.mu.Lock()
	a.data.backups[name] = &captured{instance: st.Instance.ID, from: a.data.clock}
	a.data.mu.Unlock()
	if _, err = m.Create(ctx, backuprequests.Request{Project: st.Instance.Project, Instance: string(st.Instance.ID),
		Name: name, Store: "main"}); err != nil {
		return b, false, err
	}
	a.tally.add("ordered a backup")
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); <-look.C {
		b, err = m.Backup(ctx, st.Instance.Project, name)
		if err != nil || b.Usable() || b.State == backup.Failed {
			break
		}
	}
	if err == nil && b.Usable() {
		a.tally.add("made a backup")
	}
	return b, err == nil && b.Usable(), err
}

// restoreInPlace records that the disks of an instance may be replaced by a backup from now on.
func (l *dataLog) restoreInPlace(b backup.Backup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.backups[b.Name]
	if s == nil {
		return
	}
	l.restoring[b.Instance] = append(l.restoring[b.Instance], s)
	for _, d := range b.Disks {
		disk := diskID(d.Volume)
		if d.Volume == compute.RootDisk {
			disk = diskID(b.Instance)
		}
		l.allow(disk, l.captureOf(s, disk))
	}
}

// noteBackups notes which backups were made, so that no later data may be in them.
func (w *world) noteBackups(ctx context.Context) {
	all, err := w.store.Backups.Backups(ctx, "")
	if err != nil {
		return
	}
	w.data.mu.Lock()
	defer w.data.mu.Unlock()
	for _, b := range all {
		if s := w.data.backups[b.Name]; s != nil && s.until == 0 && len(b.Disks) > 0 {
			s.until = w.data.clock
		}
	}
}

// restored returns what the disk of an instance may have that was restored from a backup; nil: it was not. The caller
// holds l.mu.
func (l *dataLog) restored(inst croft.Instance) content {
	if inst.Backup == nil || l.backups[inst.Backup.Name] == nil {
		return nil
	}
	s := l.backups[inst.Backup.Name]
	return l.captureOf(s, diskID(s.instance))
}

// noteCopies notes what the disks had from their beginning that were made from backups for new instances.
func (w *world) noteCopies(ctx context.Context) {
	all, err := w.store.Instances.List(ctx, "")
	if err != nil {
		return
	}
	volumes, err := w.store.Volumes.List(ctx, "")
	if err != nil {
		return
	}
	l := w.data
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, st := range all {
		inst := st.Instance
		from := l.restored(inst)
		if from == nil || inst.Backup.InPlace || inst.Backup.Error != "" {
			continue
		}
		l.copied(diskID(inst.ID), from)
		for _, v := range volumes {
			if v.Instance == inst.ID && v.CopyOf != "" {
				l.copied(diskID(v.ID), l.captureOf(l.backups[inst.Backup.Name], diskID(v.CopyOf)))
			}
		}
	}
}

// copied notes what a disk had when it was made. The caller holds l.mu.
func (l *dataLog) copied(d diskID, may content) {
	if !l.copies[d] {
		l.copies[d] = true
		l.disks[d] = append([]diskState{{0, may}}, l.disks[d]...)
	}
}

// unwritten is what a disk has as its content that was restored from one to which nothing had been written: the
// simulated hypervisor then has the text of the file.
func unwritten(data string) bool {
	return data == "" || strings.HasPrefix(data, "/") || strings.HasPrefix(data, "\x00")
}

// has reports whether data is permitted.
func (c content) has(data string) bool { return c[data] || c[""] && unwritten(data) }

// removeBackups lets users remove all backups.
func (w *world) removeBackups(ctx context.Context) error {
	all, err := w.store.Backups.Backups(ctx, "")
	all = slices.DeleteFunc(all, func(b backup.Backup) bool { return b.State == backup.Removing })
	if err != nil || len(all) == 0 {
		return err
	}
	return w.withBackups(w.gate(0), func(m *backuprequests.Manager) error {
		for _, b := range all {
			if _, err := m.Remove(ctx, b.Project, b.Name); unless(err, croft.NotFound) != nil {
				return err
			}
		}
		return nil
	})
}
