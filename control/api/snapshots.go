package api

import (
	"time"

	"croft"
)

// Snapshot is the state of all disks of an instance at one moment, as people see it.
type Snapshot struct {
	Name     string           `json:"name"`                   // unique in the instance
	ID       croft.VolumeID   `json:"id" format:"uuid"`       // its UUID
	Project  croft.Project    `json:"project"`                // the project that it belongs to
	Instance croft.InstanceID `json:"instance" format:"uuid"` // UUID of the instance
	// Name of the instance; left out: it was destroyed.
	InstanceName string `json:"instance_name,omitempty"`
	SizeGB       int64  `json:"size_gb"` // what it claims on the host: the size of all disks, in GiB
	// State in one word: creating, ready, rolling_back, failed, removing, unreachable while its host is silent, or lost
	// with its host.
	State string `json:"state"`
	// Why its host cannot do what was ordered, or why the last rollback was not done, in one sentence; empty: it can.
	Error string `json:"error"`
	// When it was taken; left out: not yet.
	Taken *time.Time `json:"taken,omitempty"`
	// How it was taken: quiesced (the guest agent froze the file systems meanwhile), disks (of a running guest without
	// that: the disks are as after a power failure), or off (the guest was off); left out: not yet.
	Method string `json:"method,omitempty" enum:"quiesced,disks,off"`
	// Why the guest was not quiesced; left out: it was, or was off.
	Note string `json:"note,omitempty"`
	// When the instance was last rolled back to it; left out: never.
	RolledBack *time.Time `json:"rolled_back,omitempty"`
	// Names of the volumes that it has besides the instance's own disk.
	Volumes []string  `json:"volumes"`
	Created time.Time `json:"created"` // when it was requested
	// Name of its host; empty for callers who are not operators.
	Host string `json:"host"`
}

// SnapshotNamed names a snapshot of an instance.
type SnapshotNamed struct {
	InstanceNamed

	Snapshot string `path:"snapshot" json:"-"` // name of the snapshot
}

// NewSnapshot is the input of createSnapshot.
type NewSnapshot struct {
	InstanceNamed

	// Unique in the instance; left out: a name with the time.
	Name string `json:"name,omitempty" maxLength:"63"`
}

// SnapshotRollback is the input of rollBackSnapshot.
type SnapshotRollback struct {
	SnapshotNamed

	Stop bool `json:"stop,omitempty"` // stop the guest first, and start it again afterwards
}

// SnapshotList has snapshots.
type SnapshotList struct {
	Snapshots []Snapshot `json:"snapshots"` // those of an instance together, the oldest first
	More
}
