package hvtest

import (
	"bytes"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		"bios and tpm":           {Firmware: croft.FirmwareBIOS, TPM: true},
		"uefi":                   {Firmware: croft.FirmwareUEFI},
		"secure boot and tpm":    {Firmware: croft.FirmwareUEFISecure, TPM: true, Display: croft.DisplayVNC},
		"two orders of starting": {Boot: "network,disk"},
		"plain":                  {Devices: croft.DevicesPlain, OS: croft.OSWindows, Display: croft.DisplayVNC},
		"aarch64": {Arch: croft.ArchAArch64, Firmware: croft.FirmwareUEFI, TPM: true,
			Display: croft.DisplayVNC},
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
		if consoles, has := b.hv.(compute.Consoles); has {
			b.screen(consoles, m)
		}
		b.must(b.hv.Remove(b.ctx, m.ID))
		b.gone(m.ID)
	}
}

// eject empties the CD drives of machines of several kinds.
func (s Suite) eject(t *testing.T) {
	b := s.bench(t)
	b.kind(b.hv.Eject(b.ctx, croft.NewInstanceID()), croft.NotFound)
	has, err := b.hv.Machines(b.ctx)
	b.must(err)
	for name, kind := range map[string]croft.Machine{
		"bios": {ISO: "cd", Boot: "cd,disk"}, "uefi": {ISO: "cd", Firmware: croft.FirmwareUEFI},
		"plain":   {ISO: "cd", Devices: croft.DevicesPlain},
		"aarch64": {ISO: "cd", Arch: croft.ArchAArch64, Firmware: croft.FirmwareUEFI},
	} {
		if slices.ContainsFunc(kind.Traits(), func(t croft.Trait) bool { return !slices.Contains(has, t) }) {
			t.Logf("%s: not tried, because this host has only %v", name, has)
			continue
		}
		for _, runs := range []bool{false, true} {
			m := s.machine(b)
			m.Kind, m.CD = kind, filepath.Join(filepath.Dir(m.Disk[0].Path), "cd.iso")
			b.must(os.WriteFile(m.CD, make([]byte, 1<<20), 0o644))
			if kind.Firmware.IsUEFI() {
				m.NVRAM = filepath.Join(filepath.Dir(m.Disk[0].Path), "nvram.fd")
			}
			b.must(b.hv.Define(b.ctx, m))
			b.hasCD(m.ID, true)
			if runs {
				b.must(b.hv.Start(b.ctx, m.ID))
			}
			for range 2 {
				b.must(b.hv.Eject(b.ctx, m.ID))
				b.hasCD(m.ID, false)
			}
			b.must(os.Remove(m.CD))
			tops, err := b.hv.Tops(b.ctx, m.ID)
			b.must(err)
			if len(tops) != 1 || tops[compute.RootDisk] != m.Disk[0].Path {
				b.Errorf("%s: its disks are %v", name, tops)
			}
			if runs {
				b.power(m.ID, compute.PowerOn)
				b.must(b.hv.Stop(b.ctx, m.ID))
			}
			b.must(b.hv.Start(b.ctx, m.ID)) // without the file
			b.hasCD(m.ID, false)
			b.must(b.hv.Remove(b.ctx, m.ID))
		}
	}
}

// hasCD checks whether an ISO is in the drive of a machine.
func (b bench) hasCD(id croft.InstanceID, want bool) {
	b.Helper()
	d, err := b.hv.Get(b.ctx, id)
	b.must(err)
	if d.CD != want {
		b.Errorf("an ISO in its drive: %v, want %v", d.CD, want)
	}
}

// screen looks at the screen of a running machine, as one client at a time.
func (b bench) screen(hv compute.Consoles, m compute.Machine) {
	b.Helper()
	picture, err := hv.Screenshot(b.ctx, m.ID)
	if m.Kind.Display == "" {
		b.kind(err, croft.Conflict)
		_, err = hv.OpenScreen(b.ctx, m.ID, false)
		b.kind(err, croft.Conflict)
		return
	}
	b.must(err)
	if _, err := png.Decode(bytes.NewReader(picture)); err != nil {
		b.Errorf("the picture: %v", err)
	}
	first, err := hv.OpenScreen(b.ctx, m.ID, false)
	b.must(err)
	b.greets(first)
	_, err = hv.OpenScreen(b.ctx, m.ID, false)
	b.kind(err, croft.Conflict)
	second, err := hv.OpenScreen(b.ctx, m.ID, true)
	b.must(err)
	if _, err := io.Copy(io.Discard, first); err != nil {
		b.Errorf("the first client: %v", err)
	}
	b.greets(second)
	b.must(b.hv.Stop(b.ctx, m.ID))
	if _, err := io.Copy(io.Discard, second); err != nil {
		b.Errorf("the client when the guest goes off: %v", err)
	}
	b.must(second.Close())
	_, err = hv.Screenshot(b.ctx, m.ID)
	b.kind(err, croft.Conflict)
}

// greets reads the version of VNC that a server sends first.
func (b bench) greets(screen io.Reader) {
	b.Helper()
	text := make([]byte, len("RFB 003.008\n"))
	if _, err := io.ReadFull(screen, text); err != nil || !strings.HasPrefix(string(text), "RFB 003.") {
		b.Errorf("it greets with %q, %v", text, err)
	}
}
