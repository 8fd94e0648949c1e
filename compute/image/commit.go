package image

import (
	"context"
	"errors"
	"fmt"

	"croft/compute"
	"croft/compute/image/format"
)

// committer adds complete downloads to the cache.
type committer struct {
	unpacker unpacker
	store    *store
}

// commit unpacks and inspects a complete download and adds its content to the cache. It keeps the download
// only if ctx ended.
func (c committer) commit(ctx context.Context, f *stagingFile, ref Reference, verified digest,
	from *stamp) (compute.CachedImage, error) {
	d, err := c.unpacker.unpacked(ctx, f.candidate())
	if err != nil && ctx.Err() != nil {
		return compute.CachedImage{}, errors.Join(err, f.close())
	}
	defer f.discard() // its name may be gone, its state file is not
	if err != nil {
		return compute.CachedImage{}, err
	}
	defer d.discard()
	info, err := format.Inspect(d.f, d.size)
	if err != nil {
		return compute.CachedImage{}, err
	}
	if err := c.seal(d); err != nil {
		return compute.CachedImage{}, err
	}
	img := c.store.image(d, info)
	e := entry{SHA256: img.Digest, Format: info.Format, Size: d.size, validator: f.state.validator, Stamp: from}
	e.publish(f.digest("sha256"))
	e.publish(verified)
	if err = c.store.put(d, img.Path); err != nil {
		return compute.CachedImage{}, fmt.Errorf("put image into the cache: %w", err)
	}
	c.store.remember(ref, e)
	c.store.metrics.fetched.Inc()
	c.store.metrics.bytes.Add(float64(e.Size))
	c.store.log.Info("image fetched", "image", ref.Name(), "bytes", e.Size, "sha256", e.SHA256, "format", e.Format)
	return img, nil
}

// seal makes the file readable for the hypervisor and durable.
func (c committer) seal(d candidate) error {
	if err := d.f.Chmod(imageMode); err != nil {
		return fmt.Errorf("finish download: %w", err)
	}
	if err := d.f.Sync(); err != nil {
		return fmt.Errorf("finish download: %w", noSpace(err, c.store.dir))
	}
	return nil
}
