package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"croft"
)

// The required parts of the qcow2 format, from its specification (docs/interop/qcow2.txt of QEMU). All
// numbers are big-endian.
const (
	qcowMagic     = "QFI\xfb"
	qcowV2Header  = 72
	qcowV3Header  = 104
	maxL1Bytes    = 32 << 20 // QEMU's own limits
	maxRefTable   = 8 << 20
	maxBackingLen = 1023
	maxSnapshots  = 65536
	maxFormatLen  = 15
	bitmapsLen    = 24

	incompatDirty       = 1 << 0
	incompatCorrupt     = 1 << 1
	incompatDataFile    = 1 << 2
	incompatCompression = 1 << 3
	incompatExtendedL2  = 1 << 4

	extEnd           = 0
	extBackingFormat = 0xe2792aca
	extDataFile      = 0x44415441
	extCrypto        = 0x0537be77
	extBitmaps       = 0x23852875

	offsetMask   = 0x00fffffffffffe00 // L1 entry: offset of the L2 table; L2 entry: offset of the cluster
	l2Compressed = 1 << 62
	l2Zero       = 1 << 0

	// maxL2Bytes bounds how much of the L2 tables is read, whatever the L1 table contains. With clusters of 64 KiB that
	// is enough for 512 GiB of data.
	maxL2Bytes = 64 << 20
)

// Qcow2 is a header as stored in the file; only its offsets are checked, against the file's size.
type Qcow2 struct {
	version       uint32
	Backing       string // name of the backing file
	BackingFormat string
	clusterBits   uint32
	Virtual       uint64 // size of the disk in bytes
	crypt         uint32
	l1Size        uint32
	l1Offset      uint64
	refOffset     uint64
	refClusters   uint32
	snapshots     uint32
	snapOffset    uint64
	incompat      uint64
	refOrder      uint32
	headerLen     uint32
	compression   uint8
	dataFile      bool // a header extension names an external data file
	cryptoHeader  bool // a header extension leads to a LUKS header
}

// IsQcow2 reports whether a file with this beginning is a qcow2 image of version 2 or later.
func IsQcow2(head []byte) bool {
	return (magic{0, qcowMagic}).in(head) && !(magic{4, "\x00\x00\x00\x01"}).in(head)
}

func (h *Qcow2) cluster() int64 { return 1 << h.clusterBits }

// inspectQcow2 accepts a base image that is complete, plain and self-contained.
func inspectQcow2(r io.ReaderAt, size int64) (Info, error) {
	h, err := ReadQcow2(r, size)
	if err != nil {
		return Info{}, err
	}
	if err := h.Acceptable(); err != nil {
		return Info{}, err
	}
	if err := h.checkTables(r, size); err != nil {
		return Info{}, err
	}
	return Info{Format: "qcow2", VirtualSize: int64(h.Virtual)}, nil
}

// damaged returns the error for an invalid header.
func damaged(format string, args ...any) error {
	return croft.Errorf(croft.Invalid, "its qcow2 header is damaged (%s): fetch or make the image again",
		fmt.Sprintf(format, args...))
}

// ReadQcow2 reads the header, its extensions and the backing file's name.
func ReadQcow2(r io.ReaderAt, size int64) (*Qcow2, error) {
	b := make([]byte, min(size, qcowV3Header+8))
	if n, err := r.ReadAt(b, 0); n < len(b) && err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the qcow2 header: %w", err)
	}
	if len(b) < qcowV2Header || string(b[:4]) != qcowMagic {
		return nil, damaged("it ends after %d bytes", len(b))
	}
	h := parseFixed(b)
	if h.version != 2 && h.version != 3 {
		return nil,
			croft.Errorf(croft.Invalid,
				"it is a qcow2 image of version %d, and only versions 2 and 3 are known: convert it "+
					"with qemu-img convert -O qcow2", h.version)
	}
	if h.version == 3 && len(b) < qcowV3Header {
		return nil, damaged("it ends after %d bytes", len(b))
	}
	if err := h.checkFixed(size); err != nil {
		return nil, err
	}
	end, err := h.readBacking(r, b, size)
	if err != nil {
		return nil, err
	}
	return h, h.readExtensions(r, end)
}

// parseFixed reads the fields at fixed offsets; b contains at least the v2 header.
func parseFixed(b []byte) *Qcow2 {
	u32, u64 := binary.BigEndian.Uint32, binary.BigEndian.Uint64
	h := &Qcow2{
		version:     u32(b[4:]),
		clusterBits: u32(b[20:]),
		Virtual:     u64(b[24:]),
		crypt:       u32(b[32:]),
		l1Size:      u32(b[36:]),
		l1Offset:    u64(b[40:]),
		refOffset:   u64(b[48:]),
		refClusters: u32(b[56:]),
		snapshots:   u32(b[60:]),
		snapOffset:  u64(b[64:]),
		refOrder:    4,
		headerLen:   qcowV2Header,
	}
	if h.version == 3 && len(b) >= qcowV3Header {
		h.incompat = u64(b[72:])
		h.refOrder = u32(b[96:])
		h.headerLen = u32(b[100:])
		if h.headerLen > qcowV3Header && len(b) > qcowV3Header {
			h.compression = b[qcowV3Header]
		}
	}
	return h
}

func (h *Qcow2) checkFixed(size int64) error {
	if h.clusterBits < 9 || h.clusterBits > 21 {
		return damaged("clusters of 2^%d bytes", h.clusterBits)
	}
	if h.version == 3 && (h.headerLen < qcowV3Header || int64(h.headerLen) > min(h.cluster(), size) ||
		h.headerLen%8 != 0) {
		return damaged("a header of %d bytes", h.headerLen)
	}
	if h.refOrder > 6 {
		return damaged("reference counts of 2^%d bits", h.refOrder)
	}
	return nil
}

// readBacking reads the backing file's name, and returns where the header's extensions must end: before that
// name, and within the first cluster.
func (h *Qcow2) readBacking(r io.ReaderAt, b []byte, size int64) (end int64, err error) {
	offset, length := binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[16:])
	end = min(h.cluster(), size)
	if offset == 0 {
		return end, nil
	}
	if length > maxBackingLen || offset < uint64(h.headerLen) || offset+uint64(length) > uint64(end) ||
		offset > uint64(end) {
		return 0, damaged("the backing file's name lies outside it")
	}
	name := make([]byte, length)
	if n, err := r.ReadAt(name, int64(offset)); n < len(name) {
		return 0, fmt.Errorf("read the qcow2 header: %w", err)
	}
	h.Backing = string(name)
	return int64(offset), nil
}

// readExtensions parses the header extensions between the header and end.
func (h *Qcow2) readExtensions(r io.ReaderAt, end int64) error {
	at := int64(h.headerLen)
	for at+8 <= end {
		var b [8]byte
		if n, err := r.ReadAt(b[:], at); n < len(b) {
			return fmt.Errorf("read the qcow2 header: %w", err)
		}
		kind, length := binary.BigEndian.Uint32(b[:]), int64(binary.BigEndian.Uint32(b[4:]))
		at += 8
		if length > end-at {
			return damaged("an extension of %d bytes reaches beyond it", length)
		}
		if kind == extEnd {
			return nil
		}
		switch kind {
		case extDataFile:
			h.dataFile = true
		case extCrypto:
			h.cryptoHeader = true
		case extBitmaps:
			if length != bitmapsLen {
				return damaged("an extension for bitmaps of %d bytes", length)
			}
		case extBackingFormat:
			if length > maxFormatLen {
				return damaged("a backing file's format of %d bytes", length)
			}
			name := make([]byte, length)
			if n, err := r.ReadAt(name, at); n < len(name) {
				return fmt.Errorf("read the qcow2 header: %w", err)
			}
			h.BackingFormat = string(name)
		}
		at += (length + 7) / 8 * 8
	}
	return nil
}

// Acceptable returns why the image cannot be a base; nil: it can. All data must be in the file itself,
// readable without a key, by any current QEMU.
func (h *Qcow2) Acceptable() error {
	switch {
	case h.Backing != "":
		return croft.Errorf(croft.Invalid,
			"it has the backing file %q, which is not allowed: join the two with qemu-img convert -O qcow2", h.Backing)
	case h.KeepsDataElsewhere():
		return croft.Errorf(croft.Invalid,
			"it keeps its data in another file, which is not allowed: make it one file with qemu-img convert -O qcow2")
	case h.crypt != 0 || h.cryptoHeader:
		return croft.Errorf(croft.Invalid,
			"it is encrypted, and there is no key for it here: give the image in the clear")
	case h.incompat&incompatCorrupt != 0:
		return croft.Errorf(croft.Invalid,
			"it is marked as corrupt: repair it with qemu-img check -r all, or fetch it again")
	case h.Virtual == 0:
		return croft.Errorf(croft.Invalid, "its disk has no size, so a guest cannot boot from it")
	case h.Virtual%sector != 0: // QEMU drops the remainder
		return damaged("a disk of %d bytes, which is not a multiple of the sector size", h.Virtual)
	case h.Virtual > MaxVirtual:
		return croft.Errorf(croft.Invalid, "its disk would have more than %s, the most that is allowed",
			Bytes(MaxVirtual))
	}
	const known = incompatDirty | incompatCorrupt | incompatDataFile | incompatCompression | incompatExtendedL2
	if unknown := h.incompat &^ known; unknown != 0 {
		return croft.Errorf(croft.Invalid,
			"it needs features of qcow2 that are not known here (bits %#x): convert it with qemu-img convert -O qcow2",
			unknown)
	}
	if zstd := h.incompat&incompatCompression != 0; zstd != (h.compression == 1) || h.compression > 1 {
		return croft.Errorf(croft.Invalid,
			"its clusters are compressed in a way that is not known here (type %d): convert it "+
				"with qemu-img convert -O qcow2", h.compression)
	}
	if h.incompat&incompatExtendedL2 != 0 && h.clusterBits < 14 {
		return damaged("clusters of 2^%d bytes are too small for extended entries", h.clusterBits)
	}
	return nil
}

// KeepsDataElsewhere reports whether the data is in another file, which the header may name.
func (h *Qcow2) KeepsDataElsewhere() bool { return h.dataFile || h.incompat&incompatDataFile != 0 }

// perL1 returns how many bytes of the disk one L1 entry covers.
func (h *Qcow2) perL1() uint64 {
	entry := uint64(8)
	if h.incompat&incompatExtendedL2 != 0 {
		entry = 16
	}
	return uint64(h.cluster()) / entry * uint64(h.cluster())
}

// checkTables checks that the tables and the offsets in the L1 table are inside the file; in a truncated file
// they are not.
func (h *Qcow2) checkTables(r io.ReaderAt, size int64) error {
	need := (h.Virtual + h.perL1() - 1) / h.perL1()
	l1, refs := uint64(h.l1Size)*8, uint64(h.refClusters)<<h.clusterBits
	switch {
	case uint64(h.l1Size) < need || l1 > maxL1Bytes:
		return damaged("%d L1 entries for a disk of %s", h.l1Size, Bytes(int64(h.Virtual)))
	case !h.inside(h.l1Offset, l1, size):
		return damaged("the L1 table lies outside the file, which may be cut short")
	case refs == 0 || refs > maxRefTable || !h.inside(h.refOffset, refs, size):
		return damaged("the table of reference counts lies outside the file, which may be cut short")
	case h.snapshots > maxSnapshots || (h.snapshots > 0 || h.snapOffset > 0) && !h.inside(h.snapOffset, 1, size):
		return damaged("the list of snapshots lies outside the file, which may be cut short")
	}
	return h.checkL1(r, int64(need), size)
}

// inside reports whether the range starts at a cluster after the header's and ends within the file.
func (h *Qcow2) inside(offset, length uint64, size int64) bool {
	return offset >= uint64(h.cluster()) && offset%uint64(h.cluster()) == 0 &&
		offset <= uint64(size) && length <= uint64(size)-offset
}

func (h *Qcow2) checkL1(r io.ReaderAt, entries, size int64) error {
	buf, l2 := make([]byte, min(entries*8, 64<<10)), make([]byte, h.cluster())
	left := int64(maxL2Bytes)
	for at := int64(0); at < entries*8; at += int64(len(buf)) {
		part := buf[:min(int64(len(buf)), entries*8-at)]
		if n, err := r.ReadAt(part, int64(h.l1Offset)+at); n < len(part) {
			return fmt.Errorf("read the qcow2 L1 table: %w", err)
		}
		for i := 0; i < len(part); i += 8 {
			offset := binary.BigEndian.Uint64(part[i:]) & offsetMask
			if offset == 0 {
				continue
			}
			if !h.inside(offset, uint64(h.cluster()), size) {
				return damaged("entry %d of the L1 table leads outside the file, which may be cut short",
					(at+int64(i))/8)
			}
			if left -= h.cluster(); left < 0 {
				continue
			}
			if n, err := r.ReadAt(l2, int64(offset)); n < len(l2) {
				return fmt.Errorf("read a qcow2 L2 table: %w", err)
			}
			if err := h.checkL2(l2, size); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkL2 checks that the clusters in an L2 table begin in the file. As for QEMU, the last one may end after the file.
func (h *Qcow2) checkL2(table []byte, size int64) error {
	extended := h.incompat&incompatExtendedL2 != 0
	step := 8
	if extended {
		step = 16
	}
	sectorsAt := 62 - (h.clusterBits - 8) // of a compressed cluster: its sectors, after its offset
	for i := 0; i < len(table); i += step {
		entry := binary.BigEndian.Uint64(table[i:])
		last := entry & offsetMask // start of the last part that must exist
		switch {
		case entry&l2Compressed != 0:
			start := entry & (1<<sectorsAt - 1)
			last = start&^(sector-1) + (entry&(l2Compressed-1))>>sectorsAt*sector
			last = max(start, last)
		case extended && binary.BigEndian.Uint32(table[i+12:]) == 0: // no part of it is allocated
			continue
		case !extended && h.version == 3 && entry&l2Zero != 0:
			continue
		}
		if last >= uint64(size) {
			return croft.Errorf(croft.Invalid,
				"it is cut short: it has %d bytes, and its tables lead to data at %d: fetch or make it again",
				size, last)
		}
	}
	return nil
}
