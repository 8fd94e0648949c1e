package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/libvirt/domainxml"
)

// Machines implements compute.Hypervisor by the capabilities that libvirt reports for QEMU's machine of each
// architecture. This host's own x86_64 machines are always offered, in part by traits that libvirt does not report.
func (d *Driver) Machines(ctx context.Context) ([]croft.Trait, error) {
	virt := map[croft.Arch]string{}
	for _, arch := range d.archs() {
		virt[arch] = d.virtOf(arch)
	}
	return call(ctx, d.conn, task{verb: "ask libvirt which machines it can run"},
		func(c *libvirt.Connect) ([]croft.Trait, error) {
			found := map[croft.Arch][]croft.Trait{}
			for arch, virt := range virt {
				text, err := c.GetDomainCapabilities("", string(arch), domainxml.Express(arch), virt, 0)
				if is(err, libvirt.ERR_INVALID_ARG, libvirt.ERR_CONFIG_UNSUPPORTED, libvirt.ERR_NO_SUPPORT) {
					continue // its driver has no such machine
				}
				if err != nil {
					return nil, err
				}
				if found[arch], err = machinesIn(arch, text); err != nil {
					return nil, err
				}
			}
			all := combine(found, slices.ContainsFunc(bootROMs, exists))
			if Native() == croft.ArchX86 && !slices.Contains(all, croft.TraitX86) {
				all = append(all, croft.TraitX86)
			}
			return all, nil
		})
}

// combine merges the traits of a host's architectures. A trait that machines of several architectures
// can need has to be true of each.
func combine(found map[croft.Arch][]croft.Trait, bootROM bool) (all []croft.Trait) {
	maps.DeleteFunc(found, func(arch croft.Arch, has []croft.Trait) bool { return !slices.Contains(has, arch.Trait()) })
	for _, arch := range slices.Sorted(maps.Keys(found)) {
		for _, t := range found[arch] {
			everywhere := true
			for other, has := range found {
				everywhere = everywhere && (slices.Contains(has, t) || !slices.Contains(croft.MachineTraits(other), t))
			}
			if everywhere && !slices.Contains(all, t) {
				all = append(all, t)
			}
		}
	}
	if bootROM && len(found) > 0 {
		all = append(all, croft.TraitNetBoot)
	}
	return all
}

// bootROMs are the ROM of virtio network cards in the packages of distributions, which libvirt does not report.
var bootROMs = []string{"/usr/lib/ipxe/qemu/efi-virtio.rom", "/usr/share/ipxe/qemu/efi-virtio.rom",
	"/usr/share/qemu/efi-virtio.rom"}

// machinesIn returns the traits in libvirt's capabilities of an architecture's machine; none: it cannot be run.
func machinesIn(arch croft.Arch, capabilities string) (all []croft.Trait, err error) {
	var caps libvirtxml.DomainCaps
	if err := caps.Unmarshal(capabilities); err != nil {
		return nil, fmt.Errorf("read the capabilities of machines: %w", err)
	}
	caps.OS = cmp.Or(caps.OS, &libvirtxml.DomainCapsOS{})
	caps.Devices = cmp.Or(caps.Devices, &libvirtxml.DomainCapsDevices{})
	uefi := offers(caps.OS.Enums, "firmware", "efi")
	if arch == croft.ArchAArch64 {
		if !uefi {
			return nil, nil // it starts by nothing else
		}
		return append(armMachines(*caps.Devices), croft.TraitAArch64, croft.TraitBoot), nil
	}
	if uefi {
		all = append(all, croft.TraitUEFI)
		if loader := caps.OS.Loader; loader != nil && offers(loader.Enums, "secure", "yes") {
			all = append(all, croft.TraitSecureBoot)
		}
	}
	if emulatesTPM(*caps.Devices) {
		all = append(all, croft.TraitTPM)
	}
	if hasScreen(*caps.Devices, "vga") {
		all = append(all, croft.TraitScreen)
	}
	if disk := caps.Devices.Disk; disk != nil {
		if offers(disk.Enums, "bus", "sata") {
			all = append(all, croft.TraitPlain)
		}
		if offers(disk.Enums, "diskDevice", "cdrom") {
			all = append(all, croft.TraitCD)
		}
	}
	return append(all, croft.TraitWindows, croft.TraitBoot, croft.TraitX86), nil
}

// armMachines returns the traits of QEMU's machine "virt" by its devices.
func armMachines(devices libvirtxml.DomainCapsDevices) (all []croft.Trait) {
	if emulatesTPM(devices) && offers(devices.TPM.Enums, "model", "tpm-tis") {
		all = append(all, croft.TraitTPM)
	}
	if hasScreen(devices, "virtio") {
		all = append(all, croft.TraitVirtioScreen)
	}
	disk := devices.Disk
	if disk != nil && offers(disk.Enums, "bus", "scsi") && offers(disk.Enums, "diskDevice", "cdrom") {
		all = append(all, croft.TraitCD)
	}
	return all
}

func emulatesTPM(devices libvirtxml.DomainCapsDevices) bool {
	tpm := devices.TPM
	return tpm != nil && tpm.Supported == "yes" && offers(tpm.Enums, "backendModel", "emulator")
}

// hasScreen reports whether a screen over VNC can have this video card.
func hasScreen(devices libvirtxml.DomainCapsDevices, card string) bool {
	screen, cards := devices.Graphics, devices.Video
	return screen != nil && cards != nil && offers(screen.Enums, "type", "vnc") &&
		offers(cards.Enums, "modelType", card)
}

func offers(enums []libvirtxml.DomainCapsEnum, name, value string) bool {
	return slices.ContainsFunc(enums, func(e libvirtxml.DomainCapsEnum) bool {
		return e.Name == name && slices.Contains(e.Values, value)
	})
}

// States of markTPM.
const (
	tpmNew  = "new"  // libvirt makes its state at the first start
	tpmMade = "made" // it has a state, without which the machine does not start
)

// checkTPM refuses to start a machine whose TPM has lost its state: libvirt would give it an empty one, and the guest
// could not read what it has encrypted. Conflict.
func (d *Driver) checkTPM(id croft.InstanceID, k mark) error {
	if k.TPM != tpmMade {
		return nil
	}
	file := filepath.Join(d.config.TPMDir, string(id), "tpm2", "tpm2-00.permall")
	switch info, err := os.Stat(file); {
	case errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0:
		return croft.Errorf(croft.Conflict, "the state of its TPM is gone (%s): put it back from a backup of the host, or "+
			"let `schedule rebuild` make a new disk with a new TPM", file)
	case err != nil:
		return fmt.Errorf("look for the state of its TPM: %w", err)
	}
	return nil
}

// newTPM returns the markTPM of a machine that is defined.
func newTPM(m compute.Machine) string {
	if m.Kind.TPM {
		return tpmNew
	}
	return ""
}
