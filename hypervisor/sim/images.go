package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"croft"
	"croft/compute"
)

var _ compute.Images = Images{}

// Images replaces the image cache where nothing boots: it accepts every reference, fetches nothing and
// creates empty disks.
type Images struct {
	// Fault is called by every Fetch. It may block; its error fails the fetch.
	Fault func(ctx context.Context, ref string) error
}

// Fetch returns an image of size 0. Invalid: the reference is empty.
func (s Images) Fetch(ctx context.Context, ref string, progress func(croft.Progress)) (compute.Image, error) {
	if strings.TrimSpace(ref) == "" {
		return compute.Image{}, croft.Errorf(croft.Invalid, "no image is named")
	}
	if s.Fault != nil {
		if err := s.Fault(ctx, ref); err != nil {
			return compute.Image{}, err
		}
	}
	if progress != nil {
		progress(croft.Progress{})
	}
	return compute.Image{Path: "/simulated", Format: "raw"}, ctx.Err()
}

// Disk creates an empty file in dir, so that tests see which files of an instance remain.
func (Images) Disk(_ context.Context, img compute.Image, dir string, _ int64) ([]compute.Layer, error) {
	path := filepath.Join(dir, "disk.qcow2")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return nil, fmt.Errorf("make a simulated disk: %w", err)
	}
	return []compute.Layer{{Path: path, Format: "qcow2"}, {Path: img.Path, Format: img.Format}}, nil
}
