package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
)

const gib = 1 << 30

const diskFile = "disk.qcow2"

// Disk creates, in dir, a guest's disk of sizeGB GiB over the image: base.qcow2 or base.raw, a hard link to
// the image in the cache (a copy if dir is on another file system), and disk.qcow2, an empty overlay on it. A
// correct existing disk stays; a torn one to which no guest has written is created again.
//
// Invalid: the image needs a larger disk. Unavailable: not enough space, or the image was evicted since it
// was fetched. Conflict: a guest's disk of another size or image exists.
func (c *Cache) Disk(ctx context.Context, img compute.CachedImage, dir string, sizeGB int64) ([]compute.Layer, error) {
	if err := checkSize(img, sizeGB); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make disk: %w", err)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("make disk: %w", err)
	}
	name := filepath.Join(dir, diskFile)
	base := compute.Layer{Path: filepath.Join(dir, "base."+img.Format), Format: img.Format, Shared: true}
	want := format.Overlay{Virtual: sizeGB * gib, Backing: base.Path, BackingFormat: base.Format}
	layers := []compute.Layer{{Path: name, Format: "qcow2"}, base}

	if err := grow(name, sizeGB); err != nil && !errors.Is(err, fs.ErrNotExist) && croft.KindOf(err) != croft.Invalid {
		return nil, fmt.Errorf("make disk in %s: %w", dir, err)
	}
	switch there, err := examine(name, want); {
	case err != nil:
		return nil, fmt.Errorf("make disk in %s: %w", dir, err)
	case there:
		return layers, nil
	}
	if err := c.makeDisk(ctx, img, name, want); err != nil {
		return nil, fmt.Errorf("make disk in %s: %w", dir, err)
	}
	return layers, nil
}

func checkSize(img compute.CachedImage, sizeGB int64) error {
	need := (img.VirtualSize + gib - 1) / gib
	switch {
	case img.Format == format.FormatISO:
		return croft.Errorf(croft.Invalid, "the image is a CD, from which no disk is made: ask for it with --iso, without an "+
			"image or with that of a disk")
	case sizeGB < 1 || sizeGB > format.MaxVirtual/gib:
		return croft.Errorf(croft.Invalid, "a disk of %d GiB cannot be made: ask for DISK_GB from 1 to %d", sizeGB,
			int64(format.MaxVirtual/gib))
	case sizeGB < need:
		return croft.Errorf(croft.Invalid,
			"the image's disk has %s and does not fit the %d GiB asked for: ask for DISK_GB:%d or more",
			format.Bytes(img.VirtualSize), sizeGB, need)
	}
	return nil
}

// Enlarge implements compute.ImageStore.
func (c *Cache) Enlarge(_ context.Context, file string, sizeGB int64) error {
	err := grow(file, sizeGB)
	if errors.Is(err, fs.ErrNotExist) {
		return croft.Errorf(croft.NotFound, "make the disk larger: there is no disk %s", file)
	}
	if err != nil {
		return fmt.Errorf("make the disk %s larger: %w", file, err)
	}
	return nil
}

// grow makes a disk that croft made larger, and syncs it.
func grow(name string, sizeGB int64) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = format.Grow(f, info.Size(), sizeGB*gib)
	}
	if err == nil {
		err = f.Sync()
	}
	return err
}

// examine reports whether the wanted disk exists already. An incorrect one may be replaced only while it has
// its initial size: then no guest has written to it.
func examine(name string, want format.Overlay) (there bool, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return false, err
	}
	h, err := format.ReadQcow2(f, fi.Size())
	problem := ""
	switch {
	case err != nil:
		problem = err.Error()
	case h.Backing != want.Backing || h.BackingFormat != want.BackingFormat:
		problem = fmt.Sprintf("it stands on %s", h.Backing)
	case h.Virtual != uint64(want.Virtual):
		problem = fmt.Sprintf("it has %s, not %s", format.Bytes(int64(h.Virtual)), format.Bytes(want.Virtual))
	case fi.Size() < want.Length():
		problem = "it is cut short"
	case want.Backing != "" && !isRegular(want.Backing):
		problem = "its base image is gone"
	}
	if problem != "" && fi.Size() > want.Length() {
		return false,
			croft.Errorf(croft.Conflict,
				"%s holds a guest's data and is not the disk that is wanted (%s): move it away", name, problem)
	}
	return problem == "", nil
}

func (c *Cache) makeDisk(ctx context.Context, img compute.CachedImage, name string, want format.Overlay) error {
	dir := filepath.Dir(name)
	if err := c.space.room(dir, want.Length()); err != nil {
		return err
	}
	if err := c.base(ctx, img, want.Backing); err != nil {
		return err
	}
	// The hypervisor changes the overlay's owner to its own user when the guest starts.
	return replaceFile(name, 0o600, func(f *os.File) error {
		if err := f.Truncate(want.Length()); err != nil {
			return err
		}
		return want.Write(f)
	})
}

// base makes name a hard link to the image, or a copy.
func (c *Cache) base(ctx context.Context, img compute.CachedImage, name string) error {
	src, err := os.Open(img.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return croft.Errorf(croft.Unavailable,
			"the image %s was removed from the cache since it was fetched: fetch it again", img.Path)
	}
	if err != nil {
		return err
	}
	defer src.Close()
	fi, err := src.Stat()
	if err != nil {
		return err
	}
	if have, err := os.Lstat(name); err == nil && os.SameFile(have, fi) {
		return nil
	}
	temp := name + tempSuffix
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch err := os.Link(img.Path, temp); {
	case err == nil:
		return os.Rename(temp, name) // durable with the directory sync after the overlay
	case !cannotLink(err):
		return err
	}
	if err := c.space.room(filepath.Dir(name), fi.Size()); err != nil {
		return err
	}
	return replaceFile(name, imageMode, func(f *os.File) error {
		_, err := copySparse(ctx, f, src, c.space.gauge(filepath.Dir(name)))
		return err
	})
}

// cannotLink reports whether a copy is necessary: another file system, one without hard links, or a policy
// against them.
func cannotLink(err error) bool {
	return errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EMLINK) ||
		errors.Is(err, unix.ENOTSUP)
}
