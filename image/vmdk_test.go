package image

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
)

// transport is a disk as VMware's and VirtualBox's tools export it, made by QEMU.
func transport(t *testing.T, content []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	raw, out := filepath.Join(dir, "disk.raw"), filepath.Join(dir, "disk.vmdk")
	if err := os.WriteFile(raw, content, 0o600); err != nil {
		t.Fatal(err)
	}
	qemu(t, "qemu-img", "convert", "-f", "raw", "-O", "vmdk", "-o", "subformat=streamOptimized", raw, out)
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// withFooter is the same disk with the place of its tables told at its end.
func withFooter(b []byte) []byte {
	b = bytes.Clone(b)
	footer := make([]byte, vmdkFooter)
	binary.LittleEndian.PutUint64(footer, 1)
	binary.LittleEndian.PutUint32(footer[12:], vmdkFooterType)
	copy(footer[sector:], b[:vmdkHeader])
	binary.LittleEndian.PutUint64(b[vmdkGDPlace:], vmdkGDAtEnd)
	return append(b, footer...)
}

// described changes the description, whose length stays.
func described(b []byte, old, now string) []byte {
	b = bytes.Clone(b)
	at := bytes.Index(b, []byte(old))
	rest := b[at+len(old) : vmdkMaxText*sector]
	tail := append([]byte(now), rest...)
	copy(b[at:vmdkMaxText*sector], tail)
	return b
}

func TestFetchConvertsDisksForTransport(t *testing.T) {
	content := rawImage(1, 2<<20)
	plain := transport(t, content)
	for _, v := range []struct {
		name string
		body []byte
	}{
		{"as QEMU writes it", plain},
		{"with a footer, as VMware writes it", withFooter(plain)},
		{"packed", packed(t, "gzip", plain)},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := newServer(t, v.body), newCache(t)
			img := fetch(t, c, s.ref()+"#sha256="+sha(v.body))
			if img.Format != "qcow2" || img.VirtualSize != 2<<20 {
				t.Fatalf("%+v", img)
			}
			out := filepath.Join(t.TempDir(), "raw")
			qemu(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", img.Path, out)
			contentIs(t, out, content)
			if left := listDir(t, c.partDir()); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			c.http = nil // whoever asked for anything now would panic
			if got := fetch(t, c, "http://e/x#sha256="+sha(v.body)); got != img {
				t.Errorf("got %+v, want %+v", got, img)
			}
		})
	}
	name := writeFile(t, filepath.Join(t.TempDir(), "disk.vmdk"), plain)
	if img := fetch(t, newCache(t), name); img.Format != "qcow2" {
		t.Errorf("from a file: %+v", img)
	}
}

// TestVMDKsThatLeadElsewhere has the ways of CVE-2022-47951 to other files.
func TestVMDKsThatLeadElsewhere(t *testing.T) {
	plain := transport(t, rawImage(1, 2<<20))
	u64 := func(b []byte, at int, v uint64) []byte {
		b = bytes.Clone(b)
		binary.LittleEndian.PutUint64(b[at:], v)
		return b
	}
	u32 := func(b []byte, at int, v uint32) []byte {
		b = bytes.Clone(b)
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	footer := withFooter(plain)
	extent := `RW 4096 SPARSE "disk.vmdk"`
	monolithic := read(t, made(t, "vmdk", "2M", "-o", "subformat=monolithicSparse"))
	flat := read(t, made(t, "vmdk", "2M", "-o", "subformat=monolithicFlat"))
	base := made(t, "vmdk", "2M")
	backed := read(t, made(t, "vmdk", "2M", "-b", base, "-F", "vmdk"))
	for _, v := range []struct {
		name    string
		content []byte
		words   string
	}{
		{"a description alone, of a flat file", flat, "VMDK"},
		{"a description alone, of /etc/passwd", []byte("# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\nRW 8 FLAT \"/etc/passwd\" 0\n"), "VMDK"},
		{"a sparse disk that is not for transport", monolithic, "not packed for transport"},
		{"a disk on another", backed, "not packed for transport"},
		{"no size, so that the description counts", u64(plain, 12, 0), "other files"},
		{"another kind in the description", described(plain, vmdkStreamType, "monolithicFlat"), "monolithicFlat"},
		{"two kinds in the description", described(plain, extent, extent+"\ncreateType=\"monolithicFlat\""), "not one createType"},
		{"a flat extent", described(plain, extent, `RW 8 FLAT "/etc/passwd" 0`), "other files"},
		{"a flat extent beside its own", described(plain, extent, extent+"\nRW 8 FLAT \"/etc/passwd\" 0"), "other files"},
		{"two extents", described(plain, extent, extent+"\n"+extent), "2 places"},
		{"an extent in another directory", described(plain, extent, `RW 4096 SPARSE "/var/lib/x.vmdk"`), "other files"},
		{"an extent behind a protocol", described(plain, extent, `RW 4096 SPARSE "nbd:127.0.0.1:1"`), "other files"},
		{"an extent that cannot be read", described(plain, extent, `RW 4096 SPARSE "x" "y"`), "cannot be read"},
		{"an extent without a name", described(plain, extent, `RW 4096 ZERO`), "other files"},
		{"a device", described(plain, extent, `RW 4096 VMFSRDM "sda"`), "other files"},
		{"no extent", described(plain, extent, ""), "0 places"},
		{"a parent", described(plain, "parentCID=ffffffff", "parentCID=12345678"), "another file"},
		{"a parent's name", described(plain, extent, extent+"\nparentFileNameHint=\"/etc/passwd\""), "another file"},
		{"a parent's name where readers of text see the end", described(plain, extent, extent+"\n\x00\nparentFileNameHint=\"/etc/passwd\""), "another file"},
		{"a footer of no size", u64(footer, len(footer)-2*sector+12, 0), "header at its end"},
		{"a footer with another description", u64(footer, len(footer)-2*sector+28, 2), "header at its end"},
		{"a footer that is missing", footer[:len(footer)-vmdkFooter], "header at its end"},
		{"8 EiB", u64(plain, 12, 1<<54), "64 TiB"},
		{"all sectors there are", u64(plain, 12, 1<<64-1), "64 TiB"},
		{"a description outside", u64(plain, 28, 1<<31), "outside the file"},
		{"a description at the end of all numbers", u64(plain, 28, 1<<64-1), "in no place"},
		{"an endless description", u64(plain, 36, 1<<62), "in no place"},
		{"grains of no size", u64(plain, 20, 0), "tables"},
		{"endless grains", u64(plain, 20, 1<<63), "tables"},
		{"endless grain tables", u32(plain, 44, 1<<31), "tables"},
		{"cut short in the header", plain[:300], "cut short"},
		{"cut short in the description", plain[:700], "outside the file"},
		{"cut short in the data", plain[:len(plain)/2], "VMDK"},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := newServer(t, v.content), newCache(t)
			_, err := c.Fetch(t.Context(), s.ref(), nil)
			refused(t, c, err, croft.Invalid, v.words)
			if images := cacheHas(t, c); len(images) > 0 {
				t.Errorf("in the cache: %v", images)
			}
		})
	}
}

// instead puts a script in qemu-img's place.
func instead(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "qemu-img"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestConversionIsHeldToLimits(t *testing.T) {
	plain := transport(t, rawImage(1, 2<<20))
	for _, v := range []struct {
		name, script string
		change       func(*Cache)
		kind         croft.Kind
		words        string
	}{
		{"it takes for ever", "exec sleep 1000", func(c *Cache) { c.patience = 50 * time.Millisecond }, croft.Invalid, "longer than 50ms"},
		{"it writes for ever", "for out; do :; done\nexec cat /dev/zero > \"$out\"", func(c *Cache) { c.max = 8 << 20 }, croft.Invalid, "more than the 8 MiB"},
		{"it fills the disk", "for out; do :; done\nexec cat /dev/zero > \"$out\"",
			func(c *Cache) { c.free = func(string) (int64, error) { return slack + int64(len(plain)) + 4<<20, nil } }, croft.Unavailable, "free some space"},
		{"it takes all memory", "ulimit -v | grep -qx 2097152 || exit 0\necho out of memory >&2\nexit 1", func(*Cache) {}, croft.Invalid, "out of memory"},
		{"it says much", "yes complaint | head -c 100000 >&2\nexit 1", func(*Cache) {}, croft.Invalid, "complaint"},
		{"it makes no image", "for out; do :; done\nexec echo hello > \"$out\"", func(*Cache) {}, croft.Invalid, "no disk image"},
		{"it is told the formats", `[ "$1 $2 $3 $4 $5" = "convert -f vmdk -O qcow2" ] && echo as told >&2` + "\nexit 1", func(*Cache) {}, croft.Invalid, "as told"},
	} {
		t.Run(v.name, func(t *testing.T) {
			instead(t, v.script)
			s, c := newServer(t, plain), newCache(t)
			v.change(c)
			_, err := c.Fetch(t.Context(), s.ref(), nil)
			refused(t, c, err, v.kind, v.words)
			if len(err.Error()) > 1000 {
				t.Errorf("a sentence of %d bytes", len(err.Error()))
			}
		})
	}
	t.Run("it is not there", func(t *testing.T) {
		s, c := newServer(t, plain), newCache(t)
		t.Setenv("PATH", t.TempDir())
		_, err := c.Fetch(t.Context(), s.ref(), nil)
		refused(t, nil, err, croft.Unavailable, "qemu-utils")
	})
}

func FuzzVMDK(f *testing.F) {
	text := "# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType=\"streamOptimized\"\nRW 4096 SPARSE \"d\"\n"
	head := make([]byte, 21*sector)
	copy(head, vmdkMagic+"\x03\x00\x00\x00\x01\x00\x03\x00\x00\x10")
	binary.LittleEndian.PutUint64(head[20:], 128)
	binary.LittleEndian.PutUint64(head[28:], 1)
	binary.LittleEndian.PutUint64(head[36:], 20)
	binary.LittleEndian.PutUint32(head[44:], 512)
	binary.LittleEndian.PutUint64(head[vmdkGDPlace:], 21)
	head[77] = vmdkDeflate
	copy(head[sector:], text)
	if err := inspectVMDK(bytes.NewReader(head), int64(len(head))); err != nil {
		f.Fatal(err)
	}
	f.Add(head)
	f.Add(withFooter(head))
	f.Add(described(head, "SPARSE", "FLAT"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &strictReader{t: t, b: b}
		err := inspectVMDK(r, int64(len(b)))
		if err != nil && croft.KindOf(err) != croft.Invalid {
			t.Errorf("kind %q: %v", croft.KindOf(err), err)
		}
		if err != nil {
			return
		}
		h, _ := parseVMDK(b)
		text, _, _ := bytes.Cut(b[h.textAt*sector:min(len(b), int(h.textAt+vmdkMaxText)*sector)], []byte{0})
		var extents []string
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(line); len(words) > 2 && words[0] == "RW" {
				extents = append(extents, words[2])
			}
		}
		if len(extents) > 1 || len(extents) == 1 && extents[0] != "SPARSE" {
			t.Errorf("taken with the extents %q", extents)
		}
	})
}
