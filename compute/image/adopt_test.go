package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/compute"
)

// A disk that was copied from another host stands on this host's file of the image, wherever that is, and a repetition
// changes nothing.
func TestAnAdoptedDiskStandsOnTheImageOfThisHost(t *testing.T) {
	for _, kind := range []string{"qcow2", "raw"} {
		t.Run(kind, func(t *testing.T) {
			content := rawImage(1, 1<<20)
			if kind == "qcow2" {
				content = read(t, made(t, "qcow2", "1G"))
			}
			here, there := newCache(t), newCache(t)
			from, to := t.TempDir(), filepath.Join(t.TempDir(), strings.Repeat("long/", 20))
			disk := makeDisk(t, here, stored(t, here, content), from, 2)[0].Path
			qemu(t, "qemu-io", "-f", "qcow2", "-c", "write -P 0x5a 512k 64k", "-c", "write -P 0x77 1536M 64k", disk)
			base, err := here.Base(t.Context(), from)
			if err != nil || base.Format != kind || base.Digest != sha(content) {
				t.Fatalf("the base is %+v, %v", base, err)
			}
			if err := os.MkdirAll(to, 0o711); err != nil {
				t.Fatal(err)
			}
			staged := writeFile(t, filepath.Join(to, "disk.qcow2.arriving"), read(t, disk))
			img := stored(t, there, content)
			var layers []compute.Layer
			for range 2 {
				if layers, err = there.Adopt(t.Context(), img, to, staged, 2); err != nil {
					t.Fatal(err)
				}
			}
			want := filepath.Join(to, "base."+kind)
			info := infoOf(t, layers[0].Path)
			if info.BackingFile != want || info.BackingFormat != kind || info.VirtualSize != 2*gib ||
				layers[1].Path != want {
				t.Errorf("it is %+v, with the layers %+v", info, layers)
			}
			qemu(t, "qemu-img", "check", layers[0].Path)
			qemu(t, "qemu-img", "compare", disk, layers[0].Path)
			again, err := there.Base(t.Context(), to) // as for an image that was copied too
			if err != nil || again.Digest != base.Digest {
				t.Fatalf("the base is %+v, %v", again, err)
			}
			if _, err := there.Adopt(t.Context(), again, to, staged, 2); err != nil {
				t.Error(err)
			}
		})
	}
}

// A disk that was restored from a backup has no image below it.
func TestAnAdoptedDiskMayHaveNoImage(t *testing.T) {
	c := newCache(t)
	right := made(t, "qcow2", "2G")
	qemu(t, "qemu-io", "-f", "qcow2", "-c", "write -P 0x5a 512k 64k", right)
	outside := filepath.Join(t.TempDir(), "outside")
	img := stored(t, c, read(t, made(t, "qcow2", "1G")))
	for name, file := range map[string]string{
		"":                     right,
		"no qcow2":             writeFile(t, filepath.Join(t.TempDir(), "raw"), rawImage(1, 1<<20)),
		"data in another file": made(t, "qcow2", "2G", "-o", "data_file="+outside),
		"of another size":      made(t, "qcow2", "3G"),
		"above an image":       made(t, "qcow2", "2G", "-b", img.Path, "-F", "qcow2"),
	} {
		dir := t.TempDir()
		staged := writeFile(t, filepath.Join(dir, "disk.qcow2.arriving"), read(t, file))
		for range 2 {
			layers, err := c.Adopt(t.Context(), compute.CachedImage{}, dir, staged, 2)
			if refused := errors.Is(err, croft.Invalid); refused != (name != "") || err == nil && len(layers) != 1 {
				t.Errorf("%q: %+v, %v", name, layers, err)
			}
		}
		if name == "" {
			qemu(t, "qemu-img", "compare", right, filepath.Join(dir, "disk.qcow2"))
		}
	}
	if below, err := c.Below(made(t, "qcow2", "2G", "-o", "data_file="+outside)); !errors.Is(err, croft.Invalid) {
		t.Errorf("the layer below a disk with its data elsewhere is %q, %v", below, err)
	}
}

// Another host may send any bytes: what refers to further files, or is no disk of this size above this image, is
// refused.
func TestWhatIsNoDiskAboveTheImageIsNotAdopted(t *testing.T) {
	c := newCache(t)
	img := stored(t, c, read(t, made(t, "qcow2", "1G")))
	right := makeDisk(t, c, img, t.TempDir(), 2)[0].Path
	qemu(t, "qemu-io", "-f", "qcow2", "-c", "write 0 1M", right)
	outside := filepath.Join(t.TempDir(), "outside")
	for name, file := range map[string]string{
		"no qcow2":             writeFile(t, filepath.Join(t.TempDir(), "raw"), rawImage(1, 1<<20)),
		"nothing":              writeFile(t, filepath.Join(t.TempDir(), "nothing"), nil),
		"cut off":              writeFile(t, filepath.Join(t.TempDir(), "cut"), read(t, right)[:80]),
		"no image below":       made(t, "qcow2", "2G"),
		"data in another file": made(t, "qcow2", "2G", "-o", "data_file="+outside),
		"of another size":      made(t, "qcow2", "3G", "-b", img.Path, "-F", "qcow2"),
		"above a raw file":     made(t, "qcow2", "2G", "-b", img.Path, "-F", "raw"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			staged := writeFile(t, filepath.Join(dir, "disk.qcow2.arriving"), read(t, file))
			for range 2 {
				if _, err := c.Adopt(t.Context(), img, dir, staged, 2); !errors.Is(err, croft.Invalid) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	if _, err := c.Base(t.Context(), t.TempDir()); !errors.Is(err, croft.NotFound) {
		t.Errorf("the base of no disk: %v", err)
	}
}
