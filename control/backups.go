package control

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"croft"
	"croft/compute/backup"
	"croft/control/actions"
	"croft/control/api"
	"croft/schedule"
	requests "croft/schedule/backups"
	"croft/tenant/access"
)

var backupStoreOperations = noun{Tag: "backup-stores", Object: actions.BackupStore,
	Description: "Where backups are kept, outside the hosts: repositories of restic. Operators add them.",
	Operations: []Operation{
		list(Operation{ID: "listBackupStores", At: "GET /v1/backup-stores", May: access.Reads,
			Summary: "List the backup stores that a project may use; for operators all"},
			func(ctx context.Context, c *call, _ api.InProject) (list api.BackupStoreList, err error) {
				list.Stores, err = c.backupStores(ctx, "")
				return list, err
			}),
		do(Operation{ID: "createBackupStore", At: "POST /v1/backup-stores", May: access.Operates,
			Status: http.StatusCreated, Conflict: api.NameTaken, Summary: "Add a backup store",
			Description: "A host opens the repository, or makes it if there is none; the state is `checking` until " +
				"then."},
			func(ctx context.Context, c *call, in api.NewBackupStore) (api.BackupStore, error) {
				c.regarding("", actions.BackupStore, "", in.Name)
				s := backup.Store{Name: in.Name, Repository: in.Repository, Projects: in.Projects}
				for _, p := range in.Projects {
					id, err := c.identityOf(p)
					if err = errors.Join(err, p.Check()); err != nil {
						return api.BackupStore{}, err
					}
					s.ProjectIDs = append(s.ProjectIDs, id)
				}
				access := backup.Access{Password: in.Password.Reveal(), Environment: map[string]string{}}
				for name, value := range in.Environment {
					access.Environment[name] = value.Reveal()
				}
				s, err := c.Cloud.Backups.AddStore(ctx, s, access)
				return c.backupStore(s), err
			}),
		do(Operation{ID: "getBackupStore", At: "GET /v1/backup-stores/{name}", May: access.Reads,
			Summary: "Get a backup store"},
			func(ctx context.Context, c *call, in api.BackupStoreInProject) (api.BackupStore, error) {
				found, err := c.backupStores(ctx, in.Name)
				if err == nil && len(found) == 0 {
					err = api.Hidden("backup store", in.Name)
				}
				if err != nil {
					return api.BackupStore{}, err
				}
				return found[0], nil
			}),
		do(Operation{ID: "checkBackupStore", At: "POST /v1/backup-stores/{name}/check", May: access.Operates,
			Summary:     "Verify all data of a backup store",
			Description: "A host reads the whole repository, or opens that of a store that could not be used."},
			func(ctx context.Context, c *call, in api.BackupStoreNamed) (api.BackupStore, error) {
				s, err := c.Cloud.Backups.CheckStore(ctx, in.Name)
				return c.backupStore(s), err
			}),
		do(Operation{ID: "removeBackupStore", At: "DELETE /v1/backup-stores/{name}", May: access.Operates,
			Conflict: api.InUse, Summary: "Forget a backup store without backups; the repository stays",
			Description: "With `forget`, of a store that is gone for good, its backups and schedules are removed too."},
			func(ctx context.Context, c *call, in api.BackupStoreRemoval) (nothing, error) {
				switch in.Forget {
				case "":
					return nothing{}, c.Cloud.Backups.RemoveStore(ctx, in.Name)
				case in.Name:
					return nothing{}, c.Cloud.Backups.ForgetStore(ctx, in.Name)
				}
				return nothing{}, croft.Errorf(croft.Invalid, "forget backup store %s: %q is not its name, so nothing "+
					"was done", in.Name, in.Forget)
			}),
	},
}

// backupStores returns the stores that the caller may see; name: only the one of this name.
func (c *call) backupStores(ctx context.Context, name string) ([]api.BackupStore, error) {
	shown := []api.BackupStore{}
	all, err := c.Cloud.Backups.Stores(ctx)
	if err != nil {
		return nil, err
	}
	var id croft.ProjectID
	if !c.caller.Operator() {
		if id, err = c.identityOf(c.home()); err != nil {
			return nil, err
		}
	}
	reports, err := c.reportsOfJobs(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Job != "" {
			s.Error = cmp.Or(s.Error, reports[s.Job].Waits(time.Now()))
		}
		if (c.caller.Operator() || s.Admits(c.home(), id)) && (name == "" || s.Name == name) {
			shown = append(shown, c.backupStore(s))
		}
	}
	return shown, nil
}

// backupStore returns a store as the caller sees it: only operators see where it is, and who may use it.
func (c *call) backupStore(s backup.Store) api.BackupStore {
	one := api.BackupStore{Name: s.Name, State: s.State, Created: s.Created, Checked: given(s.Checked),
		Projects: []croft.Project{}}
	if c.caller.Operator() {
		one.Repository, one.Error, one.Projects = s.Repository, s.Error, append(one.Projects, s.Projects...)
		one.Room = s.Room
	}
	return one
}

// given returns a time; nil: it is zero.
func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

var backupOperations = noun{Tag: "backups", Home: true,
	Description: "Copies of all disks of instances, in a store outside the hosts. A change answers when it is " +
		"ordered; the backup shows when its host has done it.",
	Operations: []Operation{
		list(Operation{ID: "listBackups", At: "GET /v1/backups", May: access.Reads, Summary: "List backups"},
			func(ctx context.Context, c *call, _ api.InProject) (list api.BackupList, err error) {
				all, err := c.Cloud.Backups.Backups(ctx, c.project)
				if err != nil {
					return list, err
				}
				list.Backups, err = c.backups(ctx, all)
				return list, err
			}),
		do(Operation{ID: "createBackup", At: "POST /v1/instances/{id}/backups", May: access.Changes,
			Status: http.StatusCreated, Conflict: api.NameTaken, Summary: "Back up an instance",
			Description: "Captures all its disks at one moment, by a temporary snapshot, which claims their size on " +
				"the host, and copies them to a store."},
			func(ctx context.Context, c *call, in api.NewBackup) (api.Backup, error) {
				st, err := c.find(ctx)
				if err != nil {
					return api.Backup{}, err
				}
				id, err := c.identityOf(st.Instance.Project)
				if err != nil {
					return api.Backup{}, err
				}
				b, err := c.Cloud.Backups.Create(ctx, requests.Request{Instance: string(st.Instance.ID), Name: in.Name,
					Store: in.Store, Project: st.Instance.Project, ProjectID: id})
				return c.changedBackup(ctx, cmp.Or(b.Name, in.Name), b, err)
			}),
		do(Operation{ID: "getBackup", At: "GET /v1/backups/{name}", May: access.Reads, Summary: "Get a backup"},
			func(ctx context.Context, c *call, in api.BackupNamed) (api.Backup, error) {
				b, err := c.Cloud.Backups.Backup(ctx, c.home(), in.Name)
				return c.changedBackup(ctx, in.Name, b, err)
			}),
		do(Operation{ID: "checkBackup", At: "POST /v1/backups/{name}/check", May: access.Changes,
			Summary: "Read all data of a backup, and compare its digests", Conflict: api.InUse},
			func(ctx context.Context, c *call, in api.BackupNamed) (api.Backup, error) {
				b, err := c.Cloud.Backups.Check(ctx, c.home(), in.Name)
				return c.changedBackup(ctx, in.Name, b, err)
			}),
		do(Operation{ID: "restoreBackup", At: "POST /v1/backups/{name}/restore", May: access.Changes,
			Conflict: api.InUse, Summary: "Restore a backup as a new instance, or in its stopped instance",
			Description: "A new instance has another UUID, other MAC addresses and another SSH host key; what is on " +
				"the disk, " +
				"such as the machine ID, is that of the original. In place, the host keeps the present disks until " +
				"the restored ones are complete and verified; then they are gone."}, restoreBackup),
		do(Operation{ID: "removeBackup", At: "DELETE /v1/backups/{name}", May: access.Changes, Conflict: api.InUse,
			Summary: "Remove a backup, and the data that no other backup needs"},
			func(ctx context.Context, c *call, in api.BackupNamed) (nothing, error) {
				b, err := c.Cloud.Backups.Remove(ctx, c.home(), in.Name)
				_, err = c.changedBackup(ctx, in.Name, b, err)
				return nothing{}, err
			}),
		list(Operation{ID: "listUnprotected", At: "GET /v1/unprotected-instances", May: access.Reads,
			Summary: "List the instances without a recent backup, and for how long"},
			func(ctx context.Context, c *call, in api.OverdueFilter) (list api.UnprotectedList, err error) {
				found, err := c.Cloud.Backups.Overdue(ctx, c.project, time.Duration(in.Than)*time.Second)
				list.Instances = make([]api.Unprotected, 0, len(found))
				for _, u := range found {
					if c.scope.Sees(u.Instance.Project) {
						list.Instances = append(list.Instances, api.Unprotected{Instance: u.Instance.ID,
							Name:    u.Instance.Name,
							Project: u.Instance.Project, Last: given(u.Last), Failed: c.aboutHosts(u.Failed),
							FailedAt: given(u.FailedAt), Schedule: u.Schedule})
					}
				}
				return list, err
			}),
	},
}

func restoreBackup(ctx context.Context, c *call, in api.BackupRestore) (api.Instance, error) {
	r := requests.RestoreRequest{Project: c.home(), Backup: in.Name, As: in.As, InPlace: in.InPlace,
		WithoutVolumes: in.WithoutVolumes}
	if in.Host != "" {
		if !c.caller.Operator() {
			return api.Instance{}, api.NewProblem(api.PropertyForbidden, "only operators may name the host of an "+
				"instance")
		}
		hosts, err := c.Cloud.Backups.Hosts.Hosts(ctx)
		if err != nil {
			return api.Instance{}, err
		}
		h, err := croft.HostCalled(maps.Values(hosts), in.Host)
		if err != nil {
			return api.Instance{}, err
		}
		r.Host = h.ID
	}
	inst, err := c.Cloud.Backups.Restore(ctx, r)
	if schedule.CheckName(in.Name) == nil {
		c.action.about(c.home(), actions.Object{Kind: actions.Backup, Name: in.Name})
	}
	if errors.Is(err, croft.NotFound) && !c.caller.Operator() && inst.ID == "" {
		err = api.Hidden("backup", in.Name)
	}
	if err != nil {
		return api.Instance{}, err
	}
	st, err := c.Cloud.Scheduler.View.FindByID(ctx, inst.ID)
	if err != nil {
		return api.Instance{}, err
	}
	return c.listed(st), nil
}

// changedBackup is the result of an operation on a backup.
func (c *call) changedBackup(ctx context.Context, name string, b backup.Backup, err error) (api.Backup, error) {
	if schedule.CheckName(name) == nil {
		c.action.about(c.home(), actions.Object{Kind: actions.Backup, ID: b.ID, Name: name})
	}
	if errors.Is(err, croft.NotFound) && !c.caller.Operator() && b.ID == "" {
		err = api.Hidden("backup", name)
	}
	if err != nil {
		return api.Backup{}, err
	}
	all, err := c.backups(ctx, []backup.Backup{b})
	if err == nil && len(all) == 0 {
		err = api.Hidden("backup", name)
	}
	if err != nil {
		return api.Backup{}, err
	}
	return all[0], nil
}

// reportsOfJobs returns what the hosts report about jobs, by the IDs of the jobs.
func (c *call) reportsOfJobs(ctx context.Context) (map[string]backup.Report, error) {
	jobs, err := c.Cloud.Backups.Jobs(ctx)
	reports := map[string]backup.Report{}
	for _, j := range jobs {
		reports[j.ID] = j.Report
	}
	return reports, err
}

// backups returns backups as the caller sees them.
func (c *call) backups(ctx context.Context, all []backup.Backup) ([]api.Backup, error) {
	shown := []api.Backup{}
	var reports map[string]backup.Report
	for _, b := range all {
		if !c.scope.Sees(b.Project) {
			continue
		}
		if b.Job != "" && reports == nil {
			var err error
			if reports, err = c.reportsOfJobs(ctx); err != nil {
				return nil, err
			}
		}
		report := reports[b.Job]
		one := api.Backup{Name: b.Name, ID: b.ID, Project: b.Project, Instance: b.Instance, InstanceName: b.Of,
			Store: b.Store, State: b.State, Error: c.aboutHosts(cmp.Or(b.Error, report.Waits(time.Now()))),
			ErrorKind: b.ErrorKind, SizeGB: b.SizeGB, Taken: given(b.Taken),
			Method: string(b.Method), Note: b.Note, Schedule: b.Schedule, Created: b.Created, Done: given(b.Done),
			Checked: given(b.Checked), Progress: report.Progress, Image: cmp.Or(b.Spec.ImageName, b.Spec.Image),
			Query: cmp.Or(b.Spec.Query, b.Spec.Resources.String()), Restores: len(b.Restoring),
			Disks: []api.BackupDisk{}}
		for _, d := range b.Disks {
			disk := api.BackupDisk{Volume: d.Name, SizeGB: d.SizeGB, SHA256: d.SHA256}
			if c.caller.Operator() { // what is not new tells what others have in the store
				disk.Restic, disk.Added = d.Restic, d.Added
				one.Added += d.Added
			}
			one.Disks = append(one.Disks, disk)
		}
		shown = append(shown, one)
	}
	return shown, nil
}

var backupScheduleOperations = noun{Tag: "backup-schedules", Home: true, Object: actions.BackupSchedule,
	Description: "Backups of instances at times, and which of them are kept.",
	Operations: []Operation{
		list(Operation{ID: "listBackupSchedules", At: "GET /v1/backup-schedules", May: access.Reads,
			Summary: "List backup schedules"},
			func(ctx context.Context, c *call, _ api.InProject) (list api.BackupScheduleList, err error) {
				list.Schedules = []api.BackupSchedule{}
				all, err := c.Cloud.Backups.Plans(ctx, c.project)
				all = slices.DeleteFunc(all, func(p backup.Schedule) bool { return !c.scope.Sees(p.Project) })
				if err != nil || len(all) == 0 {
					return list, err
				}
				found, err := c.Cloud.Backups.Overdue(ctx, c.project, 0)
				for _, p := range all {
					list.Schedules = append(list.Schedules, c.backupSchedule(p, found))
				}
				return list, err
			}),
		do(Operation{ID: "createBackupSchedule", At: "POST /v1/backup-schedules", May: access.Changes,
			Status: http.StatusCreated, Conflict: api.NameTaken, Summary: "Create a backup schedule"},
			func(ctx context.Context, c *call, in api.NewBackupSchedule) (api.BackupSchedule, error) {
				c.regarding(c.home(), actions.BackupSchedule, "", in.Name)
				id, err := c.identityOf(c.home())
				if err != nil {
					return api.BackupSchedule{}, err
				}
				p, err := c.Cloud.Backups.AddPlan(ctx, backup.Schedule{Project: c.home(), Name: in.Name,
					Instance: in.Instance, Labels: slices.Sorted(slices.Values(in.Labels)), Store: in.Store,
					Every: in.Every,
					At:    in.At, Keep: in.Keep}, id)
				return c.backupSchedule(p, nil), err // it has just begun
			}),
		do(Operation{ID: "getBackupSchedule", At: "GET /v1/backup-schedules/{name}", May: access.Reads,
			Summary: "Get a backup schedule"},
			func(ctx context.Context, c *call, in api.BackupScheduleNamed) (api.BackupSchedule, error) {
				p, err := c.Cloud.Backups.Plan(ctx, c.home(), in.Name)
				if err != nil {
					return api.BackupSchedule{}, c.hiddenSchedule(in.Name, err)
				}
				found, err := c.Cloud.Backups.Overdue(ctx, c.home(), 0)
				return c.backupSchedule(p, found), err
			}),
		do(Operation{ID: "removeBackupSchedule", At: "DELETE /v1/backup-schedules/{name}", May: access.Changes,
			Summary: "Remove a backup schedule; its backups stay"},
			func(ctx context.Context, c *call, in api.BackupScheduleNamed) (nothing, error) {
				return nothing{}, c.hiddenSchedule(in.Name, c.Cloud.Backups.DropPlan(ctx, c.home(), in.Name))
			}),
	},
}

func (c *call) hiddenSchedule(name string, err error) error {
	if errors.Is(err, croft.NotFound) && !c.caller.Operator() {
		return api.Hidden("backup schedule", name)
	}
	return err
}

// backupSchedule returns a schedule as the caller sees it, with its instances among the ones without a recent backup.
func (c *call) backupSchedule(p backup.Schedule, overdue []requests.Unprotected) api.BackupSchedule {
	one := api.BackupSchedule{Name: p.Name, Project: p.Project, Instance: p.Instance,
		Labels: append([]string{}, p.Labels...), Store: p.Store, Every: p.Every, At: p.At, Keep: p.Keep,
		Created: p.Created, Last: given(p.Last), Next: p.Next(), Error: c.aboutHosts(p.Error), Missed: []string{},
		Overdue: []string{}}
	for _, u := range overdue {
		if u.Schedule == p.Name && u.Instance.Project == p.Project {
			one.Overdue = append(one.Overdue, u.Instance.Name)
		}
	}
	for _, m := range p.Missed {
		one.Missed = append(one.Missed, c.aboutHosts(m))
	}
	return one
}
