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
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
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

// refine makes of a verified download what the cache takes: unpacked once, and
// converted where it is a VMDK. Discard what it returns beside the download.
func (c *Cache) refine(ctx context.Context, d draft) (draft, error) {
	head, err := readHead(d.f, d.size)
	if err != nil {
		return draft{}, err
	}
	if p, ok := packingOf(head); ok {
		inside, err := c.unpack(ctx, p, d)
		if err != nil {
			return draft{}, err
		}
		if head, err = readHead(inside.f, inside.size); err != nil {
			inside.discard()
			return draft{}, err
		}
		if !isVMDK(head) {
			return inside, nil
		}
		defer inside.discard()
		d = inside
	}
	if isVMDK(head) {
		return c.convert(ctx, d)
	}
	return d, nil
}

// refinable reports whether refine has something to do with a file that begins so.
func refinable(head []byte) bool {
	_, packed := packingOf(head)
	return packed || isVMDK(head)
}

// errNoDisk is what is said of a file that nothing is known of.
var errNoDisk = croft.Errorf(croft.Invalid, "it is no disk image: it has neither the header of qcow2 nor, as a raw disk has, a boot record or partition table")

// image is what the cache calls the draft.
func (c *Cache) image(d draft, info Info) compute.Image {
	sum := d.sha256()
	return compute.Image{Path: c.imagePath(sum, info.Format), Format: info.Format, VirtualSize: info.VirtualSize, Digest: sum}
}
