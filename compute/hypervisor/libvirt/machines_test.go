package libvirt

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
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
	for name, c := range map[string]struct {
		text string
		want []croft.Trait
	}{
		"everything": {whole, []croft.Trait{croft.TraitUEFI, croft.TraitSecureBoot, croft.TraitTPM, croft.TraitScreen,
			croft.TraitPlain, croft.TraitCD, croft.TraitWindows, croft.TraitBoot}},
		"no firmware": {`<domainCapabilities><os supported="yes"><enum name="firmware"/><loader supported="yes">
			<enum name="secure"><value>yes</value></enum></loader></os></domainCapabilities>`,
			[]croft.Trait{croft.TraitWindows, croft.TraitBoot}},
		"firmware without secure boot, and a TPM of the host alone": {`<domainCapabilities><os supported="yes">
			<enum name="firmware"><value>efi</value></enum><loader supported="yes"><enum name="secure"><value>no</value>
			</enum></loader></os><devices><tpm supported="yes"><enum name="backendModel"><value>passthrough</value></enum>
			</tpm></devices></domainCapabilities>`, []croft.Trait{croft.TraitUEFI, croft.TraitWindows,
			croft.TraitBoot}},
		"nothing": {`<domainCapabilities/>`, []croft.Trait{croft.TraitWindows, croft.TraitBoot}},
	} {
		if got, err := machinesIn(c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if _, err := machinesIn("<"); err == nil {
		t.Error("half a text was read")
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
	if err := os.Mkdir(filepath.Join(d.config.TPMDir, string(m.ID)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.checkTPM(m.ID, k); err != nil {
		t.Errorf("with its state: %v", err)
	}
	if k := newMark(fixedMachine()); k.TPM != "" {
		t.Errorf("a machine without a TPM is marked with %q", k.TPM)
	}
}
