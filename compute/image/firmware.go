package image

import (
	"fmt"
	"os"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
)

// OnlyFirmware implements compute.ImageStore. The topmost layer that has the boot sector decides.
func (c *Cache) OnlyFirmware(layers []compute.Layer) (croft.Firmware, error) {
	for _, l := range layers {
		head, err := diskHead(l)
		switch {
		case err != nil:
			return "", fmt.Errorf("read the boot sector of %s: %w", l.Path, err)
		case head == nil: // it is in a layer below
		case format.NeedsUEFI(head):
			return croft.FirmwareUEFI, nil
		case format.NeedsBIOS(head):
			return croft.FirmwareBIOS, nil
		default:
			return "", nil
		}
	}
	return "", nil
}

func diskHead(l compute.Layer) ([]byte, error) {
	f, err := os.Open(l.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return format.DiskHead(f, info.Size(), l.Format)
}
