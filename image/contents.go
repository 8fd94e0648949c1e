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
	"time"

	"croft"
	"croft/image/format"
)

// Held is an image in a cache.
type Held struct {
	Path        string    `json:"path"`
	Format      string    `json:"format"`
	VirtualSize int64     `json:"virtual_size"`
	Bytes       int64     `json:"bytes"` // on the disk
	SHA256      string    `json:"sha256"`
	Disks       int       `json:"disks"` // that stand on this file; those on other file systems have copies
	Used        time.Time `json:"used"`
	References  []string  `json:"references"` // that led to it, without those forgotten since
}

// Contents is what a cache holds, in the order of its last use, the newest first.
type Contents struct {
	Images []Held
	index  index
}

// Look lists what the cache in dir holds and changes nothing, so that an agent may
// work with it meanwhile. A directory that does not exist holds nothing.
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
			continue // damaged, or just removed: as good as not there
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
			h.References = append(h.References, ref)
		}
	}
	slices.Sort(h.References)
	return h
}

// Of returns the image that a reference led to, or that has the checksum it gives.
func (c Contents) Of(reference string) (Held, bool) {
	ref, err := ParseReference(reference)
	if err != nil {
		return Held{}, false
	}
	for _, h := range c.Images {
		want := ref.want()
		if slices.Contains(h.References, ref.String()) || want == (digest{"sha256", h.SHA256}) ||
			slices.ContainsFunc(h.References, func(r string) bool { return c.index.References[r].published(want) }) {
			return h, true
		}
	}
	return Held{}, false
}

// Remove removes from the cache in dir the image that a reference led to, or that has
// the checksum. Disks that stand on it keep it, and an agent that works meanwhile
// fetches it again when it is asked for. NotFound: the cache has none.
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

// Prune removes from the cache in dir the images that no disk stands on and that
// were not used just now, so that an agent may work with it meanwhile: at worst it
// fetches one again. It returns those it removed, or would remove on a dry run, also
// where an error ended it.
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
