// Package backup has the nouns of backups: stores, backups, jobs and schedules, and what is calculated from them. A
// backup is a copy of all disks of an instance at one moment in a repository of restic outside the hosts.
package backup

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/cluster"
	"croft/internal/lazyregexp"
	"croft/internal/wording"
)

// State is the state of a store or a backup in one word.
type State string

// The states. A store is checking, ready or failed.
const (
	Creating State = "creating" // its host takes a snapshot and copies the disks
	Checking State = "checking" // a host verifies it
	Ready    State = "ready"
	Failed   State = "failed"  // there is no copy, for the reason in Error
	Damaged  State = "damaged" // a host could not read all of it
	Removing State = "removing"
	// a store that an operator has given up: its backups and schedules are removed from the cloud, and then it
	Forgotten State = "forgotten"
)

// Store is where backups are kept: a repository of restic. The name identifies it.
type Store struct {
	Name       string          `json:"name"`
	Repository string          `json:"repository"`         // in the form of restic: a directory, sftp:, s3:, rest: ...
	Projects   []croft.Project `json:"projects,omitempty"` // that may use it; empty: all
	// the IDs of Projects when they were named, in their order; empty ones have no record
	ProjectIDs []croft.ProjectID `json:"project_ids,omitempty"`
	Secret     cluster.Sealed    `json:"secret"` // an Access, sealed
	State      State             `json:"state"`
	Error      string            `json:"error,omitempty"` // why it cannot be used, in one sentence
	Host       croft.HostID      `json:"host,omitempty"`  // that checks it
	Job        string            `json:"job,omitempty"`   // of the check in progress
	Created    time.Time         `json:"created"`
	Checked    time.Time         `json:"checked,omitzero"` // when a host last verified it
	Room       *Room             `json:"room,omitempty"`   // of its repository; nil: no host has read it

	Revision       int64 `json:"-"` // version of the record, compared by each change
	CreateRevision int64 `json:"-"` // identifies the record
}

// Room is the space of the file system of a repository that is a directory.
type Room struct {
	Free int64     `json:"free_bytes"` // that programs can still write, in bytes
	Size int64     `json:"size_bytes"` // of the file system, in bytes
	At   time.Time `json:"at"`         // when a host read it, after its last job for the store
}

// Access is what a host needs to use a store. It is never printed.
type Access struct {
	Repository  string            `json:"repository"`
	Password    string            `json:"password"`
	Environment map[string]string `json:"environment,omitempty"` // of restic, such as AWS_ACCESS_KEY_ID
}

// About returns the text that binds the sealed secret of a store to its record.
func (s Store) About(p croft.PartitionID) string {
	return strings.Join([]string{"backup store", string(p), s.Name, s.Repository}, "\x00")
}

// Admits reports whether a project may use the store.
func (s Store) Admits(project croft.Project, id croft.ProjectID) bool {
	for i, p := range s.Projects {
		if p == project && s.ProjectIDs[i] == id {
			return true
		}
	}
	return len(s.Projects) == 0
}

// backends are the prefixes of repositories that restic knows and croft allows: rclone: would run a program.
var backends = []string{"sftp:", "s3:", "rest:", "b2:", "azure:", "gs:", "swift:"}

// CheckRepository returns Invalid if restic cannot have a repository at an address, or if it contains a password, which
// would be shown.
func CheckRepository(repository string) error {
	ok := strings.HasPrefix(repository, "/") && len(repository) > 1
	for _, b := range backends {
		ok = ok || strings.HasPrefix(repository, b) && len(repository) > len(b)
	}
	switch {
	case !ok:
		return croft.Errorf(croft.Invalid, "%.80q is no repository: give a directory that all hosts mount, such as "+
			"/mnt/backups, or an address as restic has it, such as sftp:user@host:/dir, s3:https://host/bucket or "+
			"rest:https://host/", repository)
	case len(repository) > 1024 || strings.ContainsAny(repository, "\x00\n\r"):
		return croft.Errorf(croft.Invalid, "the address of the repository is too long, or has line breaks")
	}
	_, address, _ := strings.Cut(repository, ":")
	if u, err := url.Parse(address); err == nil && u.User != nil {
		if _, has := u.User.Password(); has {
			return croft.Errorf(croft.Invalid, "the address of the repository contains a password, which lists "+
				"would show: give it in the environment, such as RESTIC_REST_PASSWORD")
		}
	}
	return nil
}

// variable is the form of names of variables that may be given to restic: credentials of its backends.
var variable = lazyregexp.New(`^(AWS|B2|AZURE|GOOGLE|OS|ST|RESTIC_REST)_[A-Z0-9_]{1,60}$`)

// CheckEnvironment returns Invalid if a variable is none that gives restic access to a backend.
func CheckEnvironment(all map[string]string) error {
	for name, value := range all {
		if !variable.MatchString(name) {
			return croft.Errorf(croft.Invalid, "%.80q is no variable for the access to a repository: give AWS_*, "+
				"B2_*, AZURE_*, GOOGLE_*, OS_*, ST_*, RESTIC_REST_USERNAME or RESTIC_REST_PASSWORD", name)
		}
		if strings.ContainsAny(value, "\x00\n\r") || len(value) > 4096 {
			return croft.Errorf(croft.Invalid, "the value of %s is too long, or has line breaks", name)
		}
	}
	return nil
}

// Bounds of what tenants store.
const (
	// MaxDisks is the maximum number of disks of a backup.
	MaxDisks = croft.MaxAttached + 1
	// SnapshotPrefix is the beginning of the names of the temporary snapshots that backups are made from.
	SnapshotPrefix = "backup-"
)

// Backup is the record of a copy of the disks of an instance. It outlives the instance and its host.
type Backup struct {
	ID       string           `json:"id"` // its UUID
	Project  croft.Project    `json:"project"`
	Name     string           `json:"name"` // unique in the project
	Store    string           `json:"store"`
	Instance croft.InstanceID `json:"instance"`
	Of       string           `json:"of"`             // name of the instance at that time
	Host     croft.HostID     `json:"host,omitempty"` // that makes, verifies or removes it
	SizeGB   int64            `json:"size_gb"`        // of all disks, charged to the project
	State    State            `json:"state"`
	Error    string           `json:"error,omitempty"`
	// of Error, if the backup failed; empty: unavailable
	ErrorKind croft.Kind `json:"error_kind,omitempty"`
	Job       string     `json:"job,omitempty"` // in progress
	// the copy is ordered, so the store may have data of it
	Copying bool `json:"copying,omitempty"`
	// it failed, and the store has no data of it
	Nothing bool `json:"nothing,omitempty"`
	// the temporary snapshot, until it is removed
	Snapshot croft.VolumeID `json:"snapshot,omitempty"`
	Taken    time.Time      `json:"taken,omitzero"` // the moment that the disks are of
	Method   croft.Method   `json:"method,omitempty"`
	Note     string         `json:"note,omitempty"` // why the guest was not quiesced
	Disks    []Disk         `json:"disks,omitempty"`
	Spec     croft.Spec     `json:"spec"` // of the instance, without keys of its SSH server and its cluster
	Schedule string         `json:"schedule,omitempty"`
	Created  time.Time      `json:"created"`
	Done     time.Time      `json:"done,omitzero"`    // when the copy was complete, or failed
	Checked  time.Time      `json:"checked,omitzero"` // when a host last read all of it
	// instances that are being restored from it, and when the last one was asked for
	Restoring []croft.InstanceID `json:"restoring,omitempty"`
	// the generations that they had before; the order to restore has a higher one
	Before   map[croft.InstanceID]int64 `json:"before,omitempty"`
	Asked    time.Time                  `json:"asked,omitzero"`
	Progress *croft.Progress            `json:"-"` // of its job; derived

	Revision       int64 `json:"-"`
	CreateRevision int64 `json:"-"`
}

// ChargedGB is what the project is charged for, in GiB.
func (b Backup) ChargedGB() int64 {
	if b.Nothing {
		return 0
	}
	return b.SizeGB
}

// Usable reports whether an instance can be restored from the backup.
func (b Backup) Usable() bool { return len(b.Disks) > 0 && b.State != Removing && b.State != Damaged }

// Disk is one disk of a backup.
type Disk struct {
	Volume croft.VolumeID `json:"volume,omitempty"` // empty: the root disk
	Name   string         `json:"name,omitempty"`   // of the volume
	SizeGB int64          `json:"size_gb"`
	// the snapshot of restic that has the disk, and what it has
	Restic string `json:"restic,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	Added  int64  `json:"added,omitempty"` // bytes that were new to the repository
}

// MaxRestoring is the maximum number of instances that are restored from a backup at once.
const MaxRestoring = 16

// RestoreJob returns the ID of the job to restore an instance by an order of a generation.
func RestoreJob(id croft.InstanceID, generation int64) string {
	return fmt.Sprintf("%s-%d", id, generation)
}

// Kind is what a job does.
type Kind string

// The kinds of jobs.
const (
	Open    Kind = "open"    // open the repository, or make it
	Copy    Kind = "copy"    // copy the disks of a snapshot
	Verify  Kind = "verify"  // read all data of a backup or, without disks, of the repository
	Discard Kind = "discard" // remove a backup from the repository
	Restore Kind = "restore" // make disks of a backup
)

// Job is an order for the agent of a host to use a store. Only that agent writes Report.
type Job struct {
	ID       string           `json:"id"`
	Host     croft.HostID     `json:"host"`
	Kind     Kind             `json:"kind"`
	Store    string           `json:"store"`
	Backup   string           `json:"backup,omitempty"` // its ID
	Instance croft.InstanceID `json:"instance,omitempty"`
	Snapshot croft.VolumeID   `json:"snapshot,omitempty"` // of Copy
	Disks    []Disk           `json:"disks,omitempty"`
	Describe []byte           `json:"describe,omitempty"` // the record of the backup in JSON, kept in the repository
	Secret   []byte           `json:"secret"`             // an Access, sealed for the host alone
	Created  time.Time        `json:"created"`
	Report   Report           `json:"report,omitzero"`

	Revision       int64 `json:"-"`
	CreateRevision int64 `json:"-"`
}

// About returns the text that binds the sealed secret of a job to the job.
func (j Job) About() string {
	return strings.Join([]string{"backup job", string(j.Host), j.ID, string(j.Kind), j.Store, j.Backup}, "\x00")
}

// Report is what the agent did about a job.
type Report struct {
	Done     bool            `json:"done,omitempty"`
	Error    string          `json:"error,omitempty"` // in one sentence
	Damaged  bool            `json:"damaged,omitempty"`
	Progress *croft.Progress `json:"progress,omitempty"`
	Disks    []Disk          `json:"disks,omitempty"`   // of Copy, complete
	Nothing  bool            `json:"nothing,omitempty"` // of Copy that failed: the store has no data of it
	// since when another process has locked the repository; zero: it was not locked at the last attempt
	Locked time.Time `json:"locked,omitzero"`
	At     time.Time `json:"at,omitzero"`
	Room   *Room     `json:"room,omitempty"` // after the job; nil: the repository is no directory, or is not there
}

// Limits of the time for which a job is reported to wait for a repository.
const (
	briefWait   = time.Minute     // shorter waits are not reported
	lockedSince = 2 * time.Minute // an agent whose last report is older may have the repository by now
)

// Waits returns why a job does not go on, in one sentence; empty: it does.
func (r Report) Waits(now time.Time) string {
	if r.Done || r.Locked.IsZero() || now.Sub(r.Locked) < briefWait || now.Sub(r.At) > lockedSince {
		return ""
	}
	return fmt.Sprintf("waiting since %s UTC: another process, such as a backup in progress, has locked the repository",
		r.Locked.UTC().Format("2006-01-02 15:04"))
}

// Schedule makes backups of instances at times, and removes old ones.
type Schedule struct {
	Project   croft.Project   `json:"project"`
	ProjectID croft.ProjectID `json:"project_id,omitempty"` // empty: the project has no record
	Name      string          `json:"name"`
	Instance  string          `json:"instance,omitempty"` // name of an instance; empty: those that Filters choose
	Labels    []string        `json:"labels,omitempty"`   // name=value or name, all of which an instance must have
	Store     string          `json:"store,omitempty"`
	// how often, in seconds; 0: once a day at At
	Every   int64     `json:"every,omitempty"`
	At      string    `json:"at,omitempty"` // HH:MM, UTC
	Keep    Keep      `json:"keep,omitzero"`
	Created time.Time `json:"created"`
	Last    time.Time `json:"last,omitzero"` // when it last was due and made backups
	Error   string    `json:"error,omitempty"`
	Missed  []string  `json:"missed,omitempty"` // the instances of which the last run made none, with the reason

	Revision       int64 `json:"-"`
	CreateRevision int64 `json:"-"`
}

// Keep says which backups a schedule keeps of each instance. The zero value keeps all.
type Keep struct {
	Last int `json:"last,omitempty" minimum:"0" maximum:"10000"` // the newest
	// the newest of each of the last hours that have one
	Hourly int `json:"hourly,omitempty" minimum:"0" maximum:"10000"`
	Daily  int `json:"daily,omitempty" minimum:"0" maximum:"10000"`  // likewise of each day
	Weekly int `json:"weekly,omitempty" minimum:"0" maximum:"10000"` // likewise of each week
	// likewise of each month
	Monthly int `json:"monthly,omitempty" minimum:"0" maximum:"10000"`
}

// Next returns the time at which a schedule is due after its last run.
func (s Schedule) Next() time.Time {
	after := s.Last
	if after.IsZero() {
		after = s.Created
	}
	if s.Every > 0 {
		if s.Last.IsZero() {
			return s.Created
		}
		return after.Add(time.Duration(s.Every) * time.Second)
	}
	at, _ := time.Parse("15:04", s.At)
	next := time.Date(after.Year(), after.Month(), after.Day(), at.Hour(), at.Minute(), 0, 0, time.UTC)
	if !next.After(after) {
		next = next.AddDate(0, 0, 1)
	}
	return next
}

// Covers reports whether the schedule makes backups of an instance of its project that has these labels.
func (s Schedule) Covers(inst croft.Instance, labels []string) bool {
	if s.Instance != "" {
		return s.Instance == inst.Name || s.Instance == string(inst.ID)
	}
	return !slices.ContainsFunc(s.Labels, func(l string) bool { return !slices.Contains(labels, l) })
}

// Allowed is how old the newest backup of an instance may be that the schedule makes backups of: half as long again as
// its interval.
func (s Schedule) Allowed() time.Duration {
	interval := 24 * time.Hour
	if s.Every > 0 {
		interval = time.Duration(s.Every) * time.Second
	}
	return interval + interval/2
}

// minimumEvery is the least interval of a schedule.
const minimumEvery = 5 * time.Minute

// Check returns Invalid if a schedule has no times, or two.
func (s Schedule) Check() error {
	_, err := time.Parse("15:04", s.At)
	switch {
	case (s.Every == 0) == (s.At == ""):
		return croft.Errorf(croft.Invalid, "schedule %s: give either an interval or a time of day", s.Name)
	case s.At != "" && (err != nil || len(s.At) != 5):
		return croft.Errorf(croft.Invalid, "schedule %s: %.20q is no time of day: give it as 03:30, in UTC", s.Name,
			s.At)
	case s.At == "" && (s.Every < int64(minimumEvery/time.Second) || s.Every > 366*24*3600):
		return croft.Errorf(croft.Invalid, "schedule %s: the interval is from %s to 366 days", s.Name,
			wording.Duration(minimumEvery))
	case s.Instance != "" && len(s.Labels) > 0:
		return croft.Errorf(croft.Invalid, "schedule %s: give an instance or labels, not both", s.Name)
	}
	return nil
}

// Expired returns the backups that a retention policy does not keep, as `restic forget` chooses: of each of the last
// hours, days, weeks and months that have a backup, the newest is kept. It is pure. Only usable backups count, and
// the ones that are being made or failed are not returned.
func (k Keep) Expired(all []Backup) (expired []Backup) {
	if k == (Keep{}) {
		return nil
	}
	var done []Backup
	for _, b := range all {
		if b.Usable() && b.State == Ready {
			done = append(done, b)
		}
	}
	slices.SortFunc(done, Newest)
	rules := []struct {
		left   int
		period func(time.Time) string
		last   string
	}{
		{left: k.Last, period: nil},
		{left: k.Hourly, period: func(t time.Time) string { return t.Format("2006-01-02 15") }},
		{left: k.Daily, period: func(t time.Time) string { return t.Format(time.DateOnly) }},
		{left: k.Weekly, period: week},
		{left: k.Monthly, period: func(t time.Time) string { return t.Format("2006-01") }},
	}
	for _, b := range done {
		kept := false
		for i := range rules {
			r := &rules[i]
			if r.left <= 0 {
				continue
			}
			period := b.ID
			if r.period != nil {
				period = r.period(b.Taken.UTC())
			}
			if period != r.last {
				r.left--
				r.last, kept = period, true
			}
		}
		if !kept {
			expired = append(expired, b)
		}
	}
	return expired
}

func week(t time.Time) string {
	year, n := t.ISOWeek()
	return time.Date(year, 1, 1, n, 0, 0, 0, time.UTC).Format(time.DateTime)
}

// Newest compares backups by the moment that they are of, the newest first.
func Newest(a, b Backup) int {
	return cmp.Or(b.Taken.Compare(a.Taken), b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
}
