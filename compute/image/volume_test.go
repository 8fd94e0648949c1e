package image

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"croft"
)

func TestAVolumeIsAnEmptyDiskThatGrowsAndKeepsItsData(t *testing.T) {
	qemu, err := exec.LookPath("qemu-img")
	if err != nil {
		t.Skip("qemu-img checks the disks")
	}
	dir := t.TempDir()
	c := newCache(t)
	file := filepath.Join(dir, "disk.qcow2")
	size := func(want int64) {
		t.Helper()
		out, err := exec.Command(qemu, "info", "--output=json", file).Output()
		var info struct {
			Virtual int64  `json:"virtual-size"`
			Backing string `json:"backing-filename"`
		}
		if err != nil || json.Unmarshal(out, &info) != nil || info.Virtual != want<<30 || info.Backing != "" {
			t.Fatalf("%s: %v, want %d GiB", out, err, want)
		}
		if out, err := exec.Command(qemu, "check", file).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	if err := c.Volume(t.Context(), file, 2); err != nil {
		t.Fatal(err)
	}
	size(2)
	write := exec.Command("qemu-io", "-c", "write -P 7 1G 64k", file)
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	for _, want := range []int64{2, 40, 40, croft.MaxVolumeGB} {
		if err := c.Volume(t.Context(), file, want); err != nil {
			t.Fatal(err)
		}
		size(want)
	}
	if err := c.Volume(t.Context(), file, 1); err != nil {
		t.Fatal(err)
	}
	size(croft.MaxVolumeGB)
	if out, err := exec.Command("qemu-io", "-c", "read -P 7 1G 64k", file).CombinedOutput(); err != nil {
		t.Errorf("%s: %v", out, err)
	}
	err = c.Volume(t.Context(), filepath.Join(dir, "large"), croft.MaxVolumeGB+1)
	if croft.KindOf(err) != croft.Invalid {
		t.Errorf("too large: %v", err)
	}
}
