package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// headSectors is the number of sectors of a disk up to the end of a usual GPT.
const headSectors = 34

// DiskHead returns the boot sector of a disk's layer, which is a qcow2 or a raw file, and the sectors with its
// partition table as far as they are next to it; nil: the layer does not have them. It reads and allocates little
// whatever the file contains.
func DiskHead(r io.ReaderAt, size int64, format string) ([]byte, error) {
	if format == "qcow2" {
		h, err := ReadQcow2(r, size)
		if err != nil {
			return nil, err
		}
		return h.diskHead(r), nil
	}
	head := make([]byte, headSectors*sector)
	if n, err := r.ReadAt(head, 0); n < len(head) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return head, nil
}

// Types of partitions in a boot sector.
const (
	mbrGPT = 0xee // a GPT follows
	mbrESP = 0xef // EFI system partition
)

// NeedsUEFI reports whether only UEFI firmware can boot a disk that begins so: it has no boot code, and its partition
// table is a GPT or has an EFI system partition.
func NeedsUEFI(head []byte) bool {
	kinds, code, ok := readMBR(head)
	return ok && !code && (slices.Contains(kinds, mbrGPT) || slices.Contains(kinds, mbrESP))
}

// NeedsBIOS reports whether surely only a BIOS can boot a disk that begins so: it has boot code, and every partition in
// its table is of a type that never has a FAT. UEFI firmware reads boot loaders from FATs, whatever the type of their
// partition.
func NeedsBIOS(head []byte) bool {
	kinds, code, ok := readMBR(head)
	if !ok || !code || len(kinds) == 0 {
		return false
	}
	if slices.Contains(kinds, mbrGPT) {
		return len(kinds) == 1 && gptWithoutFAT(head)
	}
	return !slices.ContainsFunc(kinds, func(kind byte) bool { return !slices.Contains(mbrWithoutFAT, kind) })
}

// mbrWithoutFAT is the types of partitions for Linux: swap, file system, LVM, RAID.
var mbrWithoutFAT = []byte{0x82, 0x83, 0x8e, 0xfd}

// readMBR returns the types of the partitions in a boot sector, and whether it has boot code; false: it is none.
func readMBR(head []byte) (kinds []byte, code, ok bool) {
	const codeEnd, table, entry = 440, 446, 16
	if len(head) < sector || head[510] != 0x55 || head[511] != 0xaa {
		return nil, false, false
	}
	for n := range 4 {
		if kind := head[table+n*entry+4]; kind != 0 {
			kinds = append(kinds, kind)
		}
	}
	return kinds, len(bytes.Trim(head[:codeEnd], "\x00")) > 0, true
}

// gptLinux is the types of partitions in a GPT, as stored, for GRUB on a BIOS and for Linux: file system, root of
// x86-64, swap, LVM, RAID.
var gptLinux = [][16]byte{
	{0x48, 0x61, 0x68, 0x21, 0x49, 0x64, 0x6f, 0x6e, 0x74, 0x4e, 0x65, 0x65, 0x64, 0x45, 0x46, 0x49},
	{0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4},
	{0xe3, 0xbc, 0x68, 0x4f, 0xcd, 0xe8, 0xb1, 0x4d, 0x96, 0xe7, 0xfb, 0xca, 0xf9, 0x84, 0xb7, 0x09},
	{0x6d, 0xfd, 0x57, 0x06, 0xab, 0xa4, 0xc4, 0x43, 0x84, 0xe5, 0x09, 0x33, 0xc8, 0x4b, 0x4f, 0x4f},
	{0x79, 0xd3, 0xd6, 0xe6, 0x07, 0xf5, 0xc2, 0x44, 0xa2, 0x3c, 0x23, 0x8f, 0x2a, 0x3d, 0xf9, 0x28},
	{0x0f, 0x88, 0x9d, 0xa1, 0xfc, 0x05, 0x3b, 0x4d, 0xa0, 0x06, 0x74, 0x3f, 0x0f, 0x84, 0x91, 0x1e},
}

// gptWithoutFAT reports whether the GPT in the first sectors of a disk has partitions, and all of types in gptLinux.
func gptWithoutFAT(head []byte) bool {
	const first, count, size = 2 * sector, 128, 128 // of a usual table
	if len(head) < headSectors*sector {
		return false
	}
	header := head[sector : 2*sector]
	number := binary.LittleEndian.Uint32
	if string(header[:8]) != "EFI PART" || binary.LittleEndian.Uint64(header[72:]) != 2 ||
		number(header[80:]) > count || number(header[84:]) != size {
		return false
	}
	used := 0
	for entry := range slices.Chunk(head[first:headSectors*sector], size) {
		switch kind := [16]byte(entry); {
		case kind == [16]byte{}:
		case slices.Contains(gptLinux, kind):
			used++
		default:
			return false
		}
	}
	return used > 0
}

// diskHead returns the first sectors of the disk in a qcow2 image, as many as its first cluster has; nil: it is empty
// or cannot be read.
func (h *Qcow2) diskHead(r io.ReaderAt) []byte {
	if h.incompat&incompatExtendedL2 != 0 {
		return nil
	}
	number := func(at uint64) (uint64, bool) {
		var b [8]byte
		n, _ := r.ReadAt(b[:], int64(at))
		return binary.BigEndian.Uint64(b[:]), n == len(b)
	}
	l1, ok := number(h.l1Offset)
	if !ok || h.l1Size == 0 || l1&offsetMask == 0 {
		return nil
	}
	l2, ok := number(l1 & offsetMask)
	const compressed = 1 << 62
	if !ok || l2&1 != 0 && l2&compressed == 0 { // bit 0: it reads as zeros
		return nil
	}
	head := make([]byte, min(headSectors*sector, h.cluster()))
	var from io.Reader
	switch bits := 62 - (h.clusterBits - 8); {
	case l2&compressed == 0 && l2&offsetMask == 0:
		return nil
	case l2&compressed == 0:
		from = io.NewSectionReader(r, int64(l2&offsetMask), int64(len(head)))
	default:
		at := int64(l2 & (1<<bits - 1))
		sectors := int64(l2&(compressed-1))>>bits + 1
		packed := io.NewSectionReader(r, at, sectors*sector-at%sector)
		if h.compression == 0 {
			from = flate.NewReader(packed)
			break
		}
		unpacked, err := zstd.NewReader(packed, zstd.WithDecoderMaxMemory(8<<20), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil
		}
		defer unpacked.Close()
		from = unpacked
	}
	if n, _ := io.ReadFull(from, head); n < sector { // a file may end within its last cluster
		return nil
	}
	return head
}
