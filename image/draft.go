package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"

	"croft"
	"croft/compute"
)

// draft is a whole file on the cache's file system that may become one of its images.
type draft struct {
	f    *os.File
	path string
	size int64
	sum  hash.Hash // SHA-256 of all of it
}

// newDraft makes the file anew; its name is one that a sweep removes.
func newDraft(name string) (draft, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return draft{}, fmt.Errorf("make image: %w", err)
	}
	return draft{f: f, path: name, sum: sha256.New()}, nil
}

func (d draft) sha256() string { return hex.EncodeToString(d.sum.Sum(nil)) }

// discard closes the file and removes it where it still has its first name.
func (d draft) discard() {
	d.f.Close()
	os.Remove(d.path)
}

// draft is the download itself.
func (p *part) draft() draft { return draft{f: p.f, path: p.path, size: p.size, sum: p.sum256} }

// unpacked returns what a verified download holds where it is packed, and else the
// download itself. Discard what it returns beside the download.
func (c *Cache) unpacked(ctx context.Context, d draft) (draft, error) {
	head, err := readHead(d.f, d.size)
	if err != nil {
		return draft{}, err
	}
	if p, ok := packingOf(head); ok {
		return c.unpack(ctx, p, d)
	}
	return d, nil
}

// errNoDisk is what is said of a file that nothing is known of.
var errNoDisk = croft.Errorf(croft.Invalid,
	"it is no disk image: it has neither the header of qcow2 nor, as a raw disk has, a boot record or partition table")

// image is what the cache calls the draft.
func (c *Cache) image(d draft, info Info) compute.Image {
	sum := d.sha256()
	return compute.Image{Path: c.imagePath(sum, info.Format), Format: info.Format, VirtualSize: info.VirtualSize,
		Digest: sum}
}
