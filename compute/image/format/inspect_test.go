package format

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"

	"croft"
)

func TestInspectReadsWhatQemuMakes(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []string
		size    string
		virtual int64
	}{
		{"version 3", nil, "3G", 3 << 30},
		{"version 2", []string{"-o", "compat=0.10"}, "3G", 3 << 30},
		{"small clusters", []string{"-o", "cluster_size=512"}, "64M", 64 << 20},
		{"large clusters", []string{"-o", "cluster_size=2M"}, "1T", 1 << 40},
		{"zstd", []string{"-o", "compression_type=zstd"}, "1G", 1 << 30},
		{"extended entries", []string{"-o", "extended_l2=on"}, "100G", 100 << 30},
		{"preallocated tables", []string{"-o", "preallocation=metadata"}, "100M", 100 << 20},
		{"lazy reference counts", []string{"-o", "lazy_refcounts=on"}, "1G", 1 << 30},
		{"reference counts of a bit", []string{"-o", "refcount_bits=1"}, "1G", 1 << 30},
		{"a size that is not whole clusters", nil, "1000448", 1000448},
		{"the largest", nil, "64T", 64 << 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := InspectFile(made(t, "qcow2", c.size, c.options...))
			if want := (Info{"qcow2", c.virtual}); err != nil || got != want {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestInspectReadsWrittenAndCompressedImages(t *testing.T) {
	raw := writeFile(t, filepath.Join(t.TempDir(), "disk.raw"), bootDisk(8<<20))
	for _, options := range [][]string{{"-O", "qcow2"}, {"-c", "-O", "qcow2"}} {
		name := filepath.Join(t.TempDir(), "disk.qcow2")
		qemu(t, "qemu-img", append(append([]string{"convert", "-f", "raw"}, options...), raw, name)...)
		if got, err := InspectFile(name); err != nil || got != (Info{"qcow2", 8 << 20}) {
			t.Errorf("%v: got %+v, %v", options, got, err)
		}
		qemu(t, "qemu-img", "snapshot", "-c", "one", name)
		if _, err := InspectFile(name); err != nil {
			t.Errorf("%v with a snapshot: %v", options, err)
		}
	}
}

func TestInspectRefusesOtherFormats(t *testing.T) {
	base := made(t, "qcow2", "1G")
	for _, c := range []struct {
		name, format string
		options      []string
		words        string
	}{
		{"VMware's", "vmdk", nil, "VMDK"},
		{"VMware's, in pieces", "vmdk", []string{"-o", "subformat=twoGbMaxExtentSparse"}, "VMDK"},
		{"VirtualBox's", "vdi", nil, "VDI"},
		{"Hyper-V's", "vhdx", nil, "VHDX"},
		{"Virtual PC's", "vpc", nil, "VHD"},
		{"Virtual PC's of fixed size", "vpc", []string{"-o", "subformat=fixed"}, "VHD"},
		{"QED", "qed", nil, "QED"},
		{"Parallels'", "parallels", nil, "Parallels"},
		{"the first qcow", "qcow", nil, "version 1"},
		{"encrypted with AES", "qcow2", []string{"--object", "secret,id=s,data=x", "-o",
			"encrypt.format=aes,encrypt.key-secret=s"}, "encrypted"},
		{"a backing file", "qcow2", []string{"-b", base, "-F", "qcow2"}, "backing file \"" + base},
		{"a data file", "qcow2", []string{"-o", "data_file=" + filepath.Join(t.TempDir(), "data")}, "another file"},
		{"a raw disk that cannot boot", "raw", nil, "not a disk image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := InspectFile(made(t, c.format, "16M", c.options...))
			refused(t, err, c.words)
		})
	}
}

func TestInspectRefusesWhatIsNoDisk(t *testing.T) {
	pad := func(s string) []byte { return append([]byte(s), make([]byte, 64<<10)...) }
	at := func(place int, mark string) []byte { b := make([]byte, 64<<10); copy(b[place:], mark); return b }
	for _, c := range []struct {
		name    string
		content []byte
		words   string
	}{
		{"nothing", nil, "empty"},
		{"one byte", []byte{'Q'}, "not a disk image"},
		{"gzip", pad("\x1f\x8b\x08"), "gunzip"},
		{"xz", pad("\xfd7zXZ\x00"), "unxz"},
		{"zstd", pad("\x28\xb5\x2f\xfd"), "unzstd"},
		{"bzip2", pad("BZh9"), "bunzip2"},
		{"zip", pad("PK\x03\x04"), "unzip"},
		{"7-Zip", pad("7z\xbc\xaf\x27\x1c"), "7z x"},
		{"an appliance in a tar file", at(257, "ustar"), "tar"},
		{"a web page", pad("\n  <!DOCTYPE html><html>"), "web page"},
		{"an object store's error", pad("<?xml version=\"1.0\"?><Error>"), "web page"},
		{"LUKS", pad("LUKS\xba\xbe\x00\x02"), "encrypted"},
		{"a program", pad("\x7fELF"), "program"},
		{"a CD without descriptors", at(0x8001, "CD001"), "not an ISO 9660 image"},
		{"an Apple disk", at(64<<10-512, "koly"), "DMG"},
		{"text", pad("hello"), "not a disk image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := inspectBytes(c.content)
			refused(t, err, c.words)
		})
	}
}

func TestInspectTakesBootableRawDisks(t *testing.T) {
	at := func(size, place int, mark string) []byte { b := make([]byte, size); copy(b[place:], mark); return b }
	hybrid := at(1<<20, 510, "\x55\xaa")
	copy(hybrid[0x8001:], "CD001")
	for _, c := range []struct {
		name    string
		content []byte
		virtual int64
	}{
		{"a boot record", at(1<<20, 510, "\x55\xaa"), 1 << 20},
		{"a GUID partition table", at(1<<20, 512, "EFI PART"), 1 << 20},
		{"a GUID partition table with large sectors", at(1<<20, 4096, "EFI PART"), 1 << 20},
		{"half a sector is rounded up", at(1<<20+100, 510, "\x55\xaa"), 1<<20 + 512},
		{"an ISO that boots as a disk too", hybrid, 1 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := inspectBytes(c.content)
			if want := (Info{"raw", c.virtual}); err != nil || got != want {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestInspectRefusesDamagedQcow2(t *testing.T) {
	whole := read(t, made(t, "qcow2", "1G"))
	u32 := func(at int, v uint32) func([]byte) { return func(b []byte) { binary.BigEndian.PutUint32(b[at:], v) } }
	u64 := func(at int, v uint64) func([]byte) { return func(b []byte) { binary.BigEndian.PutUint64(b[at:], v) } }
	both := func(fs ...func([]byte)) func([]byte) {
		return func(b []byte) {
			for _, f := range fs {
				f(b)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func([]byte)
		words  string
	}{
		{"a version of the future", u32(4, 4), "version 4"},
		{"tiny clusters", u32(20, 8), "clusters of 2^8"},
		{"giant clusters", u32(20, 63), "clusters of 2^63"},
		{"no size", u64(24, 0), "no size"},
		{"more than 64 TiB", u64(24, 64<<40+512), "64 TiB"},
		{"a size that turns negative", u64(24, 1<<63), "64 TiB"},
		{"a size of no whole sectors", u64(24, 1<<30+1), "not a multiple of the sector size"},
		{"an L1 table too short for the disk", u32(36, 1), "L1 entries"},
		{"an L1 table of 32 GiB", u32(36, 1<<32-1), "L1 entries"},
		{"an L1 table outside", u64(40, 1<<40), "L1 table lies outside"},
		{"an L1 table at the end of all numbers", u64(40, ^uint64(0xffff)), "L1 table lies outside"},
		{"an L1 table between clusters", u64(40, 3<<16+8), "L1 table lies outside"},
		{"an L1 table in the header", u64(40, 0), "L1 table lies outside"},
		{"an L1 entry that leads outside", u64(3<<16, 1<<63|1<<40), "entry 0 of the L1 table"},
		{"no reference counts", u32(56, 0), "reference counts"},
		{"endless reference counts", u32(56, 1<<31), "reference counts"},
		{"reference counts outside", u64(48, 1<<40), "reference counts"},
		{"reference counts of 2^7 bits", u32(96, 7), "2^7 bits"},
		{"a header shorter than a header", u32(100, 80), "header of 80"},
		{"a header longer than a cluster", u32(100, 1<<20), "header of 1048576"},
		{"a header of odd length", u32(100, 113), "header of 113"},
		{"an extension that does not end", both(u32(112, 0x12345678), u32(116, 1<<31)), "extension"},
		{"an extension naming a data file", both(u32(112, extDataFile), u32(116, 8)), "another file"},
		{"encryption with LUKS", u32(32, 2), "encrypted"},
		{"an extension leading to a LUKS header", both(u32(112, extCrypto), u32(116, 16)), "encrypted"},
		{"an unknown feature", u64(72, 1<<40), "features"},
		{"the mark of corruption", u64(72, incompatCorrupt), "corrupt"},
		{"an unknown compression", both(u64(72, incompatCompression), func(b []byte) { b[104] = 9 }), "compressed"},
		{"a compression without its feature", func(b []byte) { b[104] = 1 }, "compressed"},
		{"a backing file's name outside", both(u64(8, 1<<40), u32(16, 5)), "backing file's name"},
		{"a backing file's name without end", both(u64(8, 200), u32(16, 1<<31)), "backing file's name"},
		{"a backing file's name over the header", both(u64(8, 4), u32(16, 5)), "backing file's name"},
		{"many snapshots", u32(60, 1<<20), "snapshots"},
		{"snapshots outside", both(u32(60, 1), u64(64, 1<<40)), "snapshots"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := bytes.Clone(whole)
			c.change(b)
			_, err := inspectBytes(b)
			refused(t, err, c.words)
		})
	}
	for _, n := range []int{4, 8, 71, 72, 103, 104, 111, 1 << 16, 3 << 16} {
		if _, err := inspectBytes(whole[:n]); croft.KindOf(err) != croft.Invalid {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
}

func TestInspectNoticesATruncatedImage(t *testing.T) {
	raw := writeFile(t, filepath.Join(t.TempDir(), "disk.raw"), bootDisk(8<<20))
	name := filepath.Join(t.TempDir(), "disk.qcow2")
	qemu(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, name)
	b := read(t, name)
	if _, err := inspectBytes(b[:4<<16]); err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("an image without its L2 table: %v", err)
	}
}

// For every layout of tables, an image whose last clusters are missing is rejected, and a complete one is accepted.
func TestInspectNoticesMissingClusters(t *testing.T) {
	content := bootDisk(8 << 20)
	for i := 4 << 20; i < 6<<20; i += 8 {
		binary.BigEndian.PutUint64(content[i:], uint64(i)*0x9e3779b97f4a7c15) // does not compress well
	}
	raw := writeFile(t, filepath.Join(t.TempDir(), "disk.raw"), content)
	for name, options := range map[string][]string{
		"plain":           nil,
		"version 2":       {"-o", "compat=0.10"},
		"small clusters":  {"-o", "cluster_size=512"},
		"large clusters":  {"-o", "cluster_size=2M"},
		"compressed":      {"-c"},
		"zstd":            {"-c", "-o", "compression_type=zstd"},
		"extended L2":     {"-o", "extended_l2=on,cluster_size=128k"},
		"metadata":        {"-o", "preallocation=metadata"},
		"zero clusters":   {"-S", "0"},
		"small and tight": {"-c", "-o", "cluster_size=16k"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "disk.qcow2")
			convert := append([]string{"convert", "-f", "raw", "-O", "qcow2"}, options...)
			qemu(t, "qemu-img", append(convert, raw, file)...)
			b := read(t, file)
			if _, err := inspectBytes(b); err != nil {
				t.Errorf("the whole image: %v", err)
			}
			h, err := ReadQcow2(bytes.NewReader(b), int64(len(b)))
			if err != nil {
				t.Fatal(err)
			}
			for _, missing := range []int{int(h.cluster()) + 1<<10, len(b) / 3} {
				_, err := inspectBytes(b[:len(b)-min(missing, len(b)-1)])
				refused(t, err, "cut short")
			}
		})
	}
}

// An image whose L1 entries all lead to the largest table costs as little as a real one.
func TestInspectReadsFewTablesOfAHostileImage(t *testing.T) {
	name := filepath.Join(t.TempDir(), "disk.qcow2")
	qemu(t, "qemu-img", "create", "-f", "qcow2", "-o", "cluster_size=2M", name, "32T")
	b := read(t, name)
	h, err := ReadQcow2(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, make([]byte, 2*h.cluster())...)
	table := uint64(len(b))&^uint64(h.cluster()-1) - uint64(h.cluster())
	for i := range h.l1Size {
		binary.BigEndian.PutUint64(b[h.l1Offset+uint64(i)*8:], 1<<63|table)
	}
	counted := &countingReader{Reader: bytes.NewReader(b)}
	if _, err := Inspect(counted, int64(len(b))); err != nil {
		t.Fatal(err)
	}
	if limit := int64(maxL2Bytes + maxL1Bytes); counted.read > limit {
		t.Errorf("read %d bytes, more than %d", counted.read, limit)
	}
}

type countingReader struct {
	*bytes.Reader
	read int64
}

func (c *countingReader) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.Reader.ReadAt(b, at)
	c.read += int64(n)
	return n, err
}
