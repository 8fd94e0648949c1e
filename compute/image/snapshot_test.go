package image

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/compute"
)

// qemuIO runs one command of qemu-io on a disk.
func qemuIO(t *testing.T, file, command string) {
	t.Helper()
	out, err := exec.Command("qemu-io", "-c", command, file).CombinedOutput()
	if err != nil || strings.Contains(string(out), "verification failed") {
		t.Fatalf("%s of %s: %v: %s", command, file, err, out)
	}
}

// snapshotted returns a disk with two overlays, the topmost first. Each layer has data of its own in the first three
// clusters: the disk 1 1 1, the lower overlay - 2 2, the topmost - - 3.
func snapshotted(t *testing.T, c *Cache) []compute.Layer {
	t.Helper()
	if _, err := exec.LookPath("qemu-io"); err != nil {
		t.Skip("qemu-io writes and reads the disks")
	}
	dir := t.TempDir()
	var layers []compute.Layer
	for i, name := range []string{"disk.qcow2", "disk.a.qcow2", "disk.b.qcow2"} {
		layer := compute.Layer{Path: filepath.Join(dir, name), Format: "qcow2"}
		var err error
		if i == 0 {
			err = c.Volume(t.Context(), layer.Path, 1)
		} else {
			err = c.Overlay(t.Context(), layer.Path, layers[0])
		}
		if err != nil {
			t.Fatal(err)
		}
		layers = append([]compute.Layer{layer}, layers...)
		qemuIO(t, layer.Path, []string{"write -P 1 0 192k", "write -P 2 64k 128k", "write -P 3 128k 64k"}[i])
	}
	return layers
}

// reads checks the pattern of each of the first three clusters of a disk.
func reads(t *testing.T, file string, patterns ...string) {
	t.Helper()
	for i, pattern := range patterns {
		qemuIO(t, file, "read -P "+pattern+" "+[]string{"0", "64k", "128k"}[i]+" 64k")
	}
}

func TestAMergeInTheMiddleKeepsTheDisk(t *testing.T) {
	c := newCache(t)
	layers := snapshotted(t, c)
	reads(t, layers[0].Path, "1", "2", "3")
	reads(t, layers[1].Path, "1", "2", "2")
	for range 2 { // a merge that was interrupted is repeated
		if err := c.Merge(t.Context(), layers[1:]); err != nil {
			t.Fatal(err)
		}
		if err := c.Rebase(t.Context(), layers[0].Path, layers[2]); err != nil {
			t.Fatal(err)
		}
		reads(t, layers[0].Path, "1", "2", "3")
	}
	reads(t, layers[2].Path, "1", "2", "2")
	if below, err := c.Below(layers[0].Path); err != nil || below != layers[2].Path {
		t.Errorf("below the topmost file is %q, %v", below, err)
	}
	if below, err := c.Below(layers[2].Path); err != nil || below != "" {
		t.Errorf("below the disk is %q, %v", below, err)
	}
}

func TestAMergeFollowsNoNameInAHeader(t *testing.T) {
	c := newCache(t)
	layers := snapshotted(t, c)
	other := compute.Layer{Path: filepath.Join(t.TempDir(), "disk.qcow2"), Format: "qcow2"}
	if err := c.Volume(t.Context(), other.Path, 1); err != nil {
		t.Fatal(err)
	}
	qemuIO(t, other.Path, "write -P 9 0 192k")
	if err := c.Rebase(t.Context(), layers[0].Path, other); err != nil { // as a guest that took over its QEMU might
		t.Fatal(err)
	}
	if err := c.Merge(t.Context(), layers); err != nil {
		t.Fatal(err)
	}
	reads(t, layers[1].Path, "1", "2", "3")
	reads(t, other.Path, "9", "9", "9")
}

func TestAHostWithoutSpaceMakesNoOverlayAndMergesNothing(t *testing.T) {
	c := newCache(t)
	layers := snapshotted(t, c)
	c.space.free = func(string) (int64, error) { return slack, nil }
	over := filepath.Join(filepath.Dir(layers[0].Path), "disk.c.qcow2")
	for what, err := range map[string]error{
		"overlay": c.Overlay(t.Context(), over, layers[0]),
		"merge":   c.Merge(t.Context(), layers),
		"fits":    c.Fits(layers[0].Path),
	} {
		if croft.KindOf(err) != croft.Unavailable || !strings.Contains(err.Error(), "free some space there") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if found, err := filepath.Glob(over + "*"); err != nil || len(found) > 0 {
		t.Errorf("left are %v, %v", found, err)
	}
	reads(t, layers[1].Path, "1", "2", "2")
}
