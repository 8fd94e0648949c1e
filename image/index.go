package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/compute"
)

// index remembers what each reference led to. It is a convenience: without it the
// files stay what they are, and unpinned images are fetched again.
type index struct {
	References map[string]entry `json:"references"`
}

// entry is what is known of the image a reference led to.
type entry struct {
	SHA256  string    `json:"sha256"`           // of the file in the cache
	Packed  string    `json:"packed,omitempty"` // SHA-256 of the file as published, where that is another
	SHA512  string    `json:"sha512,omitempty"` // as published, where it was asked for
	Format  string    `json:"format"`
	Size    int64     `json:"size"`
	Checked time.Time `json:"checked"` // when the server last said that it is the newest
	validator
	Stamp *stamp `json:"stamp,omitempty"` // of a local file
}

// publish notes a checksum of the file as it was published.
func (e *entry) publish(d digest) {
	switch {
	case d.algo == "sha512":
		e.SHA512 = d.hex
	case d.algo == "sha256" && d.hex != e.SHA256:
		e.Packed = d.hex
	}
}

// published reports whether the file as it was published has the checksum.
func (e entry) published(d digest) bool {
	return d.algo == "sha512" && e.SHA512 == d.hex || d.algo == "sha256" && e.Packed == d.hex
}

// validator is how a server names one version of a file.
type validator struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
}

// stamp tells whether a local file is still the one that was copied.
type stamp struct {
	Device   uint64 `json:"device"`
	Inode    uint64 `json:"inode"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // nanoseconds
}

func (c *Cache) indexFile() string { return filepath.Join(c.dir, "index.json") }

func (c *Cache) imagePath(sha256, format string) string {
	return filepath.Join(c.dir, sha256+"."+format)
}

// loadIndex reads the index; an unreadable one is as good as none.
func (c *Cache) loadIndex() error {
	c.index = index{}
	b, err := os.ReadFile(c.indexFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read index of the image cache: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(b, &c.index); err != nil {
			c.log.Warn("the index of the image cache is damaged and begun anew", "err", err)
			c.index = index{}
		}
	}
	if c.index.References == nil {
		c.index.References = make(map[string]entry)
	}
	maps.DeleteFunc(c.index.References, func(_ string, e entry) bool {
		return !isRegular(c.imagePath(e.SHA256, e.Format))
	})
	return nil
}

// held returns what the cache has for a reference, if its file is there and of
// the size it had.
func (c *Cache) held(ref Reference) (entry, compute.Image, bool) {
	c.mu.Lock()
	e, ok := c.index.References[ref.String()]
	c.mu.Unlock()
	if !ok {
		return entry{}, compute.Image{}, false
	}
	img, ok := c.use(e.SHA256, e.Format)
	return e, img, ok
}

// byDigest returns the image that was published with a checksum, however it came
// into the cache.
func (c *Cache) byDigest(d digest) (compute.Image, bool) {
	if d == (digest{}) {
		return compute.Image{}, false
	}
	var found []entry
	if d.algo == "sha256" { // needs no index where it was not packed
		found = []entry{{SHA256: d.hex, Format: "qcow2"}, {SHA256: d.hex, Format: "raw"}}
	}
	c.mu.Lock()
	for _, e := range c.index.References {
		if e.published(d) {
			found = append(found, e)
		}
	}
	c.mu.Unlock()
	for _, e := range found {
		if img, ok := c.use(e.SHA256, e.Format); ok {
			return img, true
		}
	}
	return compute.Image{}, false
}

// use opens a file of the cache for a caller, noting the time for the eviction.
// One that is damaged is removed, so that it is fetched again.
func (c *Cache) use(sha256, format string) (compute.Image, bool) {
	name := c.imagePath(sha256, format)
	c.mu.Lock()
	now := time.Now()
	err := os.Chtimes(name, now, now) // under mu: eviction sees the time or is over
	c.mu.Unlock()
	if err != nil {
		return compute.Image{}, false
	}
	info, err := inspectFile(name)
	if err != nil && croft.KindOf(err) != croft.Invalid {
		c.log.Warn("an image in the cache cannot be read", "op", "use", "image", name, "err", err)
		return compute.Image{}, false
	}
	if err != nil || info.Format != format || !c.sizeIsRight(name, sha256) {
		c.log.Warn("a damaged image is removed from the cache", "op", "use", "image", name, "err", err)
		os.Remove(name)
		return compute.Image{}, false
	}
	return compute.Image{Path: name, Format: format, VirtualSize: info.VirtualSize, Digest: sha256}, true
}

// sizeIsRight compares the file's size with that of every reference to it.
func (c *Cache) sizeIsRight(name, sha256 string) bool {
	fi, err := os.Stat(name)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.index.References {
		if e.SHA256 == sha256 && e.Size != fi.Size() {
			return false
		}
	}
	return true
}

// remember stores what a reference led to, now. An index that cannot be written
// costs another download after a restart, not the image.
func (c *Cache) remember(ref Reference, e entry) {
	e.Checked = time.Now().UTC()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index.References[ref.String()] = e
	if err := replaceJSON(c.indexFile(), c.index); err != nil {
		c.log.Warn("the index of the image cache cannot be written", "op", "remember", "err", err)
	}
}

// cached is a file of the cache, as eviction sees it.
type cached struct {
	path  string
	bytes int64 // on the disk
	used  time.Time
	links uint64
}

// evict removes images until the bound leaves room for need more bytes: the least
// recently used first, never one that a disk stands on (it has another link, so
// removing it would free nothing) or that was used just now. Caller holds mu.
func (c *Cache) evict(need int64) error {
	files, err := c.files()
	if err != nil {
		return fmt.Errorf("make room in the image cache: %w", err)
	}
	total := need
	for _, f := range files {
		total += f.bytes
	}
	slices.SortFunc(files, func(a, b cached) int { return a.used.Compare(b.used) })
	for _, f := range files {
		if total <= c.max {
			break
		}
		if f.links > 1 || time.Since(f.used) < c.grace {
			continue
		}
		if err := os.Remove(f.path); err != nil {
			return fmt.Errorf("make room in the image cache: %w", err)
		}
		c.metrics.evicted.Inc()
		c.log.Info("image evicted", "image", f.path, "reason", "the cache is full and nothing used it longer")
		total -= f.bytes
	}
	return nil
}

// files lists the images in the cache. Caller holds mu.
func (c *Cache) files() ([]cached, error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, err
	}
	var files []cached
	for _, e := range entries {
		if !isImageName(e.Name()) {
			continue
		}
		if fi, err := e.Info(); err == nil {
			files = append(files, newCached(filepath.Join(c.dir, e.Name()), fi))
		}
	}
	return files, nil
}

func isImageName(name string) bool {
	_, _, ok := cutName(name)
	return ok
}

// cutName takes the name of a file in the cache apart.
func cutName(name string) (sha256, format string, ok bool) {
	sha256, format, _ = strings.Cut(name, ".")
	return sha256, format, len(sha256) == 64 && isHex(sha256) && (format == "qcow2" || format == "raw")
}
