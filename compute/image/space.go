package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"croft"
	"croft/compute/image/format"
)

// slack is the free space that must remain after an image or disk is written: room for some of etcd's files
// of 64 MiB each.
const slack = 256 << 20

// roomEvery is the number of written bytes between checks of the free space.
const roomEvery = 4 << 20

// space checks the free space of file systems.
type space struct {
	free func(dir string) (int64, error) // bytes available
}

// room checks that need bytes fit into the directory's file system and leave slack. Unavailable: they do not
// fit now; space may be freed.
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

// gauge limits writes into a directory when the final size is unknown or others write there too.
type gauge struct {
	space *space
	dir   string
	left  int64 // bytes until the next check
}

// gauge returns a gauge that checks with the first byte.
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

// freeBytes returns the space of a directory's file system that is available to this process.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("ask for the room left in %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// copySparse copies to a new, empty file and leaves holes for zeros. It stops when ctx ends or the space runs out.
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
