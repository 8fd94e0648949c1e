package api

import (
	"time"

	"croft"
	"croft/compute/backup"
)

// BackupStore is where backups are kept, as people see it.
type BackupStore struct {
	Name string `json:"name"` // unique in the cloud
	// Address of the repository, as restic has it; empty for callers who are not operators.
	Repository string `json:"repository"`
	// The projects that may use it; empty: all, or the caller is not an operator.
	Projects []croft.Project `json:"projects"`
	State    backup.State    `json:"state" enum:"checking,ready,failed,damaged,forgotten"` // whether it can be used
	// Why it cannot be used; empty for callers who are not operators.
	Error   string     `json:"error"`
	Created time.Time  `json:"created"`           // when it was added
	Checked *time.Time `json:"checked,omitempty"` // when a host last verified it; left out: never
	// The space of the file system with the repository, for operators; left out: it is no directory, or no host has
	// read it.
	Room *backup.Room `json:"room,omitempty"`
}

// BackupStoreList has stores.
type BackupStoreList struct {
	Stores []BackupStore `json:"stores"` // by name
	More
}

// BackupStoreNamed names a store.
type BackupStoreNamed struct {
	Name string `path:"name" json:"-"` // name of the store
}

// BackupStoreRemoval removes a store.
type BackupStoreRemoval struct {
	BackupStoreNamed
	// Of a store that is gone for good: the name of the store once more, to remove its backups and schedules, of all
	// projects, from the cloud too. What the repository contains stays there.
	Forget string `query:"forget" maxLength:"63"`
}

// BackupStoreInProject names a store for a caller in a project.
type BackupStoreInProject struct {
	BackupStoreNamed
	InProject
}

// NewBackupStore is the input of createBackupStore.
type NewBackupStore struct {
	Name string `json:"name" maxLength:"63" minLength:"1"` // unique in the cloud
	// A directory that all hosts mount, or an address as restic has it: sftp:, s3:, rest:, b2:, azure:, gs:, swift:.
	Repository string `json:"repository" maxLength:"1024" minLength:"1"`
	// Of the repository, which is made if it is missing. It is sealed, and never shown.
	Password Given `json:"password" maxLength:"1024" minLength:"1"`
	// Credentials of the backend, such as AWS_ACCESS_KEY_ID. They are sealed, and never shown.
	Environment map[string]Given `json:"environment,omitempty" maxProperties:"16"`
	// The projects that may use it; left out: all.
	Projects []croft.Project `json:"projects,omitempty" maxItems:"100"`
}

// Backup is a copy of the disks of an instance, as people see it.
type Backup struct {
	Name     string           `json:"name"`                   // unique in the project
	ID       string           `json:"id" format:"uuid"`       // its UUID
	Project  croft.Project    `json:"project"`                // the project that it belongs to
	Instance croft.InstanceID `json:"instance" format:"uuid"` // UUID of the instance, which may have ended
	// Name of the instance when the backup was made.
	InstanceName string `json:"instance_name"`
	Store        string `json:"store"` // name of the store
	// State in one word; damaged: a host could not read all of it.
	State backup.State `json:"state" enum:"creating,checking,ready,failed,damaged,removing"`
	Error string       `json:"error"` // why it failed, or is not verified or removed yet
	// Kind of the error of a backup that failed, such as no capacity.
	ErrorKind croft.Kind `json:"error_kind,omitempty"`
	SizeGB    int64      `json:"size_gb"` // of all disks, in GiB: charged to the project as BACKUP_GB
	// Bytes that were new to the store when it was made. For operators: it tells what other projects have in the store.
	Added int64 `json:"added,omitempty"`
	// The moment that the disks are of; left out: not known yet.
	Taken *time.Time `json:"taken,omitempty"`
	// How the disks were captured: quiesced (the guest agent froze the file systems meanwhile), disks (of a running
	// guest without that: as after a power failure), or off; left out: not yet.
	Method   string       `json:"method,omitempty" enum:"quiesced,disks,off"`
	Note     string       `json:"note,omitempty"`     // why the guest was not quiesced
	Disks    []BackupDisk `json:"disks"`              // once it is complete
	Schedule string       `json:"schedule,omitempty"` // the schedule that made it; left out: none
	Created  time.Time    `json:"created"`            // when it was requested
	Done     *time.Time   `json:"done,omitempty"`     // when the copy was complete, or failed
	Checked  *time.Time   `json:"checked,omitempty"`  // when a host last read all its data; left out: never
	// Bytes that its host has read of the ones that it has to read; left out: it does not work on it.
	Progress *croft.Progress `json:"progress,omitempty"`
	Image    string          `json:"image"`     // name of the image of the instance
	Query    string          `json:"query"`     // what the instance asked for
	Restores int             `json:"restoring"` // how many instances are being restored from it
}

// BackupDisk is one disk of a backup.
type BackupDisk struct {
	Volume string `json:"volume"`          // name of the volume; empty: the disk of the instance
	SizeGB int64  `json:"size_gb"`         // in GiB
	SHA256 string `json:"sha256"`          // digest of its content
	Added  int64  `json:"added,omitempty"` // bytes that were new to the store; for operators
	// The snapshot of restic that has it, with which `restic dump` restores it without croft; for operators.
	Restic string `json:"restic,omitempty"`
}

// BackupList has backups.
type BackupList struct {
	Backups []Backup `json:"backups"` // the oldest first
	More
}

// BackupNamed names a backup.
type BackupNamed struct {
	InProject

	Name string `path:"name" json:"-"` // name of the backup
}

// NewBackup is the input of createBackup.
type NewBackup struct {
	InstanceNamed

	Name  string `json:"name,omitempty" maxLength:"63"`  // unique in the project; left out: one with the time
	Store string `json:"store,omitempty" maxLength:"63"` // left out: the only one that the project may use
}

// BackupRestore is the input of restoreBackup.
type BackupRestore struct {
	BackupNamed

	// Name of a new instance; left out: with in_place.
	As string `json:"as,omitempty" maxLength:"63"`
	// Restore it in its instance, which must be stopped.
	InPlace bool `json:"in_place,omitempty"`
	// Name or UUID of the host of a new instance. Only operators may give it.
	Host string `json:"host,omitempty" maxLength:"255"`
	// Restore the instance's own disk only, though the backup has volumes too.
	WithoutVolumes bool `json:"without_volumes,omitempty"`
}

// BackupSchedule makes backups at times, and removes old ones, as people see it.
type BackupSchedule struct {
	Name     string        `json:"name"`           // unique in the project
	Project  croft.Project `json:"project"`        // the project that it belongs to
	Instance string        `json:"instance"`       // name or UUID of the instance; empty: those with Labels
	Labels   []string      `json:"labels"`         // name=value, which an instance must all have; empty: all instances
	Store    string        `json:"store"`          // name of the store
	Every    int64         `json:"every"`          // interval in seconds; 0: once a day
	At       string        `json:"at"`             // time of the day as HH:MM in UTC; empty: at intervals
	Keep     backup.Keep   `json:"keep"`           // which backups of each instance it keeps
	Created  time.Time     `json:"created"`        // when it was added
	Last     *time.Time    `json:"last,omitempty"` // when it last ran; left out: never
	Next     time.Time     `json:"next"`           // when it is due
	Error    string        `json:"error"`          // what the last run could not order
	Missed   []string      `json:"missed"`         // the instances of which the last run ordered none, with the reason
	// The instances whose newest backup is older than one and a half intervals of this schedule, by name.
	Overdue []string `json:"overdue"`
}

// BackupScheduleList has schedules.
type BackupScheduleList struct {
	Schedules []BackupSchedule `json:"schedules"` // by name
	More
}

// BackupScheduleNamed names a schedule.
type BackupScheduleNamed struct {
	InProject

	Name string `path:"name" json:"-"` // name of the schedule
}

// NewBackupSchedule is the input of createBackupSchedule.
type NewBackupSchedule struct {
	InProject

	Name string `json:"name" maxLength:"63" minLength:"1"` // unique in the project
	// Name or UUID of an instance; left out: those with all of Labels.
	Instance string   `json:"instance,omitempty" maxLength:"63"`
	Labels   []string `json:"labels,omitempty" maxItems:"16" maxLength:"300"` // name=value
	Store    string   `json:"store,omitempty" maxLength:"63"`                 // left out: the only one
	// Interval in seconds.
	Every int64       `json:"every,omitempty" minimum:"300" maximum:"31622400"`
	At    string      `json:"at,omitempty" maxLength:"5"` // time of the day as HH:MM in UTC, instead of an interval
	Keep  backup.Keep `json:"keep,omitzero"`              // left out: all backups
}

// OverdueFilter is the input of listUnprotected.
type OverdueFilter struct {
	InProject

	// Seconds; an instance whose newest backup is older is listed. Left out: one and a half intervals of the strictest
	// schedule that makes backups of the instance; without a schedule a day.
	Than int64 `query:"than" json:"-" minimum:"60" maximum:"315360000"`
}

// Unprotected is an instance without a recent backup.
type Unprotected struct {
	Instance croft.InstanceID `json:"instance" format:"uuid"` // its UUID
	Name     string           `json:"name"`                   // its name
	Project  croft.Project    `json:"project"`                // the project that it belongs to
	Last     *time.Time       `json:"last,omitempty"`         // of its newest backup; left out: it has none
	Failed   string           `json:"failed"`                 // why the newest attempt since then failed
	FailedAt *time.Time       `json:"failed_at,omitempty"`    // when that failed
	// The schedule that should have made one; left out: none makes backups of it.
	Schedule string `json:"schedule,omitempty"`
}

// UnprotectedList has instances without recent backups.
type UnprotectedList struct {
	Instances []Unprotected `json:"instances"` // by project and name
	More
}
