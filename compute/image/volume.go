package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"croft"
	"croft/compute/image/format"
)

// Volume implements compute.ImageStore. The tables of the disk have room for the largest volume, so that it grows by a
// change of its size alone.
func (c *Cache) Volume(_ context.Context, file string, sizeGB int64) error {
	if err := croft.CheckVolumeSize(sizeGB); err != nil {
		return err
	}
	err := grow(file, sizeGB)
	if errors.Is(err, fs.ErrNotExist) {
		return c.makeVolume(file, sizeGB)
	}
	if err != nil {
		return fmt.Errorf("make the volume %s larger: %w", file, err)
	}
	return nil
}

func (c *Cache) makeVolume(file string, sizeGB int64) error {
	empty := format.Overlay{Virtual: sizeGB * gib, Room: croft.MaxVolumeGB * gib}
	err := c.space.room(filepath.Dir(file), empty.Length())
	if err == nil {
		err = replaceFile(file, 0o600, func(f *os.File) error {
			if err := f.Truncate(empty.Length()); err != nil {
				return err
			}
			return empty.Write(f)
		})
	}
	if err != nil {
		return fmt.Errorf("make the volume %s: %w", file, err)
	}
	return nil
}
