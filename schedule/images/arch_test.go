package images

import (
	"testing"

	"croft"
)

func TestTheNameOrAddressOfAnImageMaySayItsArchitecture(t *testing.T) {
	for text, want := range map[string]croft.Arch{
		"debian-12": "", "https://example.com/debian-12-genericcloud-arm64.qcow2": croft.ArchAArch64,
		"Fedora-Cloud-Base-Generic-43.aarch64.qcow2": croft.ArchAArch64,
		"debian-12-amd64": croft.ArchX86,
		"https://example.com/x86_64/Rocky-10.latest.x86_64.img": croft.ArchX86,
		"arm64 https://example.com/amd64/debian.qcow2":          "",
		"https://example.com/disk.qcow2#sha256=00arm64":         "",
		"harm64": "", "64": "", "x86": "", "": "",
	} {
		if got := GuessArch(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
