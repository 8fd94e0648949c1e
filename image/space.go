package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"croft"
	"croft/image/format"
)

// slack is what a file system must have left after an image or disk is written: room
// for some of the files that etcd makes there, of 64 MiB each.
const slack = 256 << 20

// roomEvery is after how many written bytes the room on the disk is looked at.
const roomEvery = 4 << 20

// space watches the room that file systems have.
type space struct {
	free func(dir string) (int64, error) // bytes available
}

// room makes sure that need bytes fit in the directory's file system and some
// remain. Unavailable: they don't now; space may be freed.
func (s *space) room(dir string, need int64) error {
	free, err := s.free(dir)
	if err != nil {
		return err
	}
	if free < need+slack {
		return croft.Errorf(croft.Unavailable, "%s more are needed in %s and only %s are free: free some space there",
			format.Bytes(need+slack), dir, format.Bytes(free))
	}
	return nil
}

// gauge bounds what is written into a directory whose final size is unknown, or while others write there too.
type gauge struct {
	space *space
	dir   string
	left  int64 // until it is looked at again
}

// gauge looks at the room with the first byte.
func (s *space) gauge(dir string) *gauge { return &gauge{space: s, dir: dir} }

// take is called before n bytes are written.
func (g *gauge) take(n int64) error {
	if g.left < n {
		if err := g.space.room(g.dir, max(n, roomEvery)); err != nil {
			return err
		}
		g.left = max(n, roomEvery)
	}
	g.left -= n
	return nil
}

// freeBytes is what the file system of a directory has left for us.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("ask for the room left in %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// copySparse copies to a new, empty file and leaves holes where there are only
// zeros. It stops when ctx ends or the room does.
func copySparse(ctx context.Context, dst *os.File, src io.Reader, room *gauge) (int64, error) {
	var n int64
	buf := make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		k, err := io.ReadFull(src, buf)
		if !allZero(buf[:k]) {
			if err := room.take(int64(k)); err != nil {
				return n, err
			}
			if _, err := dst.WriteAt(buf[:k], n); err != nil {
				return n, err
			}
		}
		n += int64(k)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return n, dst.Truncate(n)
		case err != nil:
			return n, err
		}
	}
}

var zeros [256 << 10]byte

func allZero(b []byte) bool { return string(b) == string(zeros[:len(b)]) }
