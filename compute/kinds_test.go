package compute

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"croft"
)

func TestTheDiskDecidesAboutTheFirmwareUnlessTheOrderDoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		boots  croft.Firmware // the only one that boots the disk
		asked  croft.Firmware
		traits []croft.Trait
		want   croft.Firmware
		fails  string
	}{
		{"a disk that a BIOS boots", "", "", nil, "", ""},
		{"a disk that a BIOS boots, with UEFI", "", croft.FirmwareUEFISecure, nil, croft.FirmwareUEFISecure, ""},
		{"a disk that only UEFI boots", croft.FirmwareUEFI, "", []croft.Trait{croft.TraitUEFI}, croft.FirmwareUEFI, ""},
		{"the same on a host without UEFI", croft.FirmwareUEFI, "", nil, "", "its host has no UEFI firmware"},
		{"the same with a BIOS", croft.FirmwareUEFI, croft.FirmwareBIOS, []croft.Trait{croft.TraitUEFI}, "",
			"asks for a BIOS"},
		{"a disk that only a BIOS boots", croft.FirmwareBIOS, "", []croft.Trait{croft.TraitUEFI}, "", ""},
		{"the same with UEFI", croft.FirmwareBIOS, croft.FirmwareUEFI, []croft.Trait{croft.TraitUEFI}, "",
			"its disk boots only by a BIOS, since no partition on it can have a boot loader for UEFI: leave --firmware out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := job{order: run(), with: func(l *logbook) {
					l.boots, l.order.Spec.Machine = c.boots, croft.Machine{Firmware: c.asked, TPM: true}
				}}.logbook(t)
				a := l.agent()
				a.Provider.Traits = c.traits
				last := strings.Join(one(t, a, l), "; ")
				if c.fails != "" {
					if l.domain != nil || !strings.Contains(last, c.fails) {
						t.Errorf("done: %s", last)
					}
					return
				}
				nvram := ""
				if c.want.IsUEFI() {
					nvram = filepath.Join(a.dir(guest), nvramFile)
				}
				if m := l.defined; m.Kind != (croft.Machine{Firmware: c.want, TPM: true}) || m.NVRAM != nvram {
					t.Errorf("it is defined with %+v and %q", m.Kind, m.NVRAM)
				}
			})
		})
	}
}

func TestUEFIMayStartSomethingElseThanADiskThatOnlyABIOSBoots(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		machine croft.Machine
		fails   string
	}{
		{"an installer", croft.Machine{Firmware: croft.FirmwareUEFI, ISO: "installer"}, ""},
		{"the network", croft.Machine{Firmware: croft.FirmwareUEFI, Boot: "network,disk"}, ""},
		{"the disk alone", croft.Machine{Firmware: croft.FirmwareUEFI, Boot: "disk"}, "leave --firmware out"},
		{"aarch64", croft.Machine{Arch: croft.ArchAArch64}, "give an image for aarch64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := job{order: run(), with: func(l *logbook) {
					l.boots, l.order.Spec.Machine = croft.FirmwareBIOS, c.machine
				}}.logbook(t)
				a := l.agent()
				a.Host.Arch = croft.Archs()
				last := strings.Join(one(t, a, l), "; ")
				if made := l.domain != nil; made != (c.fails == "") || !strings.Contains(last, c.fails) {
					t.Errorf("done: %s", last)
				}
			})
		})
	}
}
