package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/compute"
)

// Machines implements compute.Hypervisor by the capabilities that libvirt reports for QEMU's machine "q35".
func (d *Driver) Machines(ctx context.Context) ([]croft.Trait, error) {
	virt, _ := d.VirtType()
	return call(ctx, d.conn, task{verb: "ask libvirt which machines it can run"},
		func(c *libvirt.Connect) ([]croft.Trait, error) {
			text, err := c.GetDomainCapabilities("", "x86_64", "q35", virt, 0)
			if is(err, libvirt.ERR_INVALID_ARG, libvirt.ERR_CONFIG_UNSUPPORTED, libvirt.ERR_NO_SUPPORT) {
				return nil, nil // its driver has no such machine
			}
			if err != nil {
				return nil, err
			}
			all, err := machinesIn(text)
			if slices.ContainsFunc(bootROMs, exists) {
				all = append(all, croft.TraitNetBoot)
			}
			return all, err
		})
}

// bootROMs are the ROM of virtio network cards in the packages of distributions, which libvirt does not report.
var bootROMs = []string{"/usr/lib/ipxe/qemu/efi-virtio.rom", "/usr/share/ipxe/qemu/efi-virtio.rom",
	"/usr/share/qemu/efi-virtio.rom"}

// machinesIn returns the traits in libvirt's capabilities of a machine.
func machinesIn(capabilities string) (all []croft.Trait, err error) {
	var caps libvirtxml.DomainCaps
	if err := caps.Unmarshal(capabilities); err != nil {
		return nil, fmt.Errorf("read the capabilities of machines: %w", err)
	}
	caps.OS = cmp.Or(caps.OS, &libvirtxml.DomainCapsOS{})
	caps.Devices = cmp.Or(caps.Devices, &libvirtxml.DomainCapsDevices{})
	if offers(caps.OS.Enums, "firmware", "efi") {
		all = append(all, croft.TraitUEFI)
		if loader := caps.OS.Loader; loader != nil && offers(loader.Enums, "secure", "yes") {
			all = append(all, croft.TraitSecureBoot)
		}
	}
	if tpm := caps.Devices.TPM; tpm != nil && tpm.Supported == "yes" && offers(tpm.Enums, "backendModel", "emulator") {
		all = append(all, croft.TraitTPM)
	}
	screen, card := caps.Devices.Graphics, caps.Devices.Video
	if screen != nil && card != nil && offers(screen.Enums, "type", "vnc") && offers(card.Enums, "modelType", "vga") {
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
	return append(all, croft.TraitWindows, croft.TraitBoot), nil
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
	dir := filepath.Join(d.config.TPMDir, string(id))
	switch _, err := os.Stat(dir); {
	case errors.Is(err, os.ErrNotExist):
		return croft.Errorf(croft.Conflict, "the state of its TPM is gone (%s): put it back from a backup of the host, or "+
			"let `schedule rebuild` make a new disk with a new TPM", dir)
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
