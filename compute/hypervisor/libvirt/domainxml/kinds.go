package domainxml

import (
	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/compute/machine"
)

// system is the machine type, its firmware, and what it boots.
func system(m machine.Machine) *libvirtxml.DomainOS {
	os := &libvirtxml.DomainOS{
		Type:        &libvirtxml.DomainOSType{Arch: "x86_64", Machine: "pc", Type: "hvm"},
		BootDevices: bootDevices(m),
		SMBios:      &libvirtxml.DomainSMBios{Mode: "sysinfo"},
	}
	switch {
	case isARM(m):
		os.Type.Arch, os.Type.Machine = string(croft.ArchAArch64), Express(croft.ArchAArch64)
	case isQ35(m):
		os.Type.Machine = Express(croft.ArchX86)
	}
	if m.Kind.Firmware.IsUEFI() || isARM(m) {
		setUEFI(os, m)
	}
	return os
}

// Express returns QEMU's machine of an architecture with PCI Express, which can have every device that croft uses.
func Express(arch croft.Arch) string {
	if arch == croft.ArchAArch64 {
		return "virt"
	}
	return "q35"
}

// bootDevices are what the firmware starts, in this order: by default the disk, and then the CD, so that an installer
// starts while the disk is empty.
func bootDevices(m machine.Machine) (list []libvirtxml.DomainBootDevice) {
	order := m.Kind.Boot.Devices()
	if len(order) == 0 {
		order = []string{croft.BootDisk}
		if m.Kind.ISO != "" {
			order = append(order, croft.BootCD)
		}
	}
	names := map[string]string{croft.BootDisk: "hd", croft.BootCD: "cdrom", croft.BootNetwork: "network"}
	for _, device := range order {
		list = append(list, libvirtxml.DomainBootDevice{Dev: names[device]})
	}
	return list
}

// bootROM is the ROM by which a BIOS starts from a network card: QEMU's own, or none.
func bootROM(m machine.Machine) *libvirtxml.DomainROM {
	if m.Kind.Boot.Has(croft.BootNetwork) {
		return nil
	}
	return &libvirtxml.DomainROM{Enabled: "no"}
}

// cdDrive is a drive of the kind that every guest and firmware can read.
func (f Definition) cdDrive(m machine.Machine) libvirtxml.DomainDisk {
	drive := libvirtxml.DomainDisk{
		Device:   "cdrom",
		Driver:   &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"},
		Target:   &libvirtxml.DomainDiskTarget{Dev: "hda", Bus: "ide"},
		ReadOnly: &libvirtxml.DomainDiskReadOnly{},
	}
	switch {
	case isARM(m):
		drive.Target = &libvirtxml.DomainDiskTarget{Dev: "sdc", Bus: "scsi"}
	case isQ35(m):
		drive.Target = &libvirtxml.DomainDiskTarget{Dev: "sdc", Bus: "sata"}
	}
	if m.CD != "" {
		drive.Source = f.shared(m.CD)
		drive.BackingStore = &libvirtxml.DomainDiskBackingStore{}
	}
	return drive
}

// IsCD reports whether a disk is a CD drive.
func IsCD(disk libvirtxml.DomainDisk) bool { return disk.Device == "cdrom" }

// isARM reports whether a machine is QEMU's "virt" with an aarch64 processor, PCI Express and UEFI.
func isARM(m machine.Machine) bool { return m.Kind.Arch == croft.ArchAArch64 }

// isQ35 reports whether a machine has PCI Express, and SATA without another controller.
func isQ35(m machine.Machine) bool {
	return !isARM(m) && (m.Kind.Firmware.IsUEFI() || isPlain(m) || len(m.PCI) > 0)
}

// isPlain reports whether the guest may have no drivers for virtio.
func isPlain(m machine.Machine) bool { return m.Kind.Devices == croft.DevicesPlain }

// setUEFI lets libvirt choose the firmware among the installed ones on the host.
func setUEFI(os *libvirtxml.DomainOS, m machine.Machine) {
	feature := func(name, enabled string) libvirtxml.DomainOSFirmwareFeature {
		return libvirtxml.DomainOSFirmwareFeature{Name: name, Enabled: enabled}
	}
	os.Firmware = "efi"
	os.NVRam = &libvirtxml.DomainNVRam{NVRam: m.NVRAM}
	if m.Kind.Firmware == croft.FirmwareUEFISecure {
		os.Loader = &libvirtxml.DomainLoader{Secure: "yes"}
		os.FirmwareInfo = &libvirtxml.DomainOSFirmwareInfo{Features: []libvirtxml.DomainOSFirmwareFeature{
			feature("enrolled-keys", "yes"), feature("secure-boot", "yes")}}
		return
	}
	os.FirmwareInfo = &libvirtxml.DomainOSFirmwareInfo{Features: []libvirtxml.DomainOSFirmwareFeature{
		feature("secure-boot", "no")}}
}

// rootPorts is the number of PCI Express ports of a q35 machine: for its own devices, and for as many volumes as an
// instance may have, because each is plugged into a port.
const rootPorts = 8 + 16

func controllers(m machine.Machine) []libvirtxml.DomainController {
	list := []libvirtxml.DomainController{{Type: "usb", Model: "none"}}
	if isPlain(m) || isARM(m) && m.Kind.Display == croft.DisplayVNC {
		list[0].Model = "qemu-xhci" // for the pointer
	}
	if isARM(m) && m.Kind.ISO != "" {
		list = append(list, libvirtxml.DomainController{Type: "scsi", Index: new(uint), Model: "virtio-scsi"})
	}
	if !isQ35(m) && !isARM(m) {
		return list
	}
	list = append(list, libvirtxml.DomainController{Type: "pci", Index: new(uint), Model: "pcie-root"})
	ports := rootPorts
	for _, unit := range m.PCI {
		ports += len(unit.Addresses)
	}
	for range ports {
		list = append(list, libvirtxml.DomainController{Type: "pci", Model: "pcie-root-port"})
	}
	return list
}

func tpms(m machine.Machine) []libvirtxml.DomainTPM {
	if !m.Kind.TPM {
		return nil
	}
	model := "tpm-crb"
	if isARM(m) {
		model = "tpm-tis"
	}
	return []libvirtxml.DomainTPM{{
		Model:   model,
		Backend: &libvirtxml.DomainTPMBackend{Emulator: &libvirtxml.DomainTPMBackendEmulator{Version: "2.0"}},
	}}
}

// graphics is a VNC server on a socket whose path libvirt chooses, in a directory for the running machine alone.
func graphics(m machine.Machine) []libvirtxml.DomainGraphic {
	if m.Kind.Display != croft.DisplayVNC {
		return nil
	}
	return []libvirtxml.DomainGraphic{{VNC: &libvirtxml.DomainGraphicVNC{
		Listeners: []libvirtxml.DomainGraphicListener{{Socket: &libvirtxml.DomainGraphicListenerSocket{}}},
	}}}
}

// videos is the card that every guest and firmware can drive.
func videos(m machine.Machine) []libvirtxml.DomainVideo {
	if m.Kind.Display != croft.DisplayVNC {
		return nil
	}
	if isARM(m) {
		return []libvirtxml.DomainVideo{{Model: libvirtxml.DomainVideoModel{Type: "virtio", Heads: 1}}}
	}
	return []libvirtxml.DomainVideo{{Model: libvirtxml.DomainVideoModel{Type: "vga", VRam: 16384, Heads: 1}}}
}

// inputs is a pointer with absolute positions, as viewers send them. A PS/2 mouse and keyboard are always there.
func inputs(m machine.Machine) []libvirtxml.DomainInput {
	if m.Kind.Display != croft.DisplayVNC {
		return nil
	}
	if isARM(m) { // it has no PS/2 keyboard
		return []libvirtxml.DomainInput{{Type: "tablet", Bus: "usb"}, {Type: "keyboard", Bus: "usb"}}
	}
	if isPlain(m) {
		return []libvirtxml.DomainInput{{Type: "tablet", Bus: "usb"}}
	}
	return []libvirtxml.DomainInput{{Type: "tablet", Bus: "virtio"}}
}

// hyperv are the interfaces by which Windows spares a hypervisor work. QEMU has them only with KVM.
func (f Definition) hyperv(m machine.Machine) *libvirtxml.DomainFeatureHyperV {
	if m.Kind.OS != croft.OSWindows || f.Virt != VirtKVM {
		return nil
	}
	on := libvirtxml.DomainFeatureState{State: "on"}
	return &libvirtxml.DomainFeatureHyperV{Relaxed: &on, VAPIC: &on,
		Spinlocks: &libvirtxml.DomainFeatureHyperVSpinlocks{DomainFeatureState: on, Retries: 8191}}
}

// clock has the universal time, except for Windows, which expects the local time of the host.
func (f Definition) clock(m machine.Machine) *libvirtxml.DomainClock {
	if isARM(m) {
		return &libvirtxml.DomainClock{Offset: "utc"}
	}
	clock := &libvirtxml.DomainClock{Offset: "utc", Timer: []libvirtxml.DomainTimer{
		{Name: "rtc", TickPolicy: "catchup"},
		{Name: "pit", TickPolicy: "delay"},
		{Name: "hpet", Present: "no"}, // it wakes an idle host
	}}
	if m.Kind.OS == croft.OSWindows {
		clock.Offset = "localtime"
		if f.Virt == VirtKVM {
			clock.Timer = append(clock.Timer, libvirtxml.DomainTimer{Name: "hypervclock", Present: "yes"})
		}
	}
	return clock
}

// bus returns the bus and the beginning of the targets of a machine's own disks. Volumes are virtio disks in any case,
// since SATA disks cannot be plugged in.
func bus(m machine.Machine) (bus, prefix string) {
	if isPlain(m) {
		return "sata", "sd"
	}
	return "virtio", "vd"
}

// IsRoot reports whether a disk is the one that the guest boots from.
func IsRoot(disk libvirtxml.DomainDisk) bool {
	return disk.Target != nil && (disk.Target.Dev == "vda" || disk.Target.Dev == "sda")
}
