package image

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/compute/image/format"
)

const sector = 512

// onTopOf returns a complete qcow2 image with this backing file name.
func onTopOf(t *testing.T, name, backingFormat string) []byte {
	t.Helper()
	o := format.Overlay{Virtual: 1 << 30, Backing: name, BackingFormat: backingFormat}
	file := filepath.Join(t.TempDir(), "disk.qcow2")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(o.Length()); err != nil {
		t.Fatal(err)
	}
	if err := o.Write(f); err != nil {
		t.Fatal(err)
	}
	return read(t, file)
}

// marked returns a copy with marks at their offsets.
func marked(b []byte, marks map[int]string) []byte {
	b = bytes.Clone(b)
	for at, mark := range marks {
		if need := at + len(mark); need > len(b) {
			b = append(b, make([]byte, need-len(b))...)
		}
		copy(b[at:], mark)
	}
	return b
}

// TestHostileImagesGetNothing fetches each image from a server and from a file of the host.
func TestHostileImagesGetNothing(t *testing.T) {
	secret := writeFile(t, filepath.Join(t.TempDir(), "secret"), rawImage(1, 1<<20))
	boot, cd := map[int]string{510: "\x55\xaa"}, map[int]string{0x8001: "CD001"}
	data := filepath.Join(t.TempDir(), "data")
	for _, v := range []struct {
		name    string
		content []byte
		words   string
	}{
		{"a backing file of the host", onTopOf(t, "/etc/passwd", "raw"), "backing file"},
		{"a backing file beside it", onTopOf(t, "secret", "raw"), "backing file"},
		{"a backing file without a format", onTopOf(t, secret, ""), "backing file"},
		{"a backing file on a server", onTopOf(t, "nbd://127.0.0.1:10809/x", "raw"), "backing file"},
		{"a backing file by HTTP", onTopOf(t, "http://169.254.169.254/latest/user-data", "raw"), "backing file"},
		{"a backing file as JSON", onTopOf(t, `json:{"driver":"raw","file":{"driver":"file","filename":"/etc/passwd"}}`,
			"raw"), "backing file"},
		{"a backing file as JSON that names a program", onTopOf(t,
			`json:{"file.driver":"ssh","file.host":"127.0.0.1","file.path":"/etc/shadow"}`, ""), "backing file"},
		{"a backing file behind file:", onTopOf(t, "file:/etc/passwd", "raw"), "backing file"},
		{"a backing file that is a format's word", onTopOf(t, "fat:rw:/etc", "raw"), "backing file"},
		{"a data file", read(t, made(t, "qcow2", "16M", "-o", "data_file="+data)), "another file"},
		{"a data file read as raw", read(t, made(t, "qcow2", "16M", "-o", "data_file="+data+"2,data_file_raw=on")),
			"another file"},
		{"a qcow2 with a boot record", marked(onTopOf(t, secret, "raw"), boot), "backing file"},
		{"a qcow2 that is a CD too", marked(onTopOf(t, secret, "raw"), cd), "backing file"},
		{"a qcow2 that ends as a VHD", marked(onTopOf(t, secret, "raw"),
			map[int]string{5 << 16: "conectix" + strings.Repeat("\x00", 504)}), "backing file"},
		{"a boot record that ends as a VHD", marked(rawImage(1, 1<<20), map[int]string{1<<20 - sector: "conectix"}),
			"VHD"},
		{"a boot record that ends as a DMG", marked(rawImage(1, 1<<20), map[int]string{1<<20 - sector: "koly"}), "DMG"},
		{"a boot record after the magic of qcow version 1", marked(rawImage(1, 1<<20),
			map[int]string{0: "QFI\xfb\x00\x00\x00\x01"}), "version 1"},
		{"a boot record after the magic of a version to come",
			marked(rawImage(1, 1<<20), map[int]string{0: "QFI\xfb\x00\x00\x00\x09"}), "version 9"},
		{"a boot record after a description of extents", marked(rawImage(1, 1<<20),
			map[int]string{0: "# Disk DescriptorFile\nRW 8 FLAT \"/etc/passwd\" 0\n"}), "VMDK"},
		{"a boot record after the magic of VMDK", marked(rawImage(1, 1<<20), map[int]string{0: "KDMV"}), "VMDK"},
		{"a boot record after the magic of LUKS", marked(rawImage(1, 1<<20), map[int]string{0: "LUKS\xba\xbe"}),
			"encrypted"},
		{"a boot record in a VDI", marked(rawImage(1, 1<<20), map[int]string{0x40: "\x7f\x10\xda\xbe"}), "VDI"},
		{"a text that QEMU would take for a blkdebug script", []byte("blkdebug::/etc/passwd\n"), "not a disk image"},
	} {
		for _, from := range []string{"a server", "a file"} {
			t.Run(v.name+", from "+from, func(t *testing.T) {
				c := newCache(t)
				ref := writeFile(t, filepath.Join(t.TempDir(), "disk.img"), v.content)
				if from == "a server" {
					ref = newServer(t, v.content).ref()
				}
				_, err := c.Fetch(t.Context(), ref, nil)
				refused(t, c, err, croft.Invalid, v.words)
				if images := cacheHas(t, c); len(images) > 0 {
					t.Errorf("in the cache: %v", images)
				}
			})
		}
	}
}

// TestNoVMDKIsTaken covers each kind that QEMU writes, including the one for transport, and files whose description
// QEMU finds at another offset than the header names.
func TestNoVMDKIsTaken(t *testing.T) {
	disks := map[string][]byte{
		"a description alone": []byte(
			"# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\nRW 8 FLAT \"/etc/passwd\" 0\n"),
		"a description after other words": []byte(
			"# words\n  \nversion=1\nCID=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n" +
				"RW 8 FLAT \"/etc/passwd\" 0\n" + strings.Repeat("\n", 1024)),
	}
	for _, kind := range []string{"monolithicSparse", "monolithicFlat", "twoGbMaxExtentSparse", "twoGbMaxExtentFlat",
		"streamOptimized"} {
		disks[kind] = read(t, made(t, "vmdk", "2M", "-o", "subformat="+kind))
	}
	disks["with its description elsewhere"] = vmdkWithTwoTexts(disks["streamOptimized"], "/etc/passwd")
	for kind, content := range disks {
		for how, body := range map[string][]byte{"as it is": content, "packed": packed(t, "gzip", content)} {
			t.Run(kind+", "+how, func(t *testing.T) {
				s, c := newServer(t, body), newCache(t)
				for _, ref := range []string{s.ref(), writeFile(t, filepath.Join(t.TempDir(), "disk.vmdk"), body)} {
					_, err := c.Fetch(t.Context(), ref, nil)
					refused(t, c, err, croft.Invalid, "VMDK", "qemu-img convert -f vmdk -O qcow2 IMAGE IMAGE.qcow2")
				}
				if images := cacheHas(t, c); len(images) > 0 {
					t.Errorf("in the cache: %v", images)
				}
			})
		}
	}
}

// vmdkWithTwoTexts moves the description to sector 64, as the header then says, and leaves another one, with
// a parent, where QEMU always looks for it.
func vmdkWithTwoTexts(disk []byte, parent string) []byte {
	const at = 64 * sector
	b := append(bytes.Clone(disk), make([]byte, max(0, at+20*sector-len(disk)))...)
	copy(b[at:], disk[sector:21*sector])
	binary.LittleEndian.PutUint64(b[28:], 64)
	clear(b[sector : 21*sector])
	copy(b[sector:], "# Disk DescriptorFile\nversion=1\nparentCID=12345678\nparentFileNameHint=\""+parent+"\"\n")
	return b
}

// TestAGuestCannotChangeWhatItsDiskIs writes a qcow2 header that refers to a host file to the start of a guest's disk
// (CVE-2026-24708).
func TestAGuestCannotChangeWhatItsDiskIs(t *testing.T) {
	content := rawImage(1, 1<<20)
	c, dir := newCache(t), filepath.Join(t.TempDir(), "instance")
	img := stored(t, c, content)
	layers, err := c.Disk(t.Context(), img, dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	header := writeFile(t, filepath.Join(t.TempDir(), "header"), onTopOf(t, "/etc/passwd", "raw"))
	fi, err := os.Stat(header)
	if err != nil {
		t.Fatal(err)
	}
	qemu(t, "qemu-io", "-f", "qcow2", "-c", fmt.Sprintf("write -s %s 0 %d", header, fi.Size()), layers[0].Path)
	again, err := c.Disk(t.Context(), img, dir, 1) // as after a restart of the agent
	if err != nil || len(again) != 2 || again[0] != layers[0] || again[1] != layers[1] || again[1].Format != "raw" {
		t.Fatalf("the chain is %+v, %v; want %+v", again, err, layers)
	}
	chain := qemu(t, "qemu-img", "info", "-f", "qcow2", "--backing-chain", layers[0].Path)
	if strings.Contains(chain, "passwd") || !strings.Contains(chain, "backing file format: raw") {
		t.Errorf("QEMU sees\n%s", chain)
	}
	contentIs(t, layers[1].Path, content)
}

// TestARawDiskStaysRaw gives a guest an image with a qcow2 at a later offset, where format probing at another
// offset could find it.
func TestARawDiskStaysRaw(t *testing.T) {
	inner := onTopOf(t, "/etc/passwd", "raw")
	c, dir := newCache(t), filepath.Join(t.TempDir(), "instance")
	img := stored(t, c, marked(rawImage(1, 4<<20), map[int]string{512: string(inner), 1 << 20: string(inner)}))
	layers, err := c.Disk(t.Context(), img, dir, 1)
	if err != nil || img.Format != "raw" || layers[1].Format != "raw" {
		t.Fatalf("%+v, %+v, %v", img, layers, err)
	}
	if chain := qemu(t, "qemu-img", "info", "-f", "qcow2", "--backing-chain", layers[0].Path); strings.Contains(chain,
		"passwd") {
		t.Errorf("QEMU sees\n%s", chain)
	}
}

// endless is a file of zeros after a boot record, of any size.
type endless struct{}

func (endless) ReadAt(b []byte, at int64) (int, error) {
	clear(b)
	for i, c := range []byte{0x55, 0xaa} {
		if j := int64(510+i) - at; j >= 0 && j < int64(len(b)) {
			b[j] = c
		}
	}
	return len(b), nil
}

func TestSizesOfEightExbibytes(t *testing.T) {
	_, err := format.Inspect(endless{}, math.MaxInt64)
	refused(t, nil, err, croft.Invalid, "64 TiB")
	for _, announced := range []string{"9223372036854775807", "9223372036854775808", "18446744073709551615", "-1"} {
		s, c := newServer(t, nil), newCache(t)
		s.answers(func(w http.ResponseWriter, _ *http.Request) bool {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return true
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\nQFI", announced)
			return true
		})
		_, err := c.Fetch(t.Context(), s.ref(), nil)
		if err == nil || len(cacheHas(t, c)) > 0 {
			t.Errorf("%s bytes are taken", announced)
		}
		if left := listDir(t, c.staging.dir); len(left) > 0 {
			t.Errorf("%s bytes leave %v", announced, left)
		}
	}
	for name, change := range map[string]func([]byte){
		"a disk of 8 EiB": func(b []byte) { binary.BigEndian.PutUint64(b[24:], 1<<63) },
		"an L1 table for 8 EiB": func(b []byte) {
			binary.BigEndian.PutUint64(b[24:], 1<<46)
			binary.BigEndian.PutUint32(b[36:], math.MaxUint32)
		},
	} {
		b := bytes.Clone(read(t, made(t, "qcow2", "1G")))
		change(b)
		if _, err := inspectBytes(b); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
