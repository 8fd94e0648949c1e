package croft

import (
	"crypto/sha256"
	"fmt"
	"net"
	"strings"
	"time"

	"croft/internal/lazyregexp"

	"github.com/google/uuid"
)

// HostID identifies a host; it is also the UUID of its resource provider.
type HostID string

// InstanceID identifies an instance; it is also the UUID of its consumer.
type InstanceID string

// ClusterID identifies a cluster of machines that are built together for one purpose.
type ClusterID string

// VolumeID identifies a volume; it is also the UUID of its consumer.
type VolumeID string

// Consumer returns the volume's ID as the consumer of its claim.
func (id VolumeID) Consumer() InstanceID { return InstanceID(id) }

// StorageID identifies a directory that several hosts mount for disks; it is also the UUID of a sharing resource
// provider.
type StorageID string

// Provider returns the storage's ID as the provider of claims.
func (id StorageID) Provider() HostID { return HostID(id) }

// PartitionID is the key below which one installation stores everything.
type PartitionID string

// Project is the name of a tenant within the partition.
type Project string

// ProjectID identifies a project permanently: names are reused, this UUID is not. Empty: the name has no record.
type ProjectID string

// NewProjectID derives the UUID of a project from the constant data of its record: the revision of the store at which
// it was created, and the time. Programs that do not know project IDs therefore cannot change it. It authenticates
// nothing, and is only ever compared.
func NewProjectID(p PartitionID, name Project, revision int64, created time.Time) ProjectID {
	partition, _ := uuid.Parse(string(p)) // the zero UUID for the partitions of tests
	return ProjectID(uuid.NewSHA1(partition, fmt.Appendf(nil, "project %s %d %d", name, revision,
		created.UnixNano())).String())
}

// Below returns the name of a project that tenants create below p. Only operators choose names without the parent's
// name as a prefix, so a tenant cannot take a name that settings, pools or other clouds mention before its owner does.
func (p Project) Below(name Project) Project {
	if strings.HasPrefix(string(name), string(p)+".") {
		return name
	}
	return p + "." + name
}

// Root returns the name at the top of the tree of a project. The name of a project that a tenant creates starts with
// its parent's name and a dot, so the root follows from the name alone. Limits per root therefore cover all projects of
// a tenant, including removed ones.
func (p Project) Root() Project {
	root, _, _ := strings.Cut(string(p), ".")
	return Project(root)
}

// DefaultProject owns objects that are requested without a project.
const DefaultProject Project = "default"

// projectForm is the form of a project's name: safe in keys, in URLs and on terminals.
var projectForm = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Check validates the name of a project. Invalid.
func (p Project) Check() error {
	if !projectForm.MatchString(string(p)) {
		return Errorf(
			Invalid,
			"%.80q is not a project name: use 1 to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit",
			string(p),
		)
	}
	return nil
}

// Owner is the project to which Placement, which may serve several partitions, charges a claim. Its text has at most
// 100 characters, and Placement accepts 255.
type Owner struct {
	Partition PartitionID
	Project   Project
	Type      string // of the consumer; empty: ConsumerType
}

// String returns the project_id of the owner's claims: <partition>/<project>.
func (o Owner) String() string { return string(o.Partition) + "/" + string(o.Project) }

// The types of consumers in Placement.
const (
	ConsumerType       = "INSTANCE" // of instances
	VolumeConsumerType = "VOLUME"   // of volumes
)

// NewInstanceID returns a random (version 4) UUID.
func NewInstanceID() InstanceID { return InstanceID(uuid.NewString()) }

// NewVolumeID returns a random (version 4) UUID.
func NewVolumeID() VolumeID { return VolumeID(uuid.NewString()) }

// NewHostID returns a random (version 4) UUID.
func NewHostID() HostID { return HostID(uuid.NewString()) }

// NewClusterID returns a random (version 4) UUID.
func NewClusterID() ClusterID { return ClusterID(uuid.NewString()) }

// NewPartitionID returns a random (version 4) UUID.
func NewPartitionID() PartitionID { return PartitionID(uuid.NewString()) }

// ParseInstanceID accepts a UUID with or without dashes, in either case, and returns it in canonical form.
// Invalid otherwise.
func ParseInstanceID(s string) (InstanceID, error) {
	id, err := parseUUID(s)
	return InstanceID(id), err
}

// ParseVolumeID is ParseInstanceID for volumes.
func ParseVolumeID(s string) (VolumeID, error) {
	id, err := parseUUID(s)
	return VolumeID(id), err
}

// ParseStorageID is ParseInstanceID for shared storage.
func ParseStorageID(s string) (StorageID, error) {
	id, err := parseUUID(s)
	return StorageID(id), err
}

// NewStorageID returns a random (version 4) UUID.
func NewStorageID() StorageID { return StorageID(uuid.NewString()) }

// ParseHostID is ParseInstanceID for hosts.
func ParseHostID(s string) (HostID, error) {
	id, err := parseUUID(s)
	return HostID(id), err
}

// ParseClusterID is ParseInstanceID for clusters.
func ParseClusterID(s string) (ClusterID, error) {
	id, err := parseUUID(s)
	return ClusterID(id), err
}

// ImageID identifies an image of the cloud's catalog.
type ImageID string

// NewImageID returns a random (version 4) UUID.
func NewImageID() ImageID { return ImageID(uuid.NewString()) }

// ParseImageID is ParseInstanceID for images.
func ParseImageID(s string) (ImageID, error) {
	id, err := parseUUID(s)
	return ImageID(id), err
}

func parseUUID(s string) (string, error) {
	if len(s) != 36 && len(s) != 32 {
		return "", Errorf(Invalid, "%q is not a UUID", s)
	}
	u, err := uuid.Parse(s)
	if err != nil {
		return "", Errorf(Invalid, "%q is not a UUID", s)
	}
	return u.String(), nil
}

// MAC returns the address of the instance's n-th network interface (n from 0). It is derived from the UUID alone. It is
// a locally administered unicast address; its prefix is lower than QEMU's 52:54.
func (id InstanceID) MAC(n int) net.HardwareAddr {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", id, n))
	return net.HardwareAddr{0x52, 0x54, sum[0], sum[1], sum[2], sum[3]}
}
