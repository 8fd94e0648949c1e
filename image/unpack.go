package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"

	"croft"
)

const (
	// maxWindow bounds the memory that a packed file may ask for: what zstd --long
	// makes, and twice the dictionary of xz -9.
	maxWindow = 128 << 20
	// judged is how much of what a packed file holds tells whether it can be a disk.
	judged = 64 << 10
)

// packing is a form that images are published in. Those without open are only known
// by name.
type packing struct {
	magic
	name, tool string
	open       func(io.Reader) (io.ReadCloser, error)
}

// packings are the archives and compressions that images are published in.
var packings = []packing{
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

// packingOf is how a file that begins so is packed, if it is one of those that can
// be unpacked here.
func packingOf(head []byte) (packing, bool) {
	i := slices.IndexFunc(packings, func(p packing) bool { return p.open != nil && p.in(head) })
	if i < 0 {
		return packing{}, false
	}
	return packings[i], true
}

// unpack writes what a packed file holds into a new one, as much as the cache may
// hold and the disk has room for, and no further than its beginning where that shows
// that it cannot be a disk. Discard the draft.
func (c *Cache) unpack(ctx context.Context, p packing, packed draft) (_ draft, err error) {
	d, err := newDraft(packed.path + ".unpacked" + tempSuffix)
	if err != nil {
		return draft{}, err
	}
	defer func() {
		if err != nil {
			d.discard()
		}
	}()
	r, err := p.open(bufio.NewReaderSize(io.NewSectionReader(packed.f, 0, packed.size), 256<<10))
	if err != nil {
		return draft{}, p.explain(err)
	}
	defer r.Close()
	limited := &unpacking{Reader: r, c: c, packing: p}
	d.size, err = copySparse(ctx, d.f, io.TeeReader(limited, d.sum), c.gauge(c.dir))
	switch {
	case limited.err != nil:
		return draft{}, limited.err
	case err != nil:
		return draft{}, fmt.Errorf("unpack image: %w", noSpace(err, c.dir))
	}
	return d, nil
}

// unpacking counts and judges what comes out of a packed file.
type unpacking struct {
	io.Reader
	c    *Cache
	n    int64
	head []byte
	err  error // why it ended before its end, of a kind
	packing
}

func (u *unpacking) Read(b []byte) (int, error) {
	before := u.n / roomEvery
	n, err := u.Reader.Read(b)
	u.n += int64(n)
	if missing := judged - len(u.head); missing > 0 && n > 0 {
		u.head = append(u.head, b[:min(n, missing)]...)
		if len(u.head) == judged {
			u.err = judge(u.head)
		}
	}
	switch {
	case u.err != nil:
	case u.n > u.c.max:
		u.err = croft.Errorf(croft.Invalid,
			"unpacked it has more than the %s that the image cache may hold in all: raise that limit or take a smaller image", human(u.c.max))
	case u.n/roomEvery != before || u.n == int64(n):
		u.err = u.c.room(u.c.dir, roomEvery)
	}
	if u.err == nil && err != nil && !errors.Is(err, io.EOF) {
		u.err = u.explain(err)
	}
	if u.err != nil {
		return n, u.err
	}
	return n, err
}

// judge refuses by its beginning what can become no disk, however much follows.
func judge(head []byte) error {
	if isQcow2(head) {
		return nil // the rest of its header may follow later
	}
	if err := refuseHead(head); err != nil {
		return err
	}
	if bootable(bytes.NewReader(head), int64(len(head)), head) {
		return nil
	}
	return errNoDisk
}

// explain says what is wrong with a packed file.
func (p packing) explain(err error) error {
	if errors.Is(err, xz.ErrMemlimit) || errors.Is(err, zstd.ErrWindowSizeExceeded) ||
		errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return croft.Errorf(croft.Invalid,
			"unpacking it would take more than %s of memory: pack it with %s in its usual way", human(maxWindow),
			p.name)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return croft.Errorf(croft.Invalid, "it is packed with %s and damaged (%w): fetch or make it again", p.name, err)
}
