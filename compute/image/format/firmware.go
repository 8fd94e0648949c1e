package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// BootSector returns the first sector of a disk's layer, which is a qcow2 or a raw file; nil: the layer does not have
// it. It reads and allocates little whatever the file contains.
func BootSector(r io.ReaderAt, size int64, format string) ([]byte, error) {
	if format == "qcow2" {
		h, err := ReadQcow2(r, size)
		if err != nil {
			return nil, err
		}
		return h.bootSector(r), nil
	}
	boot := make([]byte, sector)
	if n, err := r.ReadAt(boot, 0); n < len(boot) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return boot, nil
}

// NeedsUEFI reports whether only UEFI firmware can boot a disk with this boot sector: it has no boot code, and its
// partition table is a GPT or has an EFI system partition.
func NeedsUEFI(boot []byte) bool {
	const code, table, entry = 440, 446, 16
	if len(boot) < sector || boot[510] != 0x55 || boot[511] != 0xaa || len(bytes.Trim(boot[:code], "\x00")) > 0 {
		return false
	}
	for n := range 4 {
		if kind := boot[table+n*entry+4]; kind == 0xee || kind == 0xef {
			return true
		}
	}
	return false
}

// bootSector returns the first sector of the disk in a qcow2 image; nil: it is empty or cannot be read.
func (h *Qcow2) bootSector(r io.ReaderAt) []byte {
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
	boot := make([]byte, sector)
	var from io.Reader
	switch bits := 62 - (h.clusterBits - 8); {
	case l2&compressed == 0 && l2&offsetMask == 0:
		return nil
	case l2&compressed == 0:
		from = io.NewSectionReader(r, int64(l2&offsetMask), sector)
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
	if _, err := io.ReadFull(from, boot); err != nil {
		return nil
	}
	return boot
}
