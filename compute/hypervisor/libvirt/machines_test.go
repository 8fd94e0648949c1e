package libvirt

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"croft"
)

func TestTheMachinesOfAHostAreThoseThatLibvirtReports(t *testing.T) {
	const whole = `<domainCapabilities><os supported="yes"><enum name="firmware"><value>efi</value></enum>
		<loader supported="yes"><enum name="secure"><value>yes</value><value>no</value></enum></loader></os>
		<devices><tpm supported="yes"><enum name="backendModel"><value>emulator</value></enum></tpm>
		<graphics><enum name="type"><value>vnc</value></enum></graphics>
		<disk supported="yes"><enum name="bus"><value>sata</value></enum>
		<enum name="diskDevice"><value>disk</value><value>cdrom</value></enum></disk>
		<video><enum name="modelType"><value>vga</value></enum></video></devices></domainCapabilities>`
	const arm = `<domainCapabilities><os supported="yes"><enum name="firmware"><value>efi</value></enum></os>
		<devices><tpm supported="yes"><enum name="model"><value>tpm-tis</value></enum>
		<enum name="backendModel"><value>emulator</value></enum></tpm>
		<graphics><enum name="type"><value>vnc</value></enum></graphics>
		<disk supported="yes"><enum name="bus"><value>scsi</value></enum>
		<enum name="diskDevice"><value>cdrom</value></enum></disk>
		<video><enum name="modelType"><value>virtio</value></enum></video></devices></domainCapabilities>`
	for name, c := range map[string]struct {
		text string
		want []croft.Trait
		arch croft.Arch
	}{
		"everything": {whole, []croft.Trait{croft.TraitUEFI, croft.TraitSecureBoot, croft.TraitTPM, croft.TraitScreen,
			croft.TraitPlain, croft.TraitCD, croft.TraitWindows, croft.TraitBoot, croft.TraitX86}, ""},
		"no firmware": {`<domainCapabilities><os supported="yes"><enum name="firmware"/><loader supported="yes">
			<enum name="secure"><value>yes</value></enum></loader></os></domainCapabilities>`,
			[]croft.Trait{croft.TraitWindows, croft.TraitBoot, croft.TraitX86}, ""},
		"firmware without secure boot, and a TPM of the host alone": {`<domainCapabilities><os supported="yes">
			<enum name="firmware"><value>efi</value></enum><loader supported="yes"><enum name="secure"><value>no</value>
			</enum></loader></os><devices><tpm supported="yes"><enum name="backendModel"><value>passthrough</value></enum>
			</tpm></devices></domainCapabilities>`, []croft.Trait{croft.TraitUEFI, croft.TraitWindows,
			croft.TraitBoot, croft.TraitX86}, ""},
		"nothing": {`<domainCapabilities/>`, []croft.Trait{croft.TraitWindows, croft.TraitBoot, croft.TraitX86}, ""},
		"everything of aarch64": {arm, []croft.Trait{croft.TraitTPM, croft.TraitVirtioScreen, croft.TraitCD,
			croft.TraitAArch64, croft.TraitBoot}, croft.ArchAArch64},
		"aarch64 with other devices": {whole, []croft.Trait{croft.TraitAArch64, croft.TraitBoot}, croft.ArchAArch64},
		"aarch64 without firmware":   {`<domainCapabilities/>`, nil, croft.ArchAArch64},
	} {
		if got, err := machinesIn(c.arch.Known(), c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if _, err := machinesIn(croft.ArchX86, "<"); err == nil {
		t.Error("half a text was read")
	}
}

func TestATraitOfAHostIsTrueOfEachOfItsArchitectures(t *testing.T) {
	x86 := []croft.Trait{croft.TraitX86, croft.TraitUEFI, croft.TraitTPM, croft.TraitBoot}
	arm := []croft.Trait{croft.TraitAArch64, croft.TraitVirtioScreen, croft.TraitCD, croft.TraitBoot}
	for name, c := range map[string]struct {
		found map[croft.Arch][]croft.Trait
		want  []croft.Trait
	}{
		"both": {map[croft.Arch][]croft.Trait{croft.ArchX86: x86, croft.ArchAArch64: arm},
			[]croft.Trait{croft.TraitAArch64, croft.TraitVirtioScreen, croft.TraitBoot, croft.TraitX86, croft.TraitUEFI,
				croft.TraitNetBoot}},
		"one, because the other cannot be run": {
			map[croft.Arch][]croft.Trait{croft.ArchX86: x86, croft.ArchAArch64: nil}, append(x86, croft.TraitNetBoot)},
		"none": {map[croft.Arch][]croft.Trait{}, nil},
	} {
		if got := combine(c.found, true); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestKVMRunsOnlyMachinesOfTheHostsArchitecture(t *testing.T) {
	other := croft.ArchAArch64
	if Native() == other {
		other = croft.ArchX86
	}
	d, err := New(Config{VirtType: VirtKVM, Emulated: []croft.Arch{other, other, Native()}})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.archs(); !slices.Equal(got, []croft.Arch{Native(), other}) {
		t.Errorf("it offers %v", got)
	}
	if d.virtOf(Native()) != VirtKVM || d.virtOf(other) != VirtQEMU {
		t.Errorf("got %s and %s", d.virtOf(Native()), d.virtOf(other))
	}
	if _, err := New(Config{Emulated: []croft.Arch{"riscv64"}}); !errors.Is(err, croft.Invalid) {
		t.Errorf("riscv64: %v", err)
	}
}

func TestAMachineWhoseTPMHasLostItsStateDoesNotStart(t *testing.T) {
	d := &Driver{config: Config{TPMDir: t.TempDir()}}
	m := fixedMachine()
	m.Kind.TPM = true
	k := newMark(m)
	if err := d.checkTPM(m.ID, k); err != nil {
		t.Errorf("before the first start: %v", err)
	}
	k.TPM = tpmMade
	if err := d.checkTPM(m.ID, k); !errors.Is(err, croft.Conflict) {
		t.Errorf("without its state: %v", err)
	}
	dir := filepath.Join(d.config.TPMDir, string(m.ID), "tpm2")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.checkTPM(m.ID, k); !errors.Is(err, croft.Conflict) {
		t.Errorf("with an empty directory: %v", err)
	}
	file := filepath.Join(dir, "tpm2-00.permall")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.checkTPM(m.ID, k); !errors.Is(err, croft.Conflict) || !strings.Contains(err.Error(), file) {
		t.Errorf("with an empty file: %v", err)
	}
	if err := os.WriteFile(file, []byte("state"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.checkTPM(m.ID, k); err != nil {
		t.Errorf("with its state: %v", err)
	}
	if k := newMark(fixedMachine()); k.TPM != "" {
		t.Errorf("a machine without a TPM is marked with %q", k.TPM)
	}
}
