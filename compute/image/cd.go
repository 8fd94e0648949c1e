package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
)

// CD implements compute.ImageStore.
func (c *Cache) CD(ctx context.Context, img compute.CachedImage, file string) error {
	err := checkCD(img)
	if err == nil {
		err = c.base(ctx, img, file)
	}
	if err == nil {
		err = syncDir(filepath.Dir(file))
	}
	if err != nil {
		return fmt.Errorf("make a CD of the image: %w", noSpace(err, filepath.Dir(file)))
	}
	return nil
}

func checkCD(img compute.CachedImage) error {
	if img.Format == "qcow2" {
		return croft.Errorf(croft.Invalid, "it is a disk (qcow2) and not an ISO 9660 image of a CD: give it as the image")
	}
	f, err := os.Open(img.Path)
	if err != nil {
		return croft.Errorf(croft.Unavailable, "open the image: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return format.CheckISO(f, info.Size())
}
