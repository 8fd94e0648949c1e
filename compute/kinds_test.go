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
		uefi   bool // only UEFI boots the disk
		asked  croft.Firmware
		traits []croft.Trait
		want   croft.Firmware
		fails  string
	}{
		{"a disk that a BIOS boots", false, "", nil, "", ""},
		{"a disk that a BIOS boots, with UEFI", false, croft.FirmwareUEFISecure, nil, croft.FirmwareUEFISecure, ""},
		{"a disk that only UEFI boots", true, "", []croft.Trait{croft.TraitUEFI}, croft.FirmwareUEFI, ""},
		{"the same on a host without UEFI", true, "", nil, "", "its host has no UEFI firmware"},
		{"the same with a BIOS", true, croft.FirmwareBIOS, []croft.Trait{croft.TraitUEFI}, "", "asks for a BIOS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := job{order: run(), with: func(l *logbook) {
					l.uefi, l.order.Spec.Machine = c.uefi, croft.Machine{Firmware: c.asked, TPM: true}
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
