package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/compute"
)

// stored adds content to the cache through a file and returns its image.
func stored(t *testing.T, c *Cache, content []byte) compute.CachedImage {
	t.Helper()
	return fetch(t, c, writeFile(t, filepath.Join(t.TempDir(), "source"), content))
}

func makeDisk(t *testing.T, c *Cache, img compute.CachedImage, dir string, sizeGB int64) []compute.Layer {
	t.Helper()
	layers, err := c.Disk(t.Context(), img, dir, sizeGB)
	if err != nil {
		t.Fatal(err)
	}
	return layers
}

// qemuInfo is the relevant part of qemu-img's output.
type qemuInfo struct {
	VirtualSize   int64  `json:"virtual-size"`
	Format        string `json:"format"`
	BackingFile   string `json:"full-backing-filename"`
	BackingFormat string `json:"backing-filename-format"`
}

func infoOf(t *testing.T, name string) (info qemuInfo) {
	t.Helper()
	if err := json.Unmarshal([]byte(qemu(t, "qemu-img", "info", "--output=json", name)), &info); err != nil {
		t.Fatal(err)
	}
	return info
}

func TestDiskIsAnOverlayThatQemuFindsRight(t *testing.T) {
	qcow := read(t, made(t, "qcow2", "1G"))
	for _, v := range []struct {
		name    string
		content []byte
		format  string
		sizeGB  int64
	}{
		{"over qcow2", qcow, "qcow2", 1},
		{"over raw", rawImage(1, 1<<20), "raw", 1},
		{"of 5 TiB, whose L1 table has more than a cluster", qcow, "qcow2", 5 << 10},
		{"of 64 TiB, the largest", qcow, "qcow2", 64 << 10},
	} {
		t.Run(v.name, func(t *testing.T) {
			c, dir := newCache(t), filepath.Join(t.TempDir(), "instance")
			img := stored(t, c, v.content)
			layers := makeDisk(t, c, img, dir, v.sizeGB)
			disk, base := filepath.Join(dir, "disk.qcow2"), filepath.Join(dir, "base."+v.format)
			if want := []compute.Layer{{Path: disk, Format: "qcow2"},
				{Path: base, Format: v.format, Shared: true}}; !slices.Equal(layers, want) {
				t.Errorf("layers %v, want %v", layers, want)
			}
			qemu(t, "qemu-img", "check", "-q", disk)
			if got, want := infoOf(t, disk), (qemuInfo{v.sizeGB << 30, "qcow2", base, v.format}); got != want {
				t.Errorf("QEMU reads %+v, want %+v", got, want)
			}
			sameFile(t, base, img.Path)
			if left := listDir(t, dir); len(left) != 2 {
				t.Errorf("in the directory: %v", left)
			}
		})
	}
}

func sameFile(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.Stat(b)
	if err != nil || !os.SameFile(x, y) {
		t.Errorf("%s is not the same file as %s: %v", a, b, err)
	}
}

func TestDiskKeepsWhatAGuestWrites(t *testing.T) {
	c, dir := newCache(t), t.TempDir()
	content := rawImage(1, 1<<20)
	img := stored(t, c, content)
	disk := makeDisk(t, c, img, dir, 2)[0].Path
	qemu(t, "qemu-io", "-f", "qcow2", "-c", "write -P 0x5a 512 64k", "-c", "write -P 0x7b 2047M 1M", disk)
	makeDisk(t, c, img, dir, 2)
	qemu(t, "qemu-io", "-f", "qcow2", "-c", "read -P 0x5a 512 64k", "-c", "read -P 0x7b 2047M 1M", "-c",
		"read -P 0 1G 64k", disk)
	qemu(t, "qemu-img", "check", "-q", disk)
	contentIs(t, img.Path, content)
}

func TestDiskKeepsAGuestsBaseWhenTheImageChanged(t *testing.T) {
	c, dir := newCache(t), t.TempDir()
	older, newer := stored(t, c, rawImage(1, 1<<20)), stored(t, c, rawImage(2, 1<<20))
	makeDisk(t, c, older, dir, 1)
	layers := makeDisk(t, c, newer, dir, 1)
	sameFile(t, layers[1].Path, older.Path)
}

func TestDiskMakesATornDiskAgain(t *testing.T) {
	for _, v := range []struct {
		name string
		tear func(dir, disk, base string) error
	}{
		{"nothing but zeros, as after a power cut", func(_, disk,
			_ string) error {
			return os.WriteFile(disk, make([]byte, 4<<16), 0o600)
		}},
		{"cut short", func(_, disk, _ string) error { return os.Truncate(disk, 5000) }},
		{"empty", func(_, disk, _ string) error { return os.Truncate(disk, 0) }},
		{"without its base", func(_, _, base string) error { return os.Remove(base) }},
		{"without the overlay", func(_, disk, _ string) error { return os.Remove(disk) }},
		{"beside what a kill left", func(_, disk, base string) error {
			return errors.Join(os.Remove(disk), os.WriteFile(disk+tempSuffix, []byte("half"), 0o600),
				os.WriteFile(base+tempSuffix, []byte("half"), 0o600))
		}},
		{"over another base", func(_, disk, base string) error {
			return errors.Join(os.Remove(disk), os.Remove(base), os.WriteFile(base, []byte("older"), 0o644))
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			c, dir := newCache(t), t.TempDir()
			img := stored(t, c, rawImage(1, 1<<20))
			layers := makeDisk(t, c, img, dir, 1)
			if err := v.tear(dir, layers[0].Path, layers[1].Path); err != nil {
				t.Fatal(err)
			}
			makeDisk(t, c, img, dir, 1)
			qemu(t, "qemu-img", "check", "-q", layers[0].Path)
			sameFile(t, layers[1].Path, img.Path)
		})
	}
}

func TestDiskNeverReplacesAGuestsData(t *testing.T) {
	for _, v := range []struct {
		name   string
		spoil  func(disk, base string) error
		sizeGB int64
		words  string
	}{
		{"that is larger", func(disk, _ string) error {
			return exec.Command("qemu-img", "resize", "-q", disk, "2G").Run()
		}, 1, "2 GiB, not 1 GiB"},
		{"without its base", func(_, base string) error { return os.Remove(base) }, 1, "base image is gone"},
		{"with a damaged header", func(disk, _ string) error {
			f, err := os.OpenFile(disk, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt(make([]byte, 4096), 0)
			return err
		}, 1, "damaged"},
	} {
		t.Run(v.name, func(t *testing.T) {
			c, dir := newCache(t), t.TempDir()
			img := stored(t, c, rawImage(1, 1<<20))
			layers := makeDisk(t, c, img, dir, 1)
			qemu(t, "qemu-io", "-f", "qcow2", "-c", "write -P 0x5a 0 64k", layers[0].Path)
			if err := v.spoil(layers[0].Path, layers[1].Path); err != nil {
				t.Fatal(err)
			}
			before := read(t, layers[0].Path)
			_, err := c.Disk(t.Context(), img, dir, v.sizeGB)
			refused(t, nil, err, croft.Conflict, layers[0].Path, v.words)
			contentIs(t, layers[0].Path, before)
		})
	}
}

func TestDiskRefusesASizeThatIsTooSmall(t *testing.T) {
	c := newCache(t)
	img := stored(t, c, read(t, made(t, "qcow2", "2500M")))
	for _, v := range []struct {
		sizeGB int64
		words  string
	}{{2, "DISK_GB:3"}, {0, "from 1 to 65536"}, {-1, "from 1 to 65536"}, {65537, "from 1 to 65536"}} {
		dir := filepath.Join(t.TempDir(), "instance")
		_, err := c.Disk(t.Context(), img, dir, v.sizeGB)
		refused(t, nil, err, croft.Invalid, v.words)
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("DISK_GB %d: something was made", v.sizeGB)
		}
	}
	makeDisk(t, c, img, t.TempDir(), 3)
}

func TestDiskCopiesTheImageToAnotherFileSystem(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "croft-image-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := newCache(t)
	content := rawImage(1, 1<<20)
	img := stored(t, c, content)
	layers := makeDisk(t, c, img, dir, 1)
	contentIs(t, layers[1].Path, content)
	qemu(t, "qemu-img", "check", "-q", layers[0].Path)
	makeDisk(t, c, img, dir, 1)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Disk(ctx, img, filepath.Join(dir, "other"), 1)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the caller's end", err)
	}
	if left := listDir(t, filepath.Join(dir, "other")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDiskNeedsRoomAndTheImage(t *testing.T) {
	c, dir := newCache(t), t.TempDir()
	img := stored(t, c, rawImage(1, 1<<20))
	c.space.free = func(string) (int64, error) { return slack, nil }
	_, err := c.Disk(t.Context(), img, dir, 1)
	refused(t, nil, err, croft.Unavailable, dir, "free some space")
	c.space.free = freeBytes
	if err := os.Remove(img.Path); err != nil {
		t.Fatal(err)
	}
	_, err = c.Disk(t.Context(), img, dir, 1)
	refused(t, nil, err, croft.Unavailable, "was removed from the cache")
	if left := listDir(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDiskRefusesAPathLongerThanTheFormatAllows(t *testing.T) {
	c := newCache(t)
	img := stored(t, c, rawImage(1, 1<<20))
	dir := filepath.Join(t.TempDir(), strings.Repeat(strings.Repeat("d", 200)+"/", 5))
	_, err := c.Disk(t.Context(), img, dir, 1)
	refused(t, nil, err, croft.Invalid, "1023 bytes")
}

func TestManyDisksOfOneImage(t *testing.T) {
	c, dir := newCache(t), t.TempDir()
	img := stored(t, c, rawImage(1, 1<<20))
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if _, err := c.Disk(t.Context(), img, filepath.Join(dir, fmt.Sprint(i)), 1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A disk grows with its guest's data, also beyond what its table had entries for, and does not shrink.
func TestADiskGrowsAndKeepsItsData(t *testing.T) {
	c, dir := newCache(t), t.TempDir()
	err := c.Enlarge(t.Context(), filepath.Join(dir, diskFile), 2)
	if croft.KindOf(err) != croft.NotFound {
		t.Errorf("without a disk: %v", err)
	}
	img := stored(t, c, read(t, made(t, "qcow2", "1G")))
	name := makeDisk(t, c, img, dir, 1)[0].Path
	qemu(t, "qemu-io", "-c", "write -P 7 512M 64k", name)
	for _, size := range []int64{1, 2, 40, 40, 4096} {
		if err := c.Enlarge(t.Context(), name, size); err != nil {
			t.Fatal(err)
		}
		if info := infoOf(t, name); info.VirtualSize != size<<30 {
			t.Fatalf("it has %d bytes, want %d GiB", info.VirtualSize, size)
		}
		qemu(t, "qemu-img", "check", name)
	}
	if err := c.Enlarge(t.Context(), name, 1); err != nil || infoOf(t, name).VirtualSize != 4096<<30 {
		t.Errorf("to a smaller size: %v", err)
	}
	qemu(t, "qemu-io", "-c", "read -P 7 512M 64k", "-c", "write -P 8 4095G 64k", name)
	qemu(t, "qemu-io", "-c", "read -P 8 4095G 64k", name)
	if err := c.Enlarge(t.Context(), name, 8192); croft.KindOf(err) != croft.Invalid {
		t.Errorf("beyond the tables: %v", err)
	}
}

// A build that is repeated after the instance got another size makes its disk larger.
func TestTheDiskOfAnEarlierSizeIsMadeLarger(t *testing.T) {
	c, dir := newCache(t), t.TempDir()
	img := stored(t, c, read(t, made(t, "qcow2", "1G")))
	name := makeDisk(t, c, img, dir, 1)[0].Path
	qemu(t, "qemu-io", "-c", "write -P 7 512M 64k", name)
	makeDisk(t, c, img, dir, 3)
	if info := infoOf(t, name); info.VirtualSize != 3<<30 {
		t.Errorf("it has %d bytes, want 3 GiB", info.VirtualSize)
	}
	qemu(t, "qemu-io", "-c", "read -P 7 512M 64k", name)
}
