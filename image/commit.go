package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"croft"
	"croft/compute"
)

// admit says whether an image of so many bytes may enter the cache, and evicts
// others for it; 0 where the size is not known.
func (c *Cache) admit(bytes int64) error {
	if bytes > c.max {
		return croft.Errorf(croft.Invalid,
			"it has %s or more, and the image cache may hold %s in all: raise that limit or take a smaller image",
			human(bytes), human(c.max))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.evict(bytes)
}

// verify compares a finished file with the checksum it must have.
func (p *part) verify(want digest, source string) error {
	if want == (digest{}) {
		return nil
	}
	if got := p.digest(want.algo); got != want {
		return croft.Errorf(croft.Invalid,
			"its %s is %s and not the %s %s: correct the checksum, or take the image from somewhere else", want.algo,
			got.hex, want.hex, source)
	}
	return nil
}

// commit unpacks and inspects a finished download and gives what it holds its place
// in the cache. The download is kept only where ctx ended.
func (c *Cache) commit(ctx context.Context, p *part, ref Reference, verified digest, from *stamp) (compute.Image,
	error) {
	d, err := c.unpacked(ctx, p.draft())
	if err != nil && ctx.Err() != nil {
		return compute.Image{}, errors.Join(err, p.close())
	}
	defer p.discard() // its name may be gone, its state is not
	if err != nil {
		return compute.Image{}, err
	}
	defer d.discard()
	info, err := Inspect(d.f, d.size)
	if err != nil {
		return compute.Image{}, err
	}
	if err := c.seal(d); err != nil {
		return compute.Image{}, err
	}
	img := c.image(d, info)
	e := entry{SHA256: img.Digest, Format: info.Format, Size: d.size, validator: p.state.validator, Stamp: from}
	e.publish(p.digest("sha256"))
	e.publish(verified)
	if err = c.place(d, img.Path); err != nil {
		return compute.Image{}, fmt.Errorf("put image into the cache: %w", err)
	}
	c.remember(ref, e)
	c.metrics.fetched.Inc()
	c.metrics.bytes.Add(float64(e.Size))
	c.log.Info("image fetched", "image", ref.Name(), "bytes", e.Size, "sha256", e.SHA256, "format", e.Format)
	return img, nil
}

// seal makes the file readable for the hypervisor and safe against a crash.
func (c *Cache) seal(d draft) error {
	if err := d.f.Chmod(imageMode); err != nil {
		return fmt.Errorf("finish download: %w", err)
	}
	if err := d.f.Sync(); err != nil {
		return fmt.Errorf("finish download: %w", noSpace(err, c.dir))
	}
	return nil
}

// place renames the file to what it is called by its content. A file that is there
// already has the same content, and disks may stand on it: it stays.
func (c *Cache) place(d draft, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if fi, err := os.Stat(name); err == nil && fi.Size() == d.size {
		return os.Chtimes(name, now, now)
	}
	if err := os.Chtimes(d.path, now, now); err != nil {
		return err
	}
	if err := os.Rename(d.path, name); err != nil {
		return err
	}
	return errors.Join(syncDir(c.dir), c.evict(0))
}

// rememberImage is remember for a file that came into the cache by another reference.
func (c *Cache) rememberImage(ref Reference, d digest, img compute.Image) error {
	fi, err := os.Stat(img.Path)
	if err != nil {
		return fmt.Errorf("look at the image in the cache: %w", err)
	}
	e := entry{SHA256: img.Digest, Format: img.Format, Size: fi.Size()}
	e.publish(d)
	c.remember(ref, e)
	return nil
}

// allocated is what a file takes on the disk, which is less than its size where
// it has holes.
func allocated(fi os.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return fi.Size()
}

func newCached(path string, fi os.FileInfo) cached {
	f := cached{path: path, bytes: allocated(fi), used: fi.ModTime(), links: 1}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		f.links = uint64(st.Nlink)
	}
	return f
}
