package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
)

// Base implements compute.ImageStore. It inspects the file like an image that was fetched.
func (c *Cache) Base(ctx context.Context, dir string) (compute.CachedImage, error) {
	for _, kind := range []string{"qcow2", "raw"} {
		name := filepath.Join(dir, "base."+kind)
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return compute.CachedImage{}, err
		}
		defer f.Close()
		info, err := format.InspectFile(name)
		if err == nil && info.Format != kind {
			err = croft.Errorf(croft.Invalid, "it is no %s image", kind)
		}
		sum := sha256.New()
		if err == nil {
			_, err = io.Copy(sum, interruptible{ctx, f})
		}
		if err != nil {
			return compute.CachedImage{}, fmt.Errorf("read the image %s: %w", name, err)
		}
		return compute.CachedImage{Path: name, Format: kind, VirtualSize: info.VirtualSize,
			Digest: hex.EncodeToString(sum.Sum(nil))}, nil
	}
	return compute.CachedImage{}, croft.Errorf(croft.NotFound, "there is no disk in %s", dir)
}

// interruptible is a reader that ends with its context.
type interruptible struct {
	ctx  context.Context
	from io.Reader
}

func (i interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.from.Read(p)
}

// Adopt implements compute.ImageStore.
func (c *Cache) Adopt(ctx context.Context, img compute.CachedImage, dir, staged string, sizeGB int64) ([]compute.Layer,
	error) {
	if img.Format == "" {
		return adoptWhole(dir, staged, sizeGB)
	}
	name, base := filepath.Join(dir, "disk.qcow2"), filepath.Join(dir, "base."+img.Format)
	if img.Path != base {
		if err := c.base(ctx, img, base); err != nil {
			return nil, fmt.Errorf("put the image below the disk: %w", noSpace(err, dir))
		}
	} else if err := os.Chmod(base, imageMode); err != nil {
		return nil, fmt.Errorf("put the image below the disk: %w", err)
	}
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		if err := rebase(staged, base); err != nil {
			return nil, fmt.Errorf("put the disk above its image: %w", noSpace(err, dir))
		}
		if err := errors.Join(os.Rename(staged, name), syncDir(dir)); err != nil {
			return nil, fmt.Errorf("finish the disk: %w", err)
		}
	}
	want := format.Overlay{Virtual: sizeGB * gib, Backing: base, BackingFormat: img.Format}
	if err := adopted(name, want); err != nil {
		return nil, err
	}
	return []compute.Layer{{Path: name, Format: "qcow2"}, {Path: base, Format: img.Format}}, nil
}

// adoptWhole is Adopt for a disk without an image below.
func adoptWhole(dir, staged string, sizeGB int64) ([]compute.Layer, error) {
	name := filepath.Join(dir, "disk.qcow2")
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		h, err := header(staged)
		if err == nil {
			err = h.Acceptable()
		}
		if err != nil {
			return nil, fmt.Errorf("check the disk that arrived: %w", err)
		}
		if err := errors.Join(os.Rename(staged, name), syncDir(dir)); err != nil {
			return nil, fmt.Errorf("finish the disk: %w", err)
		}
	}
	if err := adopted(name, format.Overlay{Virtual: sizeGB * gib}); err != nil {
		return nil, err
	}
	return []compute.Layer{{Path: name, Format: "qcow2"}}, nil
}

// adopted returns Invalid if a disk has another size, or another image below, than the wanted one.
func adopted(name string, want format.Overlay) error {
	there, err := examine(name, want)
	if err == nil && !there {
		err = croft.Errorf(croft.Invalid, "the disk is not one of %s above %s", format.Bytes(want.Virtual),
			cmp.Or(want.Backing, "no image"))
	}
	if errors.Is(err, croft.Conflict) {
		err = croft.Errorf(croft.Invalid, "%w", err)
	}
	if err != nil {
		return fmt.Errorf("check the disk in %s: %w", filepath.Dir(name), err)
	}
	return nil
}

// rebase makes a disk name another file as its image.
func rebase(name, base string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := format.Rebase(f, info.Size(), base); err != nil {
		return err
	}
	return f.Sync()
}
