// Package diskcopy copies a file with holes from one machine to another over one stream of bytes, with a digest of each
// chunk and of the whole file. A copy that broke off continues after the last chunk that is durable at the receiver.
//
// The receiver trusts the sender with the contents of the file and with nothing else: a stream that names a place
// outside of the file, or whose bytes differ from their digests, is refused. If the receiver knows the SHA-256 of the
// file, it does not trust the sender with the contents either. Only the receiver then hashes the file, as it arrives,
// and the chunks have checksums, which find damage early.
package diskcopy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"croft"
)

// Chunk is the size of a chunk in bytes. The last chunk of a file may be smaller. Chunks of zeros are not sent.
const Chunk = 1 << 20

// Head describes the file that a stream is about.
type Head struct {
	// Identity changes whenever the file may have changed: a copy does not continue with another one.
	Identity string `json:"identity"`
	Size     int64  `json:"size"` // bytes
	From     int64  `json:"from"` // index of the first chunk in the stream
	// SHA256 is the SHA-256 of the whole file, in hexadecimal; empty: the receiver does not know it.
	SHA256 string `json:"sha256,omitempty"`
}

// digest returns what a frame says about its chunk: a SHA-256, or a CRC-32C if the SHA-256 of the whole is known.
func (h Head) digest(chunk []byte) (d [sha256.Size]byte) {
	if h.SHA256 == "" {
		return sha256.Sum256(chunk)
	}
	binary.BigEndian.PutUint32(d[:], crc32.Checksum(chunk, castagnoli))
	return d
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// HeadOf returns the head of a file that no program writes to.
func HeadOf(f os.FileInfo) Head { return Head{Identity: Identity(f), Size: f.Size()} }

// Identity returns the identity of a file that no program writes to.
func Identity(f os.FileInfo) string {
	inode := uint64(0)
	if st, ok := f.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprintf("%x-%x-%x", inode, f.Size(), f.ModTime().UnixNano())
}

// Each chunk in a stream follows a frame: its index, its length and its digest. The frame with the index last has no
// chunk, and ends the stream; it has the digest of the whole file, unless the SHA-256 is known.
const (
	frameSize = 8 + 4 + sha256.Size
	last      = ^uint64(0)
)

// whole is the digest of a file: of its size, and of the index and digest of each chunk that is not only zeros.
type whole struct{ hash.Hash }

func newWhole(size int64) whole {
	w := whole{sha256.New()}
	w.Write(binary.BigEndian.AppendUint64(nil, uint64(size)))
	return w
}

func (w whole) add(index uint64, digest []byte) {
	w.Write(binary.BigEndian.AppendUint64(nil, index))
	w.Write(digest)
}

var zeros [Chunk]byte

// Send writes the stream that a head describes. It calls sent with the end of each chunk that was written. The file
// must not change meanwhile.
func Send(ctx context.Context, w io.Writer, f *os.File, head Head, sent func(offset int64)) error {
	sum, buffer, size, at := newWhole(head.Size), make([]byte, frameSize+Chunk), head.Size, int64(0)
	if head.SHA256 != "" {
		at = head.From * Chunk // the chunks before are part of no digest
	}
	for ; at < size; at += Chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := nextData(f, at)
		if err != nil {
			return fmt.Errorf("read the disk: %w", err)
		}
		if at = data / Chunk * Chunk; at >= size {
			break
		}
		chunk := buffer[frameSize : frameSize+min(Chunk, size-at)]
		if _, err := f.ReadAt(chunk, at); err != nil {
			return fmt.Errorf("read the disk: %w", err)
		}
		if bytes.Equal(chunk, zeros[:len(chunk)]) {
			continue
		}
		digest := head.digest(chunk)
		index := uint64(at / Chunk)
		sum.add(index, digest[:])
		if int64(index) < head.From {
			continue
		}
		putFrame(buffer, index, len(chunk), digest[:])
		if _, err := w.Write(buffer[:frameSize+len(chunk)]); err != nil {
			return err
		}
		sent(at + int64(len(chunk)))
	}
	putFrame(buffer, last, 0, sum.Sum(nil))
	_, err := w.Write(buffer[:frameSize])
	return err
}

// nextData returns the first offset from at on where the file has data; the maximum if only a hole is left.
func nextData(f *os.File, at int64) (int64, error) {
	data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return 1 << 62, nil
	case errors.Is(err, unix.EINVAL): // this file system does not know about holes
		return at, nil
	}
	return data, err
}

func putFrame(b []byte, index uint64, length int, digest []byte) {
	binary.BigEndian.PutUint64(b, index)
	binary.BigEndian.PutUint32(b[8:], uint32(length))
	copy(b[12:frameSize], digest)
}

// errDigest is the refusal of bytes that are not the ones that the sender read.
func errDigest(what string) error {
	return croft.Errorf(croft.Invalid, "%s arrived with other bytes than its digest says", what)
}
