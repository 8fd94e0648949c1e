package hvtest

import (
	"path/filepath"
	"slices"
	"testing"

	"croft"
	"croft/compute"
)

// kinds starts and removes a machine of each kind, unless the hypervisor says that it has no such machines.
func (s Suite) kinds(t *testing.T) {
	b := s.bench(t)
	has, err := b.hv.Machines(b.ctx)
	b.must(err)
	for name, kind := range map[string]croft.Machine{
		"bios and tpm":        {Firmware: croft.FirmwareBIOS, TPM: true},
		"uefi":                {Firmware: croft.FirmwareUEFI},
		"secure boot and tpm": {Firmware: croft.FirmwareUEFISecure, TPM: true},
	} {
		if slices.ContainsFunc(kind.Traits(), func(t croft.Trait) bool { return !slices.Contains(has, t) }) {
			t.Logf("%s: not tried, because this host has only %v", name, has)
			continue
		}
		m := s.machine(b)
		m.Kind = kind
		if kind.Firmware.IsUEFI() {
			m.NVRAM = filepath.Join(filepath.Dir(m.Disk[0].Path), "nvram.fd")
		}
		b.must(b.hv.Define(b.ctx, m))
		b.must(b.hv.Start(b.ctx, m.ID))
		b.power(m.ID, compute.PowerOn)
		if kind.TPM && kind.Firmware.IsUEFI() {
			b.must(b.hv.Stop(b.ctx, m.ID))
			b.must(b.hv.Start(b.ctx, m.ID)) // with the state of the first start
			b.power(m.ID, compute.PowerOn)
		}
		b.must(b.hv.Remove(b.ctx, m.ID))
		b.gone(m.ID)
	}
}
