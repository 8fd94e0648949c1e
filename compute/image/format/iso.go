package format

import (
	"bytes"
	"encoding/binary"
	"io"

	"croft"
)

// The layout of a CD image, ISO 9660 (ECMA-119): volume descriptors in sectors of 2048 bytes, the first one after 16
// sectors for other uses.
const (
	isoSector      = 2048
	isoFirst       = 16
	isoDescriptors = 64 // that are read at most
	isoMark        = "CD001"
	isoPrimary     = 1
	isoEnd         = 255
)

// CheckISO returns Invalid unless a file is an ISO 9660 image of at least the size that it says. It reads little,
// whatever the file contains.
func CheckISO(r io.ReaderAt, size int64) error {
	d := make([]byte, isoSector)
	for n := int64(isoFirst); n < isoFirst+isoDescriptors && (n+1)*isoSector <= size; n++ {
		if k, _ := r.ReadAt(d, n*isoSector); k < len(d) || string(d[1:6]) != isoMark {
			break
		}
		switch d[0] {
		case isoPrimary:
			return checkPrimary(d, size)
		case isoEnd:
			return errNoISO
		}
	}
	return errNoISO
}

// errNoISO refuses a file that is not the image of a CD.
var errNoISO = croft.Errorf(croft.Invalid,
	"it is not an ISO 9660 image of a CD: it has no primary volume descriptor; give the file that would be burnt to a CD")

// checkPrimary compares a primary volume descriptor with the size of its file. It has each number twice, in both orders
// of bytes.
func checkPrimary(d []byte, size int64) error {
	const blocksAt, blockAt = 80, 128
	blocks, block := binary.LittleEndian.Uint32(d[blocksAt:]), binary.LittleEndian.Uint16(d[blockAt:])
	again := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(nil, blocks), block)
	if d[6] != 1 || block != isoSector || blocks == 0 ||
		!bytes.Equal(again, append(bytes.Clone(d[blocksAt+4:blocksAt+8]), d[blockAt+2:blockAt+4]...)) {
		return croft.Errorf(croft.Invalid, "it is a damaged ISO 9660 image: its volume descriptor says %d blocks of %d "+
			"bytes, in contradiction to itself or to the standard; fetch it again", blocks, block)
	}
	if need := int64(blocks) * isoSector; size < need {
		return croft.Errorf(croft.Invalid, "it is an ISO 9660 image that was cut short: it has %s of %s; fetch it again",
			Bytes(size), Bytes(need))
	}
	return nil
}
