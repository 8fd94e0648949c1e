package libvirt

import (
	"os"
	"path/filepath"
	"testing"
)

func TestADomainWithoutAMetadataDiskNeedsTheServer(t *testing.T) {
	const root = `<disk type="file" device="disk"><source file="/a/instances/1/root.qcow2"/></disk>`
	for _, c := range []struct {
		name, disks string
		needs       bool
	}{
		{"no metadata disk", root, true},
		{"a metadata disk", root + `<disk type="file" device="cdrom"><source file="/a/instances/1/seed.iso"/></disk>`,
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk, needs, err := parseMetadata(`<domain><devices>` + c.disks + `</devices></domain>`)
			if err != nil || needs != c.needs || disk != "/a/instances/1/root.qcow2" {
				t.Errorf("got %q, %v, %v", disk, needs, err)
			}
		})
	}
	if _, _, err := parseMetadata("<domain"); err == nil {
		t.Error("XML that cannot be read is accepted")
	}
}

func TestAnInstanceIsBelowItsStateDirectoryByAnyPath(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "one", "root.qcow2")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "one"), link); err != nil {
		t.Fatal(err)
	}
	for below, want := range map[string]bool{filepath.Join(dir, "one"): true, link: true, dir: true,
		filepath.Join(dir, "on"): false, filepath.Join(dir, "two"): false} {
		if isBelow(below, file) != want {
			t.Errorf("below %s: %v", below, !want)
		}
	}
	t.Chdir(dir)
	if !isBelow("one", file) {
		t.Error("below a relative directory: false")
	}
}
