// Package backups stores the stores, backups, jobs and schedules of backups in etcd. The records of backups are below
// their projects; a job is below the prefix of its host and is the order for the agent there.
package backups

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/compute"
	"croft/compute/backup"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
	"croft/etcdstore/tenants"
	requests "croft/schedule/backups"
	"croft/tenant"
)

var (
	_ compute.Backups = (*Store)(nil)
	_ requests.Store  = (*Store)(nil)
)

// Keys builds the keys of backups; it is the prefix of the partition. The list of all keys is in etcdstore.
type Keys string

func (k Keys) all() string                  { return string(k) + "backups/" }
func (k Keys) stores() string               { return k.all() + "stores/" }
func (k Keys) records() string              { return k.all() + "records/" }
func (k Keys) schedules() string            { return k.all() + "schedules/" }
func (k Keys) jobs() string                 { return k.all() + "jobs/" }
func (k Keys) jobsOn(h croft.HostID) string { return k.jobs() + string(h) + "/" }

// Of returns the prefix of the records of a project's backups.
func (k Keys) Of(p croft.Project) string { return k.records() + string(p) + "/" }

// Schedules returns the prefix of a project's schedules.
func (k Keys) Schedules(p croft.Project) string { return k.schedules() + string(p) + "/" }

// Store is the store of backups.
type Store struct {
	conn     *kv.Conn
	projects *tenants.Projects
	may      func() error
}

// New makes the store of backups, which writes records if may returns nil.
func New(c *kv.Conn, p *tenants.Projects, may func() error) *Store { return &Store{c, p, may} }

// Kept returns the sources of the charges for backups and schedules.
func Kept(c *kv.Conn) []tenants.Source {
	s := &Store{conn: c}
	return []tenants.Source{s.records().Source(), s.plans().Source()}
}

func (s *Store) keys() Keys { return Keys(s.conn.Prefix) }

func (s *Store) stores() shelf.Shelf[backup.Store] {
	return shelf.Shelf[backup.Store]{Conn: s.conn, Noun: "backup store", Prefix: s.keys().stores(),
		Stamp: func(v *backup.Store, generation, created int64) { v.Revision, v.CreateRevision = generation, created }}
}

func (s *Store) records() shelf.Shelf[backup.Backup] {
	return shelf.Shelf[backup.Backup]{Conn: s.conn, Noun: "backup", Prefix: s.keys().records(), Projects: s.projects,
		Stamp: func(v *backup.Backup, generation, created int64) { v.Revision, v.CreateRevision = generation, created },
		// Only what never grows during the life of a record: the size of its text would make its last write, after the
		// copy was made, fail for lack of quota.
		Charge: func(b backup.Backup) tenants.Charge {
			return tenants.Charge{Project: b.Project, Amounts: tenant.Amounts{tenant.CountBackups: 1,
				tenant.BackupGB: b.ChargedGB(), tenant.StoredBytes: int64(len(kv.Encode(b.Spec)))}}
		}}
}

func (s *Store) plans() shelf.Shelf[backup.Schedule] {
	return shelf.Shelf[backup.Schedule]{Conn: s.conn, Noun: "backup schedule", Prefix: s.keys().schedules(),
		Projects: s.projects,
		Stamp: func(v *backup.Schedule, generation, created int64) {
			v.Revision, v.CreateRevision = generation, created
		},
		Charge: func(p backup.Schedule) tenants.Charge {
			return tenants.Charge{Project: p.Project, Amounts: tenant.Amounts{tenant.CountBackupSchedules: 1}}
		}}
}

func (s *Store) jobs() shelf.Shelf[backup.Job] {
	return shelf.Shelf[backup.Job]{Conn: s.conn, Noun: "backup job", Prefix: s.keys().jobs(),
		Stamp: func(v *backup.Job, generation, created int64) { v.Revision, v.CreateRevision = generation, created }}
}

// Stores implements requests.Store.
func (s *Store) Stores(ctx context.Context) ([]backup.Store, error) { return s.stores().List(ctx, 0) }

// Store implements requests.Store.
func (s *Store) Store(ctx context.Context, name string) (backup.Store, error) {
	if strings.Contains(name, "/") {
		return backup.Store{}, s.stores().NotFound(ctx, name)
	}
	return s.stores().Find(ctx, name)
}

// PutStore implements requests.Store.
func (s *Store) PutStore(ctx context.Context, v backup.Store) (backup.Store, error) {
	if err := s.may(); err != nil {
		return v, err
	}
	return s.stores().Set(ctx, v.Name, v.Revision, v)
}

// RemoveStore implements requests.Store.
func (s *Store) RemoveStore(ctx context.Context, name string) error {
	return s.stores().Remove(ctx, name, nil, func(_ backup.Store, revision int64) (shelf.Guard, error) {
		guard := shelf.Guard{If: []clientv3.Cmp{kv.NoneSince(s.keys().records(), revision),
			kv.NoneSince(s.keys().schedules(), revision)}}
		used := 0
		err := s.records().Each(ctx, revision, func(b backup.Backup) error {
			if b.Store == name {
				used++
			}
			return nil
		})
		if err == nil {
			err = s.plans().Each(ctx, revision, func(p backup.Schedule) error {
				if p.Store == name {
					used++
				}
				return nil
			})
		}
		if err == nil && used > 0 {
			err = croft.Errorf(croft.Conflict, "backup store %s is used by %d backups and schedules: remove those "+
				"first; what is in the repository stays", name, used)
		}
		return guard, err
	})
}

// key returns the name of the record of a project's backup or schedule on its shelf.
func key(project croft.Project, name string) string { return string(project) + "/" + name }

// below returns a shelf with the records of one project; an empty project has none.
func below[T any](s shelf.Shelf[T], project croft.Project) shelf.Shelf[T] {
	s.Prefix += string(project) + "/"
	return s
}

// Backups implements requests.Store.
func (s *Store) Backups(ctx context.Context, project croft.Project) (all []backup.Backup, err error) {
	if project == "" {
		all, err = s.records().List(ctx, 0)
	} else if err = project.Check(); err == nil {
		all, err = below(s.records(), project).List(ctx, 0)
	}
	slices.SortStableFunc(all, func(a, b backup.Backup) int { return a.Created.Compare(b.Created) })
	return all, err
}

// Backup implements requests.Store.
func (s *Store) Backup(ctx context.Context, project croft.Project, name string) (backup.Backup, error) {
	if project.Check() != nil || strings.Contains(name, "/") {
		return backup.Backup{}, croft.Errorf(croft.NotFound, "there is no backup %.80q; `croft backup list` shows all",
			name)
	}
	b, err := s.records().Find(ctx, key(project, name))
	if errors.Is(err, croft.NotFound) {
		err = croft.Errorf(croft.NotFound, "there is no backup %.80q; `croft backup list` shows all", name)
	}
	return b, err
}

// PutBackup implements requests.Store.
func (s *Store) PutBackup(ctx context.Context, b backup.Backup) (backup.Backup, error) {
	if err := errors.Join(s.may(), b.Project.Check()); err != nil {
		return b, err
	}
	records := s.records()
	if b.Revision == 0 {
		records.Guard = func(context.Context, backup.Backup, *backup.Backup) (shelf.Guard, error) {
			// existence is enough: a store of the same name is only ever used as recorded there
			return shelf.Guard{If: []clientv3.Cmp{kv.Exists(s.keys().stores() + b.Store)}}, nil
		}
	}
	return records.Set(ctx, key(b.Project, b.Name), b.Revision, b)
}

// RemoveBackup implements requests.Store.
func (s *Store) RemoveBackup(ctx context.Context, b backup.Backup) error {
	err := s.records().Remove(ctx, key(b.Project, b.Name), &b.Revision, nil)
	if errors.Is(err, croft.NotFound) {
		return nil
	}
	return err
}

// Plans implements requests.Store.
func (s *Store) Plans(ctx context.Context, project croft.Project) ([]backup.Schedule, error) {
	if project == "" {
		return s.plans().List(ctx, 0)
	}
	if err := project.Check(); err != nil {
		return nil, err
	}
	return below(s.plans(), project).List(ctx, 0)
}

// Plan implements requests.Store.
func (s *Store) Plan(ctx context.Context, project croft.Project, name string) (backup.Schedule, error) {
	missing := croft.Errorf(croft.NotFound, "there is no backup schedule %.80q; `croft backup schedule list` shows all",
		name)
	if project.Check() != nil || strings.Contains(name, "/") {
		return backup.Schedule{}, missing
	}
	p, err := s.plans().Find(ctx, key(project, name))
	if errors.Is(err, croft.NotFound) {
		err = missing
	}
	return p, err
}

// PutPlan implements requests.Store.
func (s *Store) PutPlan(ctx context.Context, p backup.Schedule) (backup.Schedule, error) {
	if err := errors.Join(s.may(), p.Project.Check()); err != nil {
		return p, err
	}
	return s.plans().Set(ctx, key(p.Project, p.Name), p.Revision, p)
}

// RemovePlan implements requests.Store.
func (s *Store) RemovePlan(ctx context.Context, p backup.Schedule) error {
	return s.plans().Remove(ctx, key(p.Project, p.Name), &p.Revision, nil)
}

// Jobs implements requests.Store.
func (s *Store) Jobs(ctx context.Context) ([]backup.Job, error) { return s.jobs().List(ctx, 0) }

// PutJob implements requests.Store.
func (s *Store) PutJob(ctx context.Context, j backup.Job) error {
	_, err := s.jobs().Set(ctx, string(j.Host)+"/"+j.ID, 0, j)
	if errors.Is(err, croft.Conflict) {
		return nil // another process wrote it
	}
	return err
}

// RemoveJob implements requests.Store.
func (s *Store) RemoveJob(ctx context.Context, host croft.HostID, id string) error {
	err := s.jobs().Remove(ctx, string(host)+"/"+id, nil, nil)
	if errors.Is(err, croft.NotFound) {
		return nil
	}
	return err
}

// Watch implements requests.Store.
func (s *Store) Watch(ctx context.Context, changed func()) error {
	return s.conn.Follow(ctx, s.keys().all(), changed, func(*mvccpb.KeyValue, bool) { changed() })
}

// WatchJobs implements compute.Backups.
func (s *Store) WatchJobs(ctx context.Context, host croft.HostID, wake func(id string)) error {
	return s.conn.Follow(ctx, s.keys().jobsOn(host), func() {}, func(stored *mvccpb.KeyValue, _ bool) {
		wake(kv.Last(stored.Key))
	})
}

// Job implements compute.Backups.
func (s *Store) Job(ctx context.Context, host croft.HostID, id string) (backup.Job, error) {
	if strings.Contains(id, "/") {
		return backup.Job{}, croft.Errorf(croft.NotFound, "there is no such job")
	}
	return s.jobs().Find(ctx, string(host)+"/"+id)
}

// Report implements compute.Backups.
func (s *Store) Report(ctx context.Context, host croft.HostID, id string, r backup.Report) error {
	if strings.Contains(id, "/") {
		return croft.Errorf(croft.NotFound, "there is no such job")
	}
	_, err := s.jobs().Change(ctx, string(host)+"/"+id, nil, func(j backup.Job, there bool) (backup.Job, error) {
		switch {
		case !there:
			return j, croft.Errorf(croft.NotFound, "the job was withdrawn")
		case j.Report.Done:
			return j, shelf.ErrSame
		}
		j.Report = r
		return j, nil
	})
	return err
}
