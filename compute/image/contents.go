package image

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
)

// Held is an image in a cache.
type Held = compute.Held

// Contents lists the images in a cache, most recently used first.
type Contents struct {
	Images []Held
	index  index
}

// Look lists the cache in dir. It changes nothing, so an agent may run meanwhile. A missing directory is empty.
func Look(dir string) (Contents, error) {
	s := &store{dir: filepath.Clean(dir), log: slog.New(slog.DiscardHandler)}
	files, err := s.files()
	if errors.Is(err, fs.ErrNotExist) {
		return Contents{}, nil
	}
	if err == nil {
		err = s.loadIndex()
	}
	if errors.Is(err, fs.ErrPermission) {
		return Contents{},
			croft.Errorf(croft.Invalid, "look into the image cache: %w: only the user that its agent runs as may", err)
	}
	if err != nil {
		return Contents{}, fmt.Errorf("look into the image cache: %w", err)
	}
	contents := Contents{index: s.index}
	for _, f := range files {
		info, err := format.InspectFile(f.path)
		if err != nil {
			continue // damaged, or just removed: treated as absent
		}
		contents.Images = append(contents.Images, f.held(info, s.index))
	}
	slices.SortFunc(contents.Images, func(a, b Held) int {
		return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.Path, b.Path))
	})
	return contents, nil
}

func (f cached) held(info format.Info, known index) Held {
	h := Held{
		Path: f.path, Format: info.Format, VirtualSize: info.VirtualSize, Bytes: f.bytes,
		Disks: int(f.links) - 1, Used: f.used.UTC(), References: []string{},
	}
	h.SHA256, _, _ = cutName(filepath.Base(f.path))
	for ref, e := range known.References {
		if e.SHA256 == h.SHA256 {
			h.References = append(h.References, strings.TrimPrefix(ref, publicPrefix))
		}
	}
	slices.Sort(h.References)
	h.References = slices.Compact(h.References)
	return h
}

// Of returns the image for a reference, or with the checksum that the reference gives.
func (c Contents) Of(reference string) (Held, bool) {
	ref, err := ParseReference(reference)
	if err != nil {
		return Held{}, false
	}
	for _, h := range c.Images {
		want := ref.want()
		if slices.Contains(h.References, ref.String()) || want == (digest{"sha256", h.SHA256}) ||
			slices.ContainsFunc(h.References, func(r string) bool {
				return c.index.References[r].published(want) || c.index.References[publicPrefix+r].published(want)
			}) {
			return h, true
		}
	}
	return Held{}, false
}

// Remove removes from the cache in dir the image of a reference, or with a checksum. Linked disks keep the
// file, and a running agent fetches the image again when it is needed. NotFound: the cache does not have it.
func Remove(dir, referenceOrDigest string) (Held, error) {
	contents, err := Look(dir)
	if err != nil {
		return Held{}, err
	}
	h, ok := contents.Of(referenceOrDigest)
	if i := slices.IndexFunc(contents.Images, func(h Held) bool { return h.SHA256 == referenceOrDigest }); i >= 0 {
		h, ok = contents.Images[i], true
	}
	if ok {
		err = os.Remove(h.Path)
	}
	if !ok || errors.Is(err, fs.ErrNotExist) {
		return Held{}, croft.Errorf(croft.NotFound, "this host has not fetched it: croft image list shows what it has")
	}
	return h, err
}

// Prune removes from the cache in dir the images without linked disks that were not used just now. An agent
// may run meanwhile: at worst it fetches an image again. It returns the removed images (on a dry run, those
// it would remove), also on an error.
func Prune(dir string, dry bool) ([]Held, error) {
	contents, err := Look(dir)
	if err != nil {
		return nil, err
	}
	var removed []Held
	for _, h := range contents.Images {
		if h.Disks > 0 || time.Since(h.Used) < evictionGrace {
			continue
		}
		if !dry {
			err = os.Remove(h.Path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return removed, fmt.Errorf("prune the image cache: %w", err)
		}
		removed = append(removed, h)
	}
	return removed, nil
}
