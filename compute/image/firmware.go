package image

import (
	"fmt"
	"os"

	"croft/compute"
	"croft/compute/image/format"
)

// NeedsUEFI implements compute.ImageStore. The topmost layer that has the boot sector decides.
func (c *Cache) NeedsUEFI(layers []compute.Layer) (bool, error) {
	for _, l := range layers {
		boot, err := bootSector(l)
		if err != nil {
			return false, fmt.Errorf("read the boot sector of %s: %w", l.Path, err)
		}
		if boot != nil {
			return format.NeedsUEFI(boot), nil
		}
	}
	return false, nil
}

func bootSector(l compute.Layer) ([]byte, error) {
	f, err := os.Open(l.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return format.BootSector(f, info.Size(), l.Format)
}
