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
		BootDevices: []libvirtxml.DomainBootDevice{{Dev: "hd"}},
		SMBios:      &libvirtxml.DomainSMBios{Mode: "sysinfo"},
	}
	if m.Kind.Firmware.IsUEFI() {
		os.Type.Machine = "q35"
		setUEFI(os, m)
	}
	return os
}

// setUEFI lets libvirt choose the firmware among those that are installed on the host.
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
	if !m.Kind.Firmware.IsUEFI() {
		return list
	}
	list = append(list, libvirtxml.DomainController{Type: "pci", Index: new(uint), Model: "pcie-root"})
	for range rootPorts {
		list = append(list, libvirtxml.DomainController{Type: "pci", Model: "pcie-root-port"})
	}
	return list
}

func tpms(m machine.Machine) []libvirtxml.DomainTPM {
	if !m.Kind.TPM {
		return nil
	}
	return []libvirtxml.DomainTPM{{
		Model:   "tpm-crb",
		Backend: &libvirtxml.DomainTPMBackend{Emulator: &libvirtxml.DomainTPMBackendEmulator{Version: "2.0"}},
	}}
}
