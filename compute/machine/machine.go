// Package machine defines a virtual machine for a hypervisor.
package machine

import (
	"slices"

	"croft"
)

// Machine is the definition of a domain.
type Machine struct {
	ID        croft.InstanceID
	Partition croft.PartitionID
	Ordered
	Name      string // the instance's name, for display; domains are named by ID
	VCPUs     int64
	MemoryMiB int64
	Disk      []Layer // the overlay first, then its backing files
	Seed      string  // path of an ISO; empty: no seed
	CD        string  // path of the ISO in its CD drive; empty: the drive, if its kind has one, is empty
	// where the guest looks for its metadata first; the machine's SMBIOS data depends on it
	Source  croft.Metadata
	Volumes []Volume
	Console string // path of the serial console's log
	NICs    []NIC
	Agent   bool // it has a channel to QEMU's guest agent
	// its kind, with the firmware that it starts with; an empty one is a BIOS
	Kind  croft.Machine
	NVRAM string // path of the variables of a UEFI, which are made if they are missing
	PCI   []PCI  `json:",omitempty"` // devices of the host that it has
}

// PCI are PCI devices of the host that a machine gets as one: the devices of an IOMMU group.
type PCI struct {
	Class     croft.ResourceClass // under which the host offers them
	Addresses []string            // such as 0000:3b:00.0, in order
}

// Equal reports whether both are the same.
func (p PCI) Equal(other PCI) bool {
	return p.Class == other.Class && slices.Equal(p.Addresses, other.Addresses)
}

// NIC is one network interface: on a libvirt network or on a bridge of the host.
type NIC struct {
	MAC     string
	Network string // libvirt network, such as default
	Bridge  string // host bridge; used if Network is empty
	Address string // chosen for it on Network; empty: any that is free
}

// Volume is a separate disk that a machine has besides its root disk.
type Volume struct {
	ID     croft.VolumeID
	Path   string  // absolute; qcow2
	Below  []Layer // its backing files; empty: it has none
	Serial string  // by which the guest finds it
}

// Layer is one file of a disk's backing chain. In lists, the topmost layer is first.
type Layer struct {
	Path   string // absolute
	Format string // qcow2 or raw
	Shared bool   // other machines read it too, and none writes it
}

// Ordered is the part of an order that is recorded on the domain which carries it out.
type Ordered struct {
	Generation int64
	// the guest is isolated from other projects' guests on the host; empty: defined by an earlier version of croft
	Project croft.Project
	Open    []string // ports that other projects' guests may reach nevertheless, as in croft.Spec
	Name    string   // of the instance, by which others find it; empty: defined by an earlier version of croft
}

// Equal reports whether both are the same.
func (m Ordered) Equal(other Ordered) bool {
	return m.Generation == other.Generation && m.Project == other.Project && slices.Equal(m.Open, other.Open) &&
		m.Name == other.Name
}
