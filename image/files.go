package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"croft"
)

// slack is what a file system must have left after an image or disk is written: room
// for some of the files that etcd makes there, of 64 MiB each.
const slack = 256 << 20

// roomEvery is after how many written bytes the room on the disk is looked at.
const roomEvery = 4 << 20

// gauge bounds what is written into a directory whose size nobody knows, or while
// others write there too.
type gauge struct {
	c    *Cache
	dir  string
	left int64 // until it is looked at again
}

// gauge looks at the room with the first byte.
func (c *Cache) gauge(dir string) *gauge { return &gauge{c: c, dir: dir} }

// take is called before n bytes are written.
func (g *gauge) take(n int64) error {
	if g.left < n {
		if err := g.c.room(g.dir, max(n, roomEvery)); err != nil {
			return err
		}
		g.left = max(n, roomEvery)
	}
	g.left -= n
	return nil
}

// human writes a number of bytes as people do: 1.5 GiB.
func human(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1023.95 && unit < len(units)-1 {
		value /= 1 << 10
		unit++
	}
	if value == float64(int64(value)) {
		return fmt.Sprintf("%.0f %ciB", value, units[unit])
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}

// freeBytes is what the file system of a directory has left for us.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("ask for the room left in %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// room makes sure that need bytes fit in the directory's file system and some
// remain. Unavailable: they don't now; space may be freed.
func (c *Cache) room(dir string, need int64) error {
	free, err := c.free(dir)
	if err != nil {
		return err
	}
	if free < need+slack {
		return croft.Errorf(croft.Unavailable, "%s more are needed in %s and only %s are free: free some space there",
			human(need+slack), dir, human(free))
	}
	return nil
}

// noSpace gives running out of room its kind and sentence.
func noSpace(err error, dir string) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return croft.Errorf(croft.Unavailable, "the file system of %s is full: free some space there", dir)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// replaceFile gives name the content that fill writes, atomically and for good:
// after a crash there is the old file or the whole new one.
func replaceFile(name string, mode os.FileMode, fill func(*os.File) error) (err error) {
	temp := name + tempSuffix
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(temp)
		}
	}()
	if err := f.Chmod(mode); err != nil { // whatever the umask
		return err
	}
	if err := fill(f); err != nil {
		return noSpace(err, filepath.Dir(name))
	}
	if err := f.Sync(); err != nil {
		return noSpace(err, filepath.Dir(name))
	}
	if err := os.Rename(temp, name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// tempSuffix marks files that a crash may leave and that nobody needs.
const tempSuffix = ".tmp"

func replaceJSON(name string, v any) error {
	return replaceFile(name, 0o600, func(f *os.File) error { // it may have passwords of URLs
		enc := json.NewEncoder(f)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	})
}
