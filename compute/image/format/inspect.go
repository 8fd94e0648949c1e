// Package format parses the headers of disk images, rejects files that cannot be a guest's disk, and writes empty
// overlays. It opens no file that a header names, and reads and allocates little whatever a file contains.
package format

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"

	"croft"
	"croft/internal/lazyregexp"
)

// MaxVirtual is the largest disk that is accepted or created, 64 TiB.
const MaxVirtual = 64 << 40

// Info is the information in a file's own header.
type Info struct {
	Format      string // qcow2 or raw; FormatISO if it starts only from a CD drive
	VirtualSize int64  // bytes; of a raw image rounded up to whole sectors
}

// FormatISO is the format of an image that is a CD, and not also a disk: many installers' images are both, and raw.
const FormatISO = croft.ImageISO

// Inspect parses the header of an image of the given size. Invalid: the file cannot be a guest's base image,
// because it refers to another file, is encrypted, damaged, of another format, or not a disk. Whatever the
// file contains, Inspect reads only within it and allocates little.
func Inspect(r io.ReaderAt, size int64) (Info, error) {
	if size == 0 {
		return Info{}, croft.Errorf(croft.Invalid, "the file is empty")
	}
	head, err := ReadHead(r, size)
	if err != nil {
		return Info{}, err
	}
	if IsQcow2(head) {
		return inspectQcow2(r, size)
	}
	if err := RefuseHead(head); err != nil {
		return Info{}, err
	}
	return inspectRaw(r, size, head)
}

// InspectFile is Inspect for a file name.
func InspectFile(name string) (Info, error) {
	f, err := os.Open(name)
	if err != nil {
		return Info{}, fmt.Errorf("inspect image: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return Info{}, fmt.Errorf("inspect image: %w", err)
	}
	return Inspect(f, fi.Size())
}

// HeadSize is the size of the part that identifies a file's format.
const HeadSize = 1024

// ReadHead reads the first HeadSize bytes of a file, or all of a smaller one.
func ReadHead(r io.ReaderAt, size int64) ([]byte, error) {
	head := make([]byte, min(size, HeadSize))
	if _, err := r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the image's header: %w", err)
	}
	return head, nil
}

// magic is a signature at a fixed offset that identifies a format.
type magic struct {
	at   int
	mark string
}

func (m magic) in(b []byte) bool {
	return len(b) >= m.at+len(m.mark) && string(b[m.at:m.at+len(m.mark)]) == m.mark
}

// containers are the rejected disk formats, with qemu-img's names.
var containers = []struct {
	magic
	name, format string
}{
	{magic{0, "KDMV"}, "a VMware disk (VMDK)", "vmdk"},
	{magic{0, "COWD"}, "a VMware disk (VMDK)", "vmdk"},
	{magic{0, "# Disk DescriptorFile"}, "the description of a VMware disk (VMDK)", "vmdk"},
	{magic{0, "#!/bin/sh\n#V2.0 Format\nmodprobe cloop"}, "a compressed loop disk (cloop)", "cloop"},
	{magic{0x40, "\x7f\x10\xda\xbe"}, "a VirtualBox disk (VDI)", "vdi"},
	{magic{0, "vhdxfile"}, "a Hyper-V disk (VHDX)", "vhdx"},
	{magic{0, "conectix"}, "a Virtual PC disk (VHD)", "vpc"},
	{magic{0, "QED\x00"}, "a QED disk", "qed"},
	{magic{0, "QFI\xfb\x00\x00\x00\x01"}, "a qcow disk of version 1", "qcow"},
	{magic{0, "WithoutFreeSpace"}, "a Parallels disk", "parallels"},
	{magic{0, "WithouFreSpacExt"}, "a Parallels disk", "parallels"},
	{magic{0, "Bochs Virtual HD Image"}, "a Bochs disk", "bochs"},
}

// vmdkText is how QEMU recognizes a VMDK description, including comments before it.
var vmdkText = lazyregexp.New(`^(#[^\n]*\n| +\r?\n)*version=[123]\r?\n`)

// otherFormat rejects a disk of an unsupported format.
func otherFormat(name, format string) error {
	return croft.Errorf(croft.Invalid, "it is %s, and only qcow2 and raw images are taken: "+
		"convert it on a machine of your own with qemu-img convert -f %s -O qcow2 IMAGE IMAGE.qcow2", name, format)
}

// RefuseHead rejects a file whose beginning cannot be an image's.
func RefuseHead(head []byte) error {
	for _, c := range containers {
		if c.in(head) {
			return otherFormat(c.name, c.format)
		}
	}
	if vmdkText.Match(head) {
		return otherFormat("the description of a VMware disk (VMDK)", "vmdk")
	}
	for _, p := range packings {
		if p.in(head) {
			return croft.Errorf(croft.Invalid, "it is packed with %s: unpack it first (%s) and give the image inside",
				p.name, p.tool)
		}
	}
	switch {
	case (magic{0, "LUKS\xba\xbe"}).in(head):
		return croft.Errorf(croft.Invalid, "it is encrypted (LUKS), and there is no key for it here")
	case (magic{0, "\x7fELF"}).in(head):
		return croft.Errorf(croft.Invalid, "it is a program (ELF), not a disk image")
	case isMarkup(head):
		return croft.Errorf(croft.Invalid,
			"it is a web page or other text with tags, not a disk image: check that the address is the download's own")
	}
	return nil
}

func isMarkup(head []byte) bool {
	text := bytes.ToLower(bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n"))
	for _, tag := range []string{"<!doctype", "<html", "<head", "<?xml", "<!--", "<body", "<rss", "<error"} {
		if bytes.HasPrefix(text, []byte(tag)) {
			return true
		}
	}
	return false
}

const sector = 512

// inspectRaw accepts files without a format's signature if they can boot, since anything may pass for a raw disk.
func inspectRaw(r io.ReaderAt, size int64, head []byte) (Info, error) {
	if size > MaxVirtual {
		return Info{}, croft.Errorf(croft.Invalid, "it has %s, and a disk may have at most %s", Bytes(size),
			Bytes(MaxVirtual))
	}
	if markAt(r, size, size-sector, "conectix") {
		return Info{}, otherFormat("a Virtual PC disk (VHD) of fixed size", "vpc")
	}
	if markAt(r, size, size-sector, "koly") {
		return Info{}, otherFormat("an Apple disk (DMG)", "dmg")
	}
	info := Info{Format: "raw", VirtualSize: (size + sector - 1) / sector * sector}
	if bootable(r, size, head) {
		return info, nil
	}
	if isISO(r, size) {
		info.Format = FormatISO
		return info, CheckISO(r, size)
	}
	return Info{}, errNoDisk
}

// bootable looks for a master boot record or a GUID partition table, with sectors of 512 or 4096 bytes.
func bootable(r io.ReaderAt, size int64, head []byte) bool {
	if (magic{510, "\x55\xaa"}).in(head) || (magic{512, "EFI PART"}).in(head) {
		return true
	}
	return markAt(r, size, 4096, "EFI PART")
}

// isISO reports whether a file begins as the image of a CD.
func isISO(r io.ReaderAt, size int64) bool { return markAt(r, size, isoFirst*isoSector+1, isoMark) }

// markAt reports whether the mark is at the offset, which may be outside the file.
func markAt(r io.ReaderAt, size, place int64, mark string) bool {
	if place < 0 || place+int64(len(mark)) > size {
		return false
	}
	b := make([]byte, len(mark))
	n, _ := r.ReadAt(b, place)
	return n == len(b) && string(b) == mark
}

// RefuseBeginning rejects, by its first 64 KiB, a file that cannot become a disk with any further content.
func RefuseBeginning(head []byte) error {
	if IsQcow2(head) {
		return nil // the rest of its header may follow later
	}
	if err := RefuseHead(head); err != nil {
		return err
	}
	if r := bytes.NewReader(head); bootable(r, r.Size(), head) || isISO(r, r.Size()) {
		return nil
	}
	return errNoDisk
}

// errNoDisk rejects a file of unknown content.
var errNoDisk = croft.Errorf(croft.Invalid,
	"it is not a disk image: it has neither the header of qcow2 nor, as a raw disk has, a boot record or partition table, "+
		"nor that of a CD (ISO 9660)")

// Bytes formats a number of bytes for people: 1.5 GiB.
func Bytes(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1023.95 && unit < len(units)-1 {
		value /= 1 << 10
		unit++
	}
	if value == float64(int64(value)) {
		return fmt.Sprintf("%.0f %ciB", value, units[unit])
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}

// maxWindow limits the memory for unpacking a file: the window of zstd --long, and twice the dictionary of xz -9.
const maxWindow = 128 << 20

// Packing is a compression or archive format of published images. Without open it is only recognized.
type Packing struct {
	magic
	name, tool string
	open       func(io.Reader) (io.ReadCloser, error)
}

// packings are the archive and compression formats of published images.
var packings = []Packing{
	{magic{0, "\x1f\x8b"}, "gzip", "gunzip", openGzip},
	{magic{0, "\xfd7zXZ\x00"}, "xz", "unxz", openXZ},
	{magic{0, "\x28\xb5\x2f\xfd"}, "zstd", "unzstd", openZstd},
	{magic{0, "BZh"}, "bzip2", "bunzip2", nil},
	{magic{0, "\x04\x22\x4d\x18"}, "lz4", "unlz4", nil},
	{magic{0, "PK\x03\x04"}, "zip", "unzip", nil},
	{magic{0, "7z\xbc\xaf\x27\x1c"}, "7-Zip", "7z x", nil},
	{magic{257, "ustar"}, "tar", "tar -x", nil},
}

// openGzip ignores data after the end of the last member, as gzip -d does: publishers append metadata or zeros.
func openGzip(r io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReader(r) // a byte reader, so that gzip reads no further than the end of a member
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	z.Multistream(false)
	return &gzipMembers{Reader: z, in: in}, nil
}

// gzipMembers reads one member of a gzip file after the other.
type gzipMembers struct {
	*gzip.Reader
	in    *bufio.Reader
	ended bool
}

// Read implements io.Reader.
func (m *gzipMembers) Read(b []byte) (int, error) {
	for !m.ended {
		n, err := m.Reader.Read(b)
		if n > 0 && errors.Is(err, io.EOF) {
			err = nil
		}
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		head, err := m.in.Peek(2)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if m.ended = string(head) != "\x1f\x8b"; !m.ended {
			if err := m.Reset(m.in); err != nil {
				return 0, err
			}
			m.Multistream(false)
		}
	}
	return 0, io.EOF
}

func openXZ(r io.Reader) (io.ReadCloser, error) {
	x, err := xz.NewReader(r, maxWindow)
	return io.NopCloser(x), err
}

// openZstd unpacks in the goroutine that reads.
func openZstd(r io.Reader) (io.ReadCloser, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// PackingOf returns the packing of a file with this beginning, if it can be unpacked here.
func PackingOf(head []byte) (Packing, bool) {
	i := slices.IndexFunc(packings, func(p Packing) bool { return p.open != nil && p.in(head) })
	if i < 0 {
		return Packing{}, false
	}
	return packings[i], true
}

// Open returns a reader of a packed file's content.
func (p Packing) Open(r io.Reader) (io.ReadCloser, error) { return p.open(r) }

// Explain returns a readable error for a damaged packed file.
func (p Packing) Explain(err error) error {
	if errors.Is(err, xz.ErrMemlimit) || errors.Is(err, zstd.ErrWindowSizeExceeded) ||
		errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return croft.Errorf(croft.Invalid,
			"unpacking it would take more than %s of memory: pack it with %s in its usual way", Bytes(maxWindow),
			p.name)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return croft.Errorf(croft.Invalid, "it is packed with %s and damaged (%w): fetch or make it again", p.name, err)
}
