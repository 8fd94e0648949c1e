package format

import (
	"errors"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"

	"croft"
)

// maxWindow limits the memory for unpacking a file: the window of zstd --long, and twice the dictionary of xz
// -9.
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

func openGzip(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }

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
