package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"croft"
	"croft/compute"
)

// guests is where make guest puts what it builds.
const guests = "/var/lib/croft/guests"

// fetchFile copies a file of this host into the cache, unless the one that was
// copied last is still the same.
func (c *Cache) fetchFile(ctx context.Context, ref Reference, t *transfer) (compute.Image, error) {
	src, fi, err := openIn(c.allow, ref.Path)
	if err != nil {
		return compute.Image{}, err
	}
	defer src.Close()
	now := stampOf(fi)
	if e, img, ok := c.held(ref); ok && e.Stamp != nil && *e.Stamp == now {
		t.finish(e.Size)
		return img, nil
	}
	if err := c.admit(now.Size); err != nil {
		return compute.Image{}, err
	}
	if err := inspectSource(src, now.Size); err != nil { // before it is copied for nothing
		return compute.Image{}, err
	}
	if err := c.room(c.dir, min(now.Size, allocated(fi))); err != nil {
		return compute.Image{}, err
	}
	t.total.Store(now.Size)
	want := ref.want()
	p, err := c.openPart(ref, want.algo == "sha512")
	if err != nil {
		return compute.Image{}, err
	}
	if err = c.copyLocal(ctx, p, src, now, t); err == nil {
		err = p.verify(want, "that was asked for")
	}
	if err != nil {
		p.discard()
		return compute.Image{}, err
	}
	return c.commit(ctx, p, ref, want, &now)
}

// inspectSource is Inspect of a file that may be packed: what it holds is judged once
// it is unpacked.
func inspectSource(r io.ReaderAt, size int64) error {
	head, err := readHead(r, size)
	if err != nil {
		return err
	}
	if _, packed := packingOf(head); packed {
		return nil
	}
	_, err = Inspect(r, size)
	return err
}

// openIn opens a regular file that is in one of the directories, and of which no link
// leads out of it; anything else might block, never end, or be no business of whoever
// asks. Of a file elsewhere it does not even tell whether it is there.
func openIn(dirs []string, name string) (*os.File, os.FileInfo, error) {
	for _, dir := range dirs {
		if rel, err := filepath.Rel(dir, name); err == nil && filepath.IsLocal(rel) {
			return openLocal(dir, rel)
		}
	}
	return nil, nil,
		croft.Errorf(croft.Invalid,
			"files of this host are taken from the directories alone that its setting images.allow_files names: put it there, or give a URL")
}

func openLocal(dir, rel string) (*os.File, os.FileInfo, error) {
	name := filepath.Join(dir, rel)
	place, err := findBelow(dir, rel)
	switch {
	case errors.Is(err, fs.ErrNotExist) && filepath.Dir(name) == guests:
		return nil, nil,
			croft.Errorf(croft.NotFound,
				"it is not built on this host yet: run make guest in croft's sources there, or take an image that is fetched, such as cirros")
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil,
			croft.Errorf(croft.NotFound, "there is no such file on this host: check the path, or put the image there")
	case err != nil:
		return nil, nil, croft.Errorf(croft.Invalid, "it cannot be opened on this host: %w", err)
	}
	defer place.Close()
	fi, err := place.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, croft.Errorf(croft.Invalid, "it is no regular file: give the path of an image")
	}
	// The very file that was looked at, whatever has its name by now.
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", place.Fd()), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, croft.Errorf(croft.Invalid, "it cannot be opened on this host: %w", err)
	}
	return os.NewFile(uintptr(fd), name), fi, nil
}

// findBelow follows links as far as they stay below dir. What it returns can be looked
// at and not read: opening a device or FIFO may already do something.
func findBelow(dir, rel string) (*os.File, error) {
	const flags = unix.O_PATH | unix.O_CLOEXEC
	if dir == "/" { // where there is no way out, and absolute links are usual
		return os.OpenFile(filepath.Join(dir, rel), flags, 0)
	}
	root, err := os.OpenFile(dir, flags|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), rel, &unix.OpenHow{Flags: flags,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(dir, rel), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir, rel)), nil
}

func stampOf(fi os.FileInfo) stamp {
	s := stamp{Size: fi.Size(), Modified: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.Device, s.Inode = st.Dev, st.Ino
	}
	return s
}

// copyLocal copies the file, hole by hole, into a new part, and makes sure that
// it did not change meanwhile.
func (c *Cache) copyLocal(ctx context.Context, p *part, src *os.File, before stamp, t *transfer) error {
	if err := p.reset(validator{}, before.Size); err != nil {
		return fmt.Errorf("write image: %w", noSpace(err, c.dir))
	}
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	n, err := copySparse(ctx, p.f, counted{src, p, t}, c.gauge(c.dir))
	if err != nil {
		return fmt.Errorf("copy image: %w", noSpace(err, c.dir))
	}
	p.size = n
	after, err := src.Stat()
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	if n != before.Size || stampOf(after) != before {
		return croft.Errorf(croft.Unavailable, "it changed while it was read: try again when it is finished")
	}
	return nil
}

// counted puts what is read into the part's sums and the transfer's count.
type counted struct {
	io.Reader
	p *part
	t *transfer
}

func (r counted) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.p.hash(b[:n])
	r.t.have.Store(r.p.hashed)
	return n, err
}
