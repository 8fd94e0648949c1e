package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"croft"
)

// Layout of overlays: version 3, clusters of 64 KiB. Cluster 0 is the header, 1 the refcount table, 2 its
// only refcount block, and from 3 on the empty L1 table: every read goes to the backing file.
const (
	overlayBits    = 16
	overlayCluster = 1 << overlayBits
	overlayPerL1   = overlayCluster / 8 * overlayCluster // 512 MiB of disk per L1 entry
	overlayL1At    = 3 * overlayCluster
)

// Overlay is an empty qcow2 image on a backing file.
type Overlay struct {
	Virtual       int64  // bytes
	Backing       string // empty: none, the disk is empty
	BackingFormat string
	// bytes to which the disk can grow by a change of the size in its header alone, see Grow; at least Virtual
	Room int64
}

func (o Overlay) l1Entries() int64 { return (max(o.Virtual, o.Room) + overlayPerL1 - 1) / overlayPerL1 }

func (o Overlay) l1Clusters() int64 { return (o.l1Entries()*8 + overlayCluster - 1) / overlayCluster }

// Length is the size of the file that Write creates.
func (o Overlay) Length() int64 { return overlayL1At + o.l1Clusters()*overlayCluster }

// Write writes all nonzero parts; the file must be new, and the caller sets its length.
func (o Overlay) Write(w io.WriterAt) error {
	header, err := o.header()
	if err != nil {
		return err
	}
	table := binary.BigEndian.AppendUint64(nil, 2*overlayCluster)
	var counts []byte // 16 bits per cluster of the file
	for range o.Length() / overlayCluster {
		counts = binary.BigEndian.AppendUint16(counts, 1)
	}
	for i, b := range [][]byte{header, table, counts} {
		if _, err := w.WriteAt(b, int64(i)*overlayCluster); err != nil {
			return fmt.Errorf("write overlay: %w", err)
		}
	}
	return nil
}

func (o Overlay) header() ([]byte, error) {
	if o.Virtual <= 0 || o.Virtual > MaxVirtual {
		return nil, croft.Errorf(croft.Invalid, "a disk may have from 1 byte to %s, not %d bytes", Bytes(MaxVirtual),
			o.Virtual)
	}
	if len(o.Backing) > maxBackingLen {
		return nil,
			croft.Errorf(croft.Invalid, "the path of the base image is longer than the %d bytes that qcow2 allows: %s",
				maxBackingLen, o.Backing)
	}
	u32, u64 := binary.BigEndian.AppendUint32, binary.BigEndian.AppendUint64

	var ext []byte
	backing := uint64(0)
	if o.Backing != "" {
		ext = u32(ext, extBackingFormat)
		ext = u32(ext, uint32(len(o.BackingFormat)))
		ext = append(ext, o.BackingFormat...)
		ext = append(ext, make([]byte, -len(ext)&7)...)
		backing = uint64(qcowV3Header + len(ext) + 8) // the name follows the extensions
	}
	ext = u64(ext, extEnd) // kind and length of the end extension

	b := []byte(qcowMagic)
	b = u32(b, 3)
	b = u64(b, backing)
	b = u32(b, uint32(len(o.Backing)))
	b = u32(b, overlayBits)
	b = u64(b, uint64(o.Virtual))
	b = u32(b, 0) // not encrypted
	b = u32(b, uint32(o.l1Entries()))
	b = u64(b, overlayL1At)
	b = u64(b, overlayCluster) // refcount table
	b = u32(b, 1)
	b = u32(b, 0) // no snapshots
	b = u64(b, 0)
	b = append(b, make([]byte, 24)...) // no features
	b = u32(b, 4)                      // refcounts of 2^4 bits
	b = u32(b, qcowV3Header)
	b = append(b, ext...)
	return append(b, o.Backing...), nil
}

// Rebase makes an overlay name another file of the same contents as its backing file. No program may have it open. It
// can be repeated after a crash. Invalid: it is no overlay, or refers to further files.
func Rebase(f interface {
	io.ReaderAt
	io.WriterAt
}, size int64, backing string) error {
	h, err := ReadQcow2(f, size)
	if err != nil {
		return err
	}
	head := make([]byte, qcowV2Header)
	if _, err := f.ReadAt(head, 0); err != nil {
		return err
	}
	at := int64(binary.BigEndian.Uint64(head[8:]))
	switch {
	case h.KeepsDataElsewhere() || h.cryptoHeader || h.crypt != 0 || h.incompat&incompatCorrupt != 0:
		return croft.Errorf(croft.Invalid, "it refers to another file, is encrypted or is damaged")
	case h.Backing == "" || at < qcowV2Header:
		return croft.Errorf(croft.Invalid, "it has no backing file")
	case len(backing) > maxBackingLen ||
		at+int64(len(backing)) > min(h.cluster(), int64(h.l1Offset), int64(h.refOffset)):
		return croft.Errorf(croft.Invalid, "its header has no room for the path %s", backing)
	}
	if _, err := f.WriteAt([]byte(backing), at); err != nil {
		return err
	}
	_, err = f.WriteAt(binary.BigEndian.AppendUint32(nil, uint32(len(backing))), 16)
	return err
}

// sizeAt is the offset of the disk's size in the header. The encryption method and the number of L1 entries follow.
const sizeAt = 24

// Grow makes a disk that Write made larger, as far as the clusters of its L1 table reach: at least up to its Room, and
// to 4 TiB. A larger disk stays. No program may have it open. The header changes in one write of 16 bytes, so a crash
// leaves a disk of either size.
func Grow(f interface {
	io.ReaderAt
	io.WriterAt
}, size, virtual int64) error {
	h, err := ReadQcow2(f, size)
	switch {
	case err != nil:
		return err
	case h.Virtual >= uint64(virtual):
		return nil
	case h.clusterBits != overlayBits:
		return croft.Errorf(croft.Invalid, "its clusters have 2^%d bytes, not 64 KiB", h.clusterBits)
	}
	was, entries := int64(h.l1Size), max(int64(h.l1Size), (Overlay{Virtual: virtual}).l1Entries())
	if entries*8 > (was*8+overlayCluster-1)/overlayCluster*overlayCluster {
		return croft.Errorf(croft.Invalid, "it has no room in its tables for %s", Bytes(virtual))
	}
	unused := make([]byte, (entries-was)*8) // of the table's last cluster, which belongs to it as a whole
	if _, err := f.ReadAt(unused, int64(h.l1Offset)+was*8); err != nil && len(unused) > 0 && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read its table: %w", err)
	}
	for _, b := range unused {
		if b != 0 {
			return croft.Errorf(croft.Invalid, "its table is followed by other data")
		}
	}
	header := binary.BigEndian.AppendUint64(nil, uint64(virtual))
	header = binary.BigEndian.AppendUint32(header, 0) // not encrypted, as ReadQcow2 requires
	header = binary.BigEndian.AppendUint32(header, uint32(entries))
	_, err = f.WriteAt(header, sizeAt)
	return err
}
