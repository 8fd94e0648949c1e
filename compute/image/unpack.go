package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"croft"
	"croft/compute/image/format"
)

// unpacker decompresses published images.
type unpacker struct {
	dir   string // the cache's directory
	max   int64  // limit of the unpacked size in bytes
	space *space
}

// unpacked returns the content of a verified download if it is packed, and else the download itself. The
// caller discards the result and the download.
func (u unpacker) unpacked(ctx context.Context, d candidate) (candidate, error) {
	head, err := format.ReadHead(d.f, d.size)
	if err != nil {
		return candidate{}, err
	}
	if p, ok := format.PackingOf(head); ok {
		return u.unpack(ctx, p, d)
	}
	return d, nil
}

// unpack writes the content of a packed file to a new file. It stops at the cache's size limit, when the disk has no
// space, and as soon as the beginning shows that the content cannot be a disk. The caller discards the candidate.
func (u unpacker) unpack(ctx context.Context, p format.Packing, packed candidate) (_ candidate, err error) {
	d, err := newCandidate(packed.path + ".unpacked" + tempSuffix)
	if err != nil {
		return candidate{}, err
	}
	defer func() {
		if err != nil {
			d.discard()
		}
	}()
	r, err := p.Open(bufio.NewReaderSize(io.NewSectionReader(packed.f, 0, packed.size), 256<<10))
	if err != nil {
		return candidate{}, p.Explain(err)
	}
	defer r.Close()
	limited := &unpacking{Reader: r, unpacker: u, Packing: p}
	d.size, err = copySparse(ctx, d.f, io.TeeReader(limited, d.sum), u.space.gauge(u.dir))
	switch {
	case limited.err != nil:
		return candidate{}, limited.err
	case err != nil:
		return candidate{}, fmt.Errorf("unpack image: %w", noSpace(err, u.dir))
	}
	return d, nil
}

// judged is how much of the unpacked content decides whether it can be a disk.
const judged = 64 << 10

// unpacking counts and checks unpacked content.
type unpacking struct {
	io.Reader
	unpacker
	n    int64
	head []byte
	err  error // why it stopped early, with a kind
	format.Packing
}

func (u *unpacking) Read(b []byte) (int, error) {
	before := u.n / roomEvery
	n, err := u.Reader.Read(b)
	u.n += int64(n)
	if missing := judged - len(u.head); missing > 0 && n > 0 {
		u.head = append(u.head, b[:min(n, missing)]...)
		if len(u.head) == judged {
			u.err = format.RefuseBeginning(u.head)
		}
	}
	switch {
	case u.err != nil:
	case u.n > u.max:
		u.err = croft.Errorf(croft.Invalid,
			"unpacked it has more than the %s that the image cache may hold in all: raise that limit or take a smaller image", format.Bytes(u.max))
	case u.n/roomEvery != before || u.n == int64(n):
		u.err = u.space.room(u.dir, roomEvery)
	}
	if u.err == nil && err != nil && !errors.Is(err, io.EOF) {
		u.err = u.Explain(err)
	}
	if u.err != nil {
		return n, u.err
	}
	return n, err
}
