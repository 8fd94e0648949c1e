package libvirt

import "testing"

func TestReadersAreTheGroupOfQEMU(t *testing.T) {
	const models = `<capabilities><host>
		<secmodel><model>apparmor</model><doi>0</doi><baselabel type="kvm">a:b</baselabel></secmodel>
		<secmodel><model>dac</model><doi>0</doi>
			<baselabel type="kvm">+64055:+107</baselabel><baselabel type="qemu">+64055:+108</baselabel>
		</secmodel></host></capabilities>`
	for _, c := range []struct{ name, capabilities, virt, want string }{
		{"under KVM", models, VirtKVM, "+0:+107"},
		{"emulated", models, VirtQEMU, "+0:+108"},
		{"a libvirt that runs QEMU as itself", `<capabilities><host/></capabilities>`, VirtKVM, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := parseReaders(c.capabilities, c.virt, 0); err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	if _, err := parseReaders("<capabilities", VirtKVM, 0); err == nil {
		t.Error("capabilities that cannot be read are taken")
	}
}
