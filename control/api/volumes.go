package api

import (
	"time"

	"croft"
)

// Volume is a disk that outlives instances, as people see it.
type Volume struct {
	Name    string         `json:"name"`             // unique in the project
	ID      croft.VolumeID `json:"id" format:"uuid"` // its UUID
	Project croft.Project  `json:"project"`          // the project that it belongs to
	SizeGB  int64          `json:"size_gb"`          // in GiB
	// State in one word: creating, available, in_use, failed, removing, unreachable while its host is silent, or lost
	// with its host. One on shared storage is lost with no host.
	State string `json:"state"`
	// Why its host cannot do what was ordered, in one sentence; empty: it can.
	Error string `json:"error"`
	// UUID of the instance that it is attached to; left out: none.
	Instance croft.InstanceID `json:"instance,omitempty" format:"uuid"`
	// Name of that instance.
	InstanceName string `json:"instance_name,omitempty"`
	// It waits for the guest to release it.
	Detaching bool `json:"detaching,omitempty"`
	// Serial number of the disk: guests find it as /dev/disk/by-id/virtio-SERIAL.
	Serial  string    `json:"serial"`
	Created time.Time `json:"created"` // when it was requested
	// Name of its host; empty for callers who are not operators. Of a volume on shared storage, the host that uses it
	// or did last.
	Host string `json:"host"`
	// Name of the shared storage that has it; left out: its host has it.
	Storage string `json:"storage,omitempty"`
}

// States of volumes and snapshots that their hosts have not recorded.
const (
	VolumeLost        = "lost"        // its host was removed from the cloud
	VolumeUnreachable = "unreachable" // its host is silent
)

// VolumeNamed names a volume.
type VolumeNamed struct {
	InProject

	Name string `path:"name" json:"-"` // name of the volume
}

// NewVolume is the input of createVolume.
type NewVolume struct {
	InProject

	Name   string `json:"name" maxLength:"63" minLength:"1"`   // unique in the project
	SizeGB int64  `json:"size_gb" minimum:"1" maximum:"16384"` // in GiB
	// Name or UUID of the host; left out: the one with the most room. Only operators may give it.
	Host string `json:"host,omitempty" maxLength:"255" minLength:"1"`
	// Name or UUID of an instance of the project on whose host the volume is to be.
	Near string `json:"near,omitempty" maxLength:"63" minLength:"1"`
	// Where it is to be: local, shared, or the name of a shared storage; local if empty. An instance on any host that
	// mounts the storage can have it.
	Storage string `json:"storage,omitempty" maxLength:"63"`
}

// VolumeSize is the input of growVolume.
type VolumeSize struct {
	VolumeNamed

	SizeGB int64 `json:"size_gb" minimum:"1" maximum:"16384"` // in GiB, not less than now
}

// VolumeAttachment is the input of attachVolume.
type VolumeAttachment struct {
	VolumeNamed

	Instance string `json:"instance" maxLength:"63" minLength:"1"` // name or UUID of an instance of the project
}

// VolumeList has volumes.
type VolumeList struct {
	Volumes []Volume `json:"volumes"` // by name
	More
}
