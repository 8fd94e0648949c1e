// Package domainxml writes the definition of a virtual machine as libvirt reads it. It is pure, and needs no libvirt.
package domainxml

import (
	"strings"

	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/compute/machine"
)

// How the guest's processors are run.
const (
	VirtKVM  = "kvm"
	VirtQEMU = "qemu" // emulated: slow, and works everywhere
)

// A Definition is the input for a domain's XML in addition to the machine.
type Definition struct {
	Name     string            // of the domain
	Metadata string            // an XML element in its own namespace
	Virt     string            // VirtKVM or VirtQEMU
	CacheMiB int               // QEMU's translation cache; VirtQEMU only; 0: QEMU's own choice
	Ports    map[string]string // host interface names by MAC; libvirt chooses missing ones
	Readers  string            // owner and group of shared read-only files; empty: unchanged
}

// Marshal returns the XML of a machine.
//
// The machine is QEMU's "pc" without devices that a cloud guest does not use: no USB, no graphics, no boot ROM on the
// network card unless it starts from there. Every cloud image supports it, its single bus allows hot-plugging, and
// "q35" boots no faster. With UEFI it is "q35", the only one with secure boot; likewise with plain devices, which
// that machine has, and with PCI devices of the host, most of which are PCI Express.
func (f Definition) Marshal(m machine.Machine) (string, error) {
	hostdevs, err := Hostdevs(m.PCI)
	if err != nil {
		return "", err
	}
	dom := libvirtxml.Domain{
		Type:       f.Virt,
		Name:       f.Name,
		UUID:       string(m.ID),
		Title:      title(m.Name),
		Metadata:   &libvirtxml.DomainMetadata{XML: f.Metadata},
		Memory:     &libvirtxml.DomainMemory{Value: uint(m.MemoryMiB), Unit: "MiB"},
		MemoryTune: MemoryTune(m.PCI, m.MemoryMiB),
		VCPU:       &libvirtxml.DomainVCPU{Placement: "static", Value: uint(m.VCPUs)},
		SysInfo:    []libvirtxml.DomainSysInfo{{SMBIOS: smbios(m)}},
		OS:         system(m),
		Features:   f.features(m),
		CPU:        f.cpu(m),
		Clock:      f.clock(m),
		OnPoweroff: "destroy",
		OnReboot:   "restart",
		OnCrash:    "destroy", // reported as an event; the agent decides
		PM:         suspends(m),
		Devices:    f.devices(m),
	}
	dom.Devices.Hostdevs = hostdevs
	return dom.Marshal()
}

// suspends forbids a guest to suspend; the machines for aarch64 cannot.
func suspends(m machine.Machine) *libvirtxml.DomainPM {
	if isARM(m) {
		return nil
	}
	return &libvirtxml.DomainPM{
		SuspendToMem:  &libvirtxml.DomainPMPolicy{Enabled: "no"},
		SuspendToDisk: &libvirtxml.DomainPMPolicy{Enabled: "no"},
	}
}

// title returns the name with blanks for characters that libvirt rejects in a title.
func title(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, name)
}

// smbios tells cloud-init its data source, so that it does not probe every cloud: OpenStack means the
// metadata server or a config drive; a serial number selects NoCloud.
func smbios(m machine.Machine) *libvirtxml.DomainSysInfoSMBIOS {
	manufacturer, product, serial := "OpenStack Foundation", "OpenStack Nova", string(m.ID)
	if m.Source == croft.MetadataNoCloud {
		manufacturer, product, serial = "croft", "croft", "ds=nocloud"
	}
	return &libvirtxml.DomainSysInfoSMBIOS{System: &libvirtxml.DomainSysInfoSystem{
		Entry: []libvirtxml.DomainSysInfoEntry{
			{Name: "manufacturer", Value: manufacturer},
			{Name: "product", Value: product},
			{Name: "serial", Value: serial},
			{Name: "uuid", Value: string(m.ID)},
			{Name: "family", Value: "Virtual Machine"},
		},
	}}
}

func (f Definition) features(m machine.Machine) *libvirtxml.DomainFeatureList {
	features := &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}}
	if isARM(m) {
		features.GIC = &libvirtxml.DomainFeatureGIC{}
	} else {
		features.APIC = &libvirtxml.DomainFeatureAPIC{}
	}
	features.HyperV = f.hyperv(m)
	if m.Kind.Firmware == croft.FirmwareUEFISecure { // only in this mode may anything write the keys
		features.SMM = &libvirtxml.DomainFeatureSMM{State: "on"}
	}
	if f.Virt == VirtQEMU && f.CacheMiB > 0 {
		features.TCG = &libvirtxml.DomainFeatureTCG{TBCache: &libvirtxml.DomainFeatureTCGTBCache{Unit: "MiB",
			Size: uint(f.CacheMiB)}}
	}
	return features
}

// cpu is the host's own under KVM. Under emulation it has all features that QEMU can emulate, because newer
// distributions do not run on the oldest x86-64.
func (f Definition) cpu(m machine.Machine) *libvirtxml.DomainCPU {
	switch {
	case isARM(m) && f.Virt == VirtKVM: // QEMU knows migratable for x86_64 alone
		return &libvirtxml.DomainCPU{Mode: "host-passthrough", Check: "none"}
	case isARM(m): // the maximum signs pointers, whose emulation makes a guest boot half as fast
		return &libvirtxml.DomainCPU{Mode: "custom", Match: "exact", Check: "none",
			Model: &libvirtxml.DomainCPUModel{Value: "cortex-a72", Fallback: "forbid"}}
	case f.Virt == VirtKVM:
		return &libvirtxml.DomainCPU{Mode: "host-passthrough", Check: "none", Migratable: "on"}
	}
	return &libvirtxml.DomainCPU{Mode: "maximum", Check: "none", Migratable: "on"}
}

func (f Definition) devices(m machine.Machine) *libvirtxml.DomainDeviceList {
	return &libvirtxml.DomainDeviceList{
		Disks:       f.disks(m),
		Controllers: controllers(m),
		Interfaces:  f.interfaces(m),
		Serials:     []libvirtxml.DomainSerial{serial(m)},
		Channels:    agentChannel(m),
		RNGs: []libvirtxml.DomainRNG{{
			Model:   "virtio",
			Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
		}},
		MemBalloon: balloon(m),
		Panics:     panics(m),
		TPMs:       tpms(m),
		Graphics:   graphics(m),
		Videos:     videos(m),
		Inputs:     inputs(m),
	}
}

// panics is the device by which a guest reports its panic; libvirt knows none for aarch64.
func panics(m machine.Machine) []libvirtxml.DomainPanic {
	if isARM(m) {
		return nil
	}
	return []libvirtxml.DomainPanic{{Model: "isa"}}
}

// serial is the console: a terminal for the attached client, with all output logged. The log of earlier boots
// is appended to.
func serial(m machine.Machine) libvirtxml.DomainSerial {
	s := libvirtxml.DomainSerial{
		Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}},
		Target: &libvirtxml.DomainSerialTarget{Type: "isa-serial", Port: new(uint)},
	}
	if isARM(m) {
		s.Target.Type = "system-serial"
	}
	if m.Console != "" {
		s.Log = &libvirtxml.DomainChardevLog{File: m.Console, Append: "on"}
	}
	return s
}

// agentChannel leads to QEMU's guest agent, which freezes the guest's file systems for snapshots if it is installed.
func agentChannel(m machine.Machine) []libvirtxml.DomainChannel {
	if !m.Agent {
		return nil
	}
	return []libvirtxml.DomainChannel{{
		Source: &libvirtxml.DomainChardevSource{
			UNIX: &libvirtxml.DomainChardevSourceUNIX{}}, // libvirt chooses the path
		Target: &libvirtxml.DomainChannelTarget{
			VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: AgentChannel}},
	}}
}

// AgentChannel is the name of the channel to the guest agent.
const AgentChannel = "org.qemu.guest_agent.0"

func (f Definition) disks(m machine.Machine) []libvirtxml.DomainDisk {
	var list []libvirtxml.DomainDisk
	if len(m.Disk) > 0 {
		list = append(list, f.rootDisk(m))
	}
	if m.Seed != "" {
		list = append(list, seedDisk(m))
	}
	if m.Kind.ISO != "" {
		list = append(list, f.cdDrive(m))
	}
	for i, v := range m.Volumes {
		list = append(list, f.VolumeDisk(v, "vd"+string(rune(firstVolume+i))))
	}
	return list
}

// rootDisk is the disk that the guest boots from. The cache mode is writeback, and the guest's flushes reach the disk:
// as safe as no cache, works on every file system, and instances of one image share its page cache.
func (f Definition) rootDisk(m machine.Machine) libvirtxml.DomainDisk {
	bus, prefix := bus(m)
	disk := libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Cache: "writeback", Discard: "unmap"},
		Target: &libvirtxml.DomainDiskTarget{Dev: prefix + "a", Bus: bus},
	}
	f.SetLayers(&disk, m.Disk)
	return disk
}

// SetLayers names every file of a disk's backing chain and its format, so that QEMU never probes content written by a
// guest. It uses files, not volumes of libvirt: AppArmor's helper cannot follow those.
func (f Definition) SetLayers(disk *libvirtxml.DomainDisk, chain []machine.Layer) {
	disk.Source = file(chain[0].Path)
	disk.Driver.Type = chain[0].Format
	end := &libvirtxml.DomainDiskBackingStore{} // terminates the chain
	for i := len(chain) - 1; i > 0; i-- {
		source := file(chain[i].Path)
		if chain[i].Shared {
			source = f.shared(chain[i].Path)
		}
		end = &libvirtxml.DomainDiskBackingStore{
			Format:       &libvirtxml.DomainDiskFormat{Type: chain[i].Format},
			Source:       source,
			BackingStore: end,
		}
	}
	disk.BackingStore = end
}

// seedDisk is a plain read-only disk: guests find the ISO by its label, and need only the driver of their root disk.
func seedDisk(m machine.Machine) libvirtxml.DomainDisk {
	bus, prefix := bus(m)
	return libvirtxml.DomainDisk{
		Device:       "disk",
		Driver:       &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"},
		Source:       file(m.Seed),
		BackingStore: &libvirtxml.DomainDiskBackingStore{},
		Target:       &libvirtxml.DomainDiskTarget{Dev: prefix + "b", Bus: bus},
		ReadOnly:     &libvirtxml.DomainDiskReadOnly{},
	}
}

func file(path string) *libvirtxml.DomainDiskSource {
	return &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: path}}
}

// shared is a file that many instances read. Its owner does not change, so that a QEMU taken over by a guest
// cannot write it; QEMU's group may read it.
func (f Definition) shared(path string) *libvirtxml.DomainDiskSource {
	source := file(path)
	label := libvirtxml.DomainDeviceSecLabel{Model: "dac", Relabel: "no"}
	if f.Readers != "" {
		label.Relabel, label.Label = "yes", f.Readers
	}
	source.File.SecLabel = []libvirtxml.DomainDeviceSecLabel{label}
	return source
}

func (f Definition) interfaces(m machine.Machine) []libvirtxml.DomainInterface {
	var list []libvirtxml.DomainInterface
	model := "virtio"
	if isPlain(m) {
		model = "e1000e"
	}
	for _, n := range m.NICs {
		source := &libvirtxml.DomainInterfaceSource{
			Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: n.Network},
		}
		if n.Network == "" {
			source = &libvirtxml.DomainInterfaceSource{
				Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: n.Bridge},
			}
		}
		list = append(list, libvirtxml.DomainInterface{
			MAC:    &libvirtxml.DomainInterfaceMAC{Address: strings.ToLower(n.MAC)},
			Source: source,
			Target: Target(f.Ports[strings.ToLower(n.MAC)]),
			Model:  &libvirtxml.DomainInterfaceModel{Type: model},
			ROM:    bootROM(m),
		})
	}
	return list
}

// Target names the host interface; empty: libvirt chooses the name.
func Target(name string) *libvirtxml.DomainInterfaceTarget {
	if name == "" {
		return nil
	}
	return &libvirtxml.DomainInterfaceTarget{Dev: name}
}
