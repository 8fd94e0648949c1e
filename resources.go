package croft

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// The resource classes that every host offers, named as in OpenStack.
const (
	VCPU     ResourceClass = "VCPU"
	MemoryMB ResourceClass = "MEMORY_MB" // MiB, as in Nova, despite the name
	DiskGB   ResourceClass = "DISK_GB"   // GiB
)

// ResourceClass names a kind of resource, such as VCPU or CUSTOM_FPGA.
type ResourceClass string

// Trait names a capability of a provider, such as HW_CPU_X86_AVX2.
type Trait string

// CustomPrefix is the prefix of the names of custom classes and traits.
const CustomPrefix = "CUSTOM_"

// PCIPrefix is the prefix of the classes of PCI devices that an agent gives to guests.
const PCIPrefix = CustomPrefix + "PCI_"

// IsPCI reports whether the class is one of PCI devices.
func (c ResourceClass) IsPCI() bool { return strings.HasPrefix(string(c), PCIPrefix) }

// maxTrait limits the length of a trait's name to Placement's limit.
const maxTrait = 255

// CheckCustom returns Invalid if t cannot be the name of a custom trait.
func (t Trait) CheckCustom() error {
	rest, custom := strings.CutPrefix(string(t), CustomPrefix)
	if !custom || rest == "" || len(t) > maxTrait ||
		strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return Errorf(Invalid, "%.80q cannot be a capability of your own: write %s and capital letters, "+
			"digits and underscores, such as CUSTOM_FAST_DISK", string(t), CustomPrefix)
	}
	return nil
}

// Resources are amounts by class.
type Resources map[ResourceClass]int64

// String returns the amounts as in a query, classes in order: DISK_GB:1,VCPU:2.
func (r Resources) String() string {
	var parts []string
	for _, class := range slices.Sorted(maps.Keys(r)) {
		parts = append(parts, fmt.Sprintf("%s:%d", class, r[class]))
	}
	return strings.Join(parts, ",")
}

// Larger returns of each class the larger amount. It changes neither operand.
func (r Resources) Larger(other Resources) Resources {
	all := maps.Clone(r)
	for class, amount := range other {
		all[class] = max(all[class], amount)
	}
	return all
}

// Size is a named amount of resources for an instance. An operator chose its name.
type Size struct {
	Name      string    `json:"name"`              // unique in the cloud
	Resources Resources `json:"resources"`         // what an instance of this size claims
	Default   bool      `json:"default,omitempty"` // requests that name neither a size nor amounts get it
}

// SizeChange changes a size.
type SizeChange struct {
	Name    string // the new one; empty: it stays
	Default *bool  // nil: it stays
}

// MaxSizes is the maximum number of sizes.
const MaxSizes = 100

// BuiltInSize returns the size of requests that name neither a size nor amounts, while no size is the default. It has
// no name.
func BuiltInSize() Size { return Size{Resources: Resources{VCPU: 1, MemoryMB: 1024, DiskGB: 10}} }

// CheckSizeName validates the name of a size. Invalid.
func CheckSizeName(name string) error {
	if !aggregateForm.MatchString(name) {
		return Errorf(Invalid, "%.80q is not the name of a size: use a to z, 0 to 9 and dashes in between, 63 characters at "+
			"most", name)
	}
	return nil
}

// Check validates a size's name, and that an instance can have its resources. Invalid.
func (s Size) Check() error {
	if err := CheckSizeName(s.Name); err != nil {
		return err
	}
	for _, class := range []ResourceClass{VCPU, MemoryMB, DiskGB} {
		if s.Resources[class] < 1 {
			return Errorf(Invalid, "size %s has no %s: an instance needs at least 1", s.Name, class)
		}
	}
	return nil
}

// Inventory is the amount of one class that a provider offers. Placement's API reference defines the fields; capacity
// is (Total - Reserved) * AllocationRatio.
type Inventory struct {
	Total int64 `json:"total"` // how much the host has
	// Kept for the host itself.
	Reserved int64 `json:"reserved"`
	// The least that one claim may have.
	MinUnit int64 `json:"min_unit"`
	// The most that one claim may have.
	MaxUnit int64 `json:"max_unit"`
	// Claims are multiples of it.
	StepSize        int64   `json:"step_size"`
	AllocationRatio float64 `json:"allocation_ratio"` // how often the total is given out
}

// maxCapacity bounds Capacity, so that the capacities of thousands of hosts can be added up.
const maxCapacity = 1 << 50

// Capacity returns the total amount that may be allocated, at most 2^50.
func (i Inventory) Capacity() int64 {
	capacity := float64(i.Total-i.Reserved) * i.AllocationRatio
	switch {
	case capacity >= maxCapacity:
		return maxCapacity
	case capacity > 0:
		return int64(capacity)
	}
	return 0 // or not a number
}

// MaxAllocationRatio is the largest ratio that a host may give out a class of resources with.
const MaxAllocationRatio = 1000

// Check validates what a host offers of a class. Invalid.
func (i Inventory) Check() error {
	switch {
	case i.Total < 1 || i.Total > math.MaxInt32:
		return Errorf(Invalid, "the total is %d: it has to be between 1 and %d", i.Total, math.MaxInt32)
	case i.Reserved < 0 || i.Reserved > i.Total:
		return Errorf(Invalid, "%d are reserved: it has to be between 0 and the total", i.Reserved)
	case !(i.AllocationRatio >= 0 && i.AllocationRatio <= MaxAllocationRatio): // or not a number; 0: not given
		return Errorf(Invalid, "the allocation ratio is %v: it has to be between 0 and %d", i.AllocationRatio,
			MaxAllocationRatio)
	}
	return nil
}

// Provider is a resource provider: as an agent describes its host, and as a scheduler reads it to explain why nothing
// fits.
type Provider struct {
	ID          HostID
	Root        HostID // read-only: the root of its tree; if empty, the provider itself
	Name        string
	Inventories map[ResourceClass]Inventory
	Used        Resources // read-only
	Traits      []Trait
	Aggregates  []string // UUIDs
}

// Candidate is one way to satisfy a request: amounts by provider.
type Candidate struct {
	Allocations map[HostID]Resources
	Summaries   map[HostID]Summary // of every provider in Allocations
}

// Summary is the state of a provider as reported with the candidates.
type Summary struct {
	Root     HostID // the root of its tree; if empty, the provider itself
	Capacity Resources
	Used     Resources
}

// Machine is the kind of an instance's virtual machine. The zero value is a PC with virtio devices, and with a BIOS
// unless its disk boots only by UEFI.
type Machine struct {
	// Its processor's architecture; x86_64 if empty. An aarch64 machine starts by UEFI.
	Arch Arch `json:"arch,omitempty" enum:"x86_64,aarch64"`
	// Its firmware; empty: bios, or uefi if only that boots the disk.
	Firmware Firmware `json:"firmware,omitempty" enum:"bios,uefi,uefi-secure"`
	// It has a TPM 2.0, whose state is on its host.
	TPM bool `json:"tpm,omitempty"`
	// Its screen, which only attachScreen and getScreen reach; none if empty.
	Display Display `json:"display,omitempty" enum:"none,vnc"`
	// Its disk and network cards; virtio if empty. Guests need no drivers for plain ones.
	Devices Devices `json:"devices,omitempty" enum:"virtio,plain"`
	// The system of the guest, for which its clock is set; linux if empty.
	OS GuestOS `json:"os,omitempty" enum:"linux,windows"`
	// The image of an ISO in its CD drive, a name or an address as for image; it has no drive if empty. Without an
	// image, its disk is empty.
	ISO string `json:"iso,omitempty" maxLength:"4096"`
	// What its firmware starts, in this order, separated by commas: disk, cd or network. disk if empty, and then the
	// CD.
	Boot Boot `json:"boot,omitempty" maxLength:"15" pattern:"^(disk|cd|network)(,(disk|cd|network)){0,2}$"`
}

// Arch is the architecture of a machine's processor, as Linux names it.
type Arch string

// The architectures.
const (
	ArchX86     Arch = "x86_64"
	ArchAArch64 Arch = "aarch64"
)

// Archs returns the architectures that machines can have.
func Archs() []Arch { return []Arch{ArchX86, ArchAArch64} }

// Known returns the architecture, or the one of machines that name none.
func (a Arch) Known() Arch { return cmp.Or(a, ArchX86) }

// Check refuses unknown architectures. Invalid.
func (a Arch) Check() error {
	if !slices.Contains(Archs(), a.Known()) {
		return Errorf(Invalid, "arch is %.80q: use x86_64 or aarch64", a)
	}
	return nil
}

// Trait returns the trait of hosts that run machines of the architecture.
func (a Arch) Trait() Trait {
	if a.Known() == ArchAArch64 {
		return TraitAArch64
	}
	return TraitX86
}

// check refuses settings that machines of an architecture cannot have. Invalid.
func (a Arch) check(m Machine) error {
	if err := a.Check(); err != nil || a.Known() != ArchAArch64 {
		return err
	}
	switch {
	case m.Firmware == FirmwareBIOS:
		return Errorf(Invalid, "an aarch64 machine has no BIOS: use firmware uefi, or leave it out")
	case m.Firmware == FirmwareUEFISecure:
		return Errorf(Invalid, "secure boot is for x86_64 machines only: use firmware uefi for aarch64, or leave it out")
	case m.Devices == DevicesPlain:
		return Errorf(Invalid, "plain devices are for x86_64 machines only: use virtio for aarch64, or leave it out")
	case m.OS == OSWindows:
		return Errorf(Invalid, "machines for Windows are x86_64 only: leave out os windows, or arch aarch64")
	}
	return nil
}

// Boot is an order of devices that firmware starts from: words separated by commas.
type Boot string

// The devices of a Boot.
const (
	BootDisk    = "disk"
	BootCD      = "cd"
	BootNetwork = "network"
)

// Devices returns the devices in their order.
func (b Boot) Devices() []string {
	if b == "" {
		return nil
	}
	return strings.Split(string(b), ",")
}

// Has reports whether the order names a device.
func (b Boot) Has(device string) bool { return slices.Contains(b.Devices(), device) }

// check refuses unknown devices, and ones that are named twice.
func (b Boot) check() error {
	all := b.Devices()
	for i, device := range all {
		if !slices.Contains([]string{BootDisk, BootCD, BootNetwork}, device) || slices.Contains(all[:i], device) {
			return Errorf(Invalid, "boot is %.80q: name disk, cd and network at most once each, separated by commas", b)
		}
	}
	return nil
}

// Devices are the kind of a machine's disk and network cards.
type Devices string

// The kinds of devices.
const (
	DevicesVirtio Devices = "virtio"
	DevicesPlain  Devices = "plain" // SATA and e1000e
)

// GuestOS is the system of a guest as far as its machine depends on it.
type GuestOS string

// The systems. Windows expects that the clock of the machine has the local time.
const (
	OSLinux   GuestOS = "linux"
	OSWindows GuestOS = "windows"
)

// Display is how the screen of a machine is reached.
type Display string

// The kinds of screens.
const (
	DisplayNone Display = "none"
	DisplayVNC  Display = "vnc"
)

// Firmware is what starts the disk of a machine.
type Firmware string

// The kinds of firmware.
const (
	FirmwareBIOS       Firmware = "bios"
	FirmwareUEFI       Firmware = "uefi"
	FirmwareUEFISecure Firmware = "uefi-secure" // starts only boot loaders that Microsoft has signed
)

// IsUEFI reports whether the firmware is a kind of UEFI.
func (f Firmware) IsUEFI() bool { return f == FirmwareUEFI || f == FirmwareUEFISecure }

// Check returns the error of settings that no machine can have. Invalid.
func (m Machine) Check() error {
	kinds := []Firmware{"", FirmwareBIOS, FirmwareUEFI, FirmwareUEFISecure}
	if !slices.Contains(kinds, m.Firmware) {
		return Errorf(Invalid, "firmware is %.80q: use bios, uefi or uefi-secure", m.Firmware)
	}
	if !slices.Contains([]Display{"", DisplayNone, DisplayVNC}, m.Display) {
		return Errorf(Invalid, "display is %.80q: use none or vnc", m.Display)
	}
	if !slices.Contains([]Devices{"", DevicesVirtio, DevicesPlain}, m.Devices) {
		return Errorf(Invalid, "devices is %.80q: use virtio or plain", m.Devices)
	}
	if !slices.Contains([]GuestOS{"", OSLinux, OSWindows}, m.OS) {
		return Errorf(Invalid, "os is %.80q: use linux or windows", m.OS)
	}
	if err := m.Arch.check(m); err != nil {
		return err
	}
	if err := m.Boot.check(); err != nil {
		return err
	}
	if m.Boot.Has(BootCD) && m.ISO == "" {
		return Errorf(Invalid, "boot names the CD, and there is no CD drive: name the ISO with --iso, or leave cd out")
	}
	return nil
}

// NeedsImage reports whether a machine has nothing to start from without the image of a disk.
func (m Machine) NeedsImage() bool { return m.ISO == "" && !m.Boot.Has(BootNetwork) }

// Traits of hosts that can run machines of other kinds than the default one.
const (
	TraitUEFI       Trait = "COMPUTE_FIRMWARE_UEFI"
	TraitSecureBoot Trait = "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
	TraitTPM        Trait = "COMPUTE_SECURITY_TPM_2_0"
	TraitScreen     Trait = "COMPUTE_GRAPHICS_MODEL_VGA"
	TraitPlain      Trait = "COMPUTE_NET_VIF_MODEL_E1000E"
	TraitWindows    Trait = "CUSTOM_CROFT_OS_WINDOWS"
	TraitCD         Trait = "CUSTOM_CROFT_CDROM"
	TraitBoot       Trait = "CUSTOM_CROFT_BOOT_ORDER"
	TraitNetBoot    Trait = "CUSTOM_CROFT_BOOT_NETWORK"
	TraitAArch64    Trait = "COMPUTE_ARCH_AARCH64"
	// of a screen that only aarch64 machines have
	TraitVirtioScreen Trait = "COMPUTE_GRAPHICS_MODEL_VIRTIO"
)

// TraitX86 is the trait of hosts that run x86_64 machines. No machine requires it, so that the default machine has no
// traits: Host.Runs keeps it away from other hosts.
const TraitX86 Trait = "COMPUTE_ARCH_X86_64"

// machineTraits has the only architecture whose machines can need a trait (empty: all do), and what a host without the
// trait lacks, with what an operator can do about it.
var machineTraits = []struct {
	Trait
	arch Arch
	lack string
}{
	{TraitUEFI, ArchX86, "has no UEFI firmware (the package ovmf, and then a restart of its agent)"},
	{TraitSecureBoot, ArchX86, "has no UEFI firmware with secure boot (the package ovmf, and then a restart of its agent)"},
	{TraitTPM, "", "cannot emulate a TPM (the packages swtpm and swtpm-tools, and then a restart of libvirtd and its agent)"},
	{TraitScreen, ArchX86, "has no QEMU with a VGA screen over VNC"},
	{TraitPlain, ArchX86, "has no QEMU with SATA disks"},
	{TraitWindows, ArchX86, "is of a version that does not know the clock of Windows"},
	{TraitCD, "", "has no QEMU with a CD drive, or is of a version that knows none"},
	{TraitBoot, "", "is of a version that does not know --boot"},
	{TraitNetBoot, "", "has no boot ROM for network cards (the package ipxe-qemu, and then a restart of its agent)"},
	{TraitAArch64, ArchAArch64, "runs no aarch64 machines (the setting libvirt.emulated_architectures of an x86_64 host lets it)"},
	{TraitVirtioScreen, ArchAArch64, "has no QEMU for aarch64 with a screen over VNC"},
}

// MachineTraits returns the traits that Machine.Traits can return for machines of these architectures.
func MachineTraits(of ...Arch) (all []Trait) {
	for _, t := range machineTraits {
		if t.arch == "" || slices.Contains(of, t.arch) {
			all = append(all, t.Trait)
		}
	}
	return all
}

// Lack returns what a host lacks that does not have a trait of MachineTraits, as the end of a sentence about the host;
// false: another trait.
func (t Trait) Lack() (string, bool) {
	for _, m := range machineTraits {
		if m.Trait == t {
			return m.lack, true
		}
	}
	return "", false
}

// Traits returns the traits that a host needs to run the machine. Hosts of older versions have none of them.
func (m Machine) Traits() (all []Trait) {
	add := func(needed bool, t Trait) {
		if needed {
			all = append(all, t)
		}
	}
	arm := m.Arch == ArchAArch64 // then it has UEFI always
	add(arm, TraitAArch64)
	add(m.Firmware == FirmwareUEFI && !arm, TraitUEFI)
	add(m.Firmware == FirmwareUEFISecure, TraitSecureBoot)
	add(m.TPM, TraitTPM)
	add(m.Display == DisplayVNC && !arm, TraitScreen)
	add(m.Display == DisplayVNC && arm, TraitVirtioScreen)
	add(m.Devices == DevicesPlain, TraitPlain)
	add(m.OS == OSWindows, TraitWindows)
	add(m.ISO != "", TraitCD)
	add(m.Boot != "", TraitBoot)
	add(m.Boot.Has(BootNetwork), TraitNetBoot)
	return all
}

// String describes the machine for people; empty: the default kind.
func (m Machine) String() string {
	var parts []string
	if m.Arch != "" {
		parts = append(parts, string(m.Arch))
	}
	if m.Firmware != "" {
		parts = append(parts, fmt.Sprintf("firmware %s", m.Firmware))
	}
	if m.TPM {
		parts = append(parts, "TPM 2.0")
	}
	if m.Display != "" {
		parts = append(parts, fmt.Sprintf("display %s", m.Display))
	}
	if m.Devices != "" {
		parts = append(parts, fmt.Sprintf("%s devices", m.Devices))
	}
	if m.OS != "" {
		parts = append(parts, fmt.Sprintf("for %s", m.OS))
	}
	if m.ISO != "" {
		parts = append(parts, fmt.Sprintf("ISO %s", m.ISO))
	}
	if m.Boot != "" {
		parts = append(parts, fmt.Sprintf("starts %s", m.Boot))
	}
	return strings.Join(parts, ", ")
}
