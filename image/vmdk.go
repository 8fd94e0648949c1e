package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"

	"croft"
)

// The parts of VMware's format of virtual disks that are needed here. All numbers
// are little-endian, all places and lengths in sectors.
const (
	vmdkMagic       = "KDMV"
	vmdkHeader      = 512
	vmdkGDPlace     = 56 // of the place of the grain directory
	vmdkGDAtEnd     = ^uint64(0)
	vmdkFooter      = 3 * sector // marker, header, end of stream
	vmdkMaxText     = 20         // sectors of the description; QEMU reads so many in any case
	vmdkCompressed  = 1 << 16    // flags
	vmdkMarkers     = 1 << 17
	vmdkDeflate     = 1
	vmdkMaxGrain    = 4096 // sectors
	vmdkMaxEntries  = 512  // of a grain table
	vmdkFooterType  = 3
	vmdkStreamType  = "streamOptimized"
	vmdkConvertHint = "convert it with qemu-img convert -f vmdk -O qcow2"
)

// vmdk is the header of a disk for transport: one file, compressed, with its
// description inside.
type vmdk struct {
	raw        []byte
	flags      uint32
	capacity   uint64
	grain      uint64
	textAt     uint64
	textLength uint64
	entries    uint32
	directory  uint64
	algorithm  uint16
}

func isVMDK(head []byte) bool { return (magic{0, vmdkMagic}).in(head) }

// parseVMDK reads the header that a file begins with, and refuses any but that of a
// disk for transport.
func parseVMDK(b []byte) (vmdk, error) {
	if len(b) < vmdkHeader || !isVMDK(b) {
		return vmdk{}, damagedVMDK("its header is cut short")
	}
	u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	h := vmdk{
		raw: bytes.Clone(b[:vmdkHeader]), flags: u32(b[8:]), capacity: u64(b[12:]), grain: u64(b[20:]),
		textAt: u64(b[28:]), textLength: u64(b[36:]), entries: u32(b[44:]), directory: u64(b[vmdkGDPlace:]),
		algorithm: binary.LittleEndian.Uint16(b[77:]),
	}
	switch {
	case h.flags&vmdkCompressed == 0 || h.flags&vmdkMarkers == 0 || h.algorithm != vmdkDeflate:
		return h, otherVMDK("its data are not packed for transport")
	case h.capacity == 0: // QEMU would take the extents that the description names
		return h, otherVMDK("its data are in other files")
	case h.capacity > maxVirtual/sector:
		return h, croft.Errorf(croft.Invalid, "its disk would have more than %s, the most that is allowed", human(maxVirtual))
	case h.textAt == 0 || h.textAt > 1<<32 || h.textLength == 0 || h.textLength > vmdkMaxText:
		return h, damagedVMDK("its description is in no place that it could be in")
	case h.grain == 0 || h.grain > vmdkMaxGrain || h.grain&(h.grain-1) != 0 || h.entries == 0 || h.entries > vmdkMaxEntries:
		return h, damagedVMDK("its tables have no size that they could have")
	}
	return h, nil
}

func damagedVMDK(why string) error {
	return croft.Errorf(croft.Invalid, "it is a VMware disk (VMDK) and damaged (%s): fetch or make it again", why)
}

func otherVMDK(why string) error {
	return croft.Errorf(croft.Invalid, "it is a VMware disk (VMDK) that is not %s (%s), and no other is taken: %s", vmdkStreamType, why, vmdkConvertHint)
}

// inspectVMDK makes sure that a whole file is a disk for transport that needs no
// other, by every part of it that QEMU could read.
func inspectVMDK(r io.ReaderAt, size int64) error {
	h, err := readVMDK(r, size)
	if err != nil || h.directory != vmdkGDAtEnd {
		return err
	}
	return h.checkFooter(r, size)
}

// readVMDK reads header and description, which lie in the beginning of the file.
func readVMDK(r io.ReaderAt, size int64) (vmdk, error) {
	b := make([]byte, vmdkHeader)
	if err := readWhole(r, size, 0, b); err != nil {
		return vmdk{}, err
	}
	h, err := parseVMDK(b)
	if err != nil {
		return h, err
	}
	at := int64(h.textAt) * sector
	if at+int64(h.textLength)*sector > size {
		return h, damagedVMDK("its description lies outside the file, which may be cut short")
	}
	text := make([]byte, min(vmdkMaxText*sector, size-at))
	if err := readWhole(r, size, at, text); err != nil {
		return h, err
	}
	return h, h.checkText(text)
}

func readWhole(r io.ReaderAt, size, at int64, b []byte) error {
	if at < 0 || at > size || int64(len(b)) > size-at {
		return damagedVMDK("it is cut short")
	}
	if n, err := r.ReadAt(b, at); n < len(b) && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the image's header: %w", err)
	}
	return nil
}

// vmdkExtent is a line that says where data are.
var vmdkExtent = regexp.MustCompile(`^(?:RW|RDONLY|NOACCESS)\s+(\d+)\s+([A-Z0-9]+)(?:\s+"([^"]*)")?\s*\d*$`)

// checkText makes sure that the description speaks of this file alone. Words that
// lead elsewhere are refused wherever they stand, since readers of the format look
// for them by their letters.
func (h vmdk) checkText(window []byte) error {
	if bytes.Contains(bytes.ToLower(window), []byte("parentfilenamehint")) {
		return otherVMDK("it stands on another file")
	}
	if bytes.Count(window, []byte("createType")) != 1 {
		return damagedVMDK("its description has not one createType")
	}
	text, _, _ := bytes.Cut(window, []byte{0})
	extents, typed, parent := 0, false, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"`)
		switch {
		case key == "createType":
			typed = value == vmdkStreamType
			if !typed {
				return otherVMDK("its kind is " + strconv.Quote(value))
			}
		case strings.EqualFold(key, "parentCID"):
			parent = parent || !strings.EqualFold(value, "ffffffff")
		case isExtent(line):
			if err := h.checkExtent(line); err != nil {
				return err
			}
			extents++
		}
	}
	switch {
	case parent:
		return otherVMDK("it stands on another file")
	case !typed || extents != 1:
		return damagedVMDK(fmt.Sprintf("its description names %d places of data", extents))
	}
	return nil
}

// isExtent tells a line that begins as one of an extent does, right or wrong.
func isExtent(line string) bool {
	for _, word := range []string{"RW", "RDONLY", "NOACCESS"} {
		if rest, ok := strings.CutPrefix(line, word); ok && strings.TrimLeft(rest, " \t") != rest {
			return true
		}
	}
	return false
}

// checkExtent takes the one that this file itself is.
func (h vmdk) checkExtent(line string) error {
	part := vmdkExtent.FindStringSubmatch(line)
	if part == nil {
		return damagedVMDK("its description has a line that cannot be read")
	}
	if part[2] != "SPARSE" || part[3] == "" || part[3] != path.Base(part[3]) || strings.ContainsAny(part[3], `:\`) {
		return otherVMDK("its data are in other files")
	}
	if n, err := strconv.ParseUint(part[1], 10, 64); err != nil || n > h.capacity {
		return damagedVMDK("its description and its header disagree on its size")
	}
	return nil
}

// checkFooter makes sure that the header at the end, which counts more where there
// is one, says nothing else than the first but where the tables are.
func (h vmdk) checkFooter(r io.ReaderAt, size int64) error {
	footer := make([]byte, vmdkFooter)
	if err := readWhole(r, size, size-vmdkFooter, footer); err != nil {
		return err
	}
	again := bytes.Clone(footer[sector : sector+vmdkHeader])
	copy(again[vmdkGDPlace:vmdkGDPlace+8], h.raw[vmdkGDPlace:])
	if binary.LittleEndian.Uint32(footer[12:]) != vmdkFooterType || !bytes.Equal(again, h.raw) {
		return damagedVMDK("the header at its end is not the one at its beginning")
	}
	return nil
}
