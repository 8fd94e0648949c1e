package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
	"croft/internal/meter"
)

// evictionGrace is how long a used image is protected from eviction, since a disk on it may be in creation.
const evictionGrace = 10 * time.Minute

// store is the cache directory: the images and the index of references.
type store struct {
	dir     string
	max     int64
	grace   time.Duration // more recently used images are not evicted
	log     *slog.Logger
	metrics *metrics

	mu    sync.Mutex // guards the fields below and the names in dir
	index index
}

func (s *store) indexFile() string { return filepath.Join(s.dir, "index.json") }

func (s *store) imagePath(sha256, form string) string { return filepath.Join(s.dir, sha256+"."+form) }

// loadIndex reads the index; an unreadable one is treated as empty.
func (s *store) loadIndex() error {
	s.index = index{}
	b, err := os.ReadFile(s.indexFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read index of the image cache: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(b, &s.index); err != nil {
			s.log.Warn("the index of the image cache is damaged and starts empty", "err", err)
			s.index = index{}
		}
	}
	if s.index.References == nil {
		s.index.References = make(map[string]entry)
	}
	maps.DeleteFunc(s.index.References, func(_ string, e entry) bool {
		return !isRegular(s.imagePath(e.SHA256, e.Format))
	})
	return nil
}

// held returns the cached image of a reference, if its file exists and has its recorded size.
func (s *store) held(ref Reference) (entry, compute.CachedImage, bool) {
	s.mu.Lock()
	e, ok := s.index.References[ref.key()]
	s.mu.Unlock()
	if !ok {
		return entry{}, compute.CachedImage{}, false
	}
	img, ok := s.use(e.SHA256, e.Format)
	return e, img, ok
}

// byDigest returns the image published with a checksum, whatever its reference.
func (s *store) byDigest(d digest) (compute.CachedImage, bool) {
	if d == (digest{}) {
		return compute.CachedImage{}, false
	}
	var found []entry
	if d.algo == "sha256" { // needs no index unless it was packed
		for _, form := range cachedFormats {
			found = append(found, entry{SHA256: d.hex, Format: form})
		}
	}
	s.mu.Lock()
	for _, e := range s.index.References {
		if e.published(d) {
			found = append(found, e)
		}
	}
	s.mu.Unlock()
	for _, e := range found {
		if img, ok := s.use(e.SHA256, e.Format); ok {
			return img, true
		}
	}
	return compute.CachedImage{}, false
}

// use returns a file of the cache to a caller and records the time of use for eviction. A damaged file is
// removed, so that it is fetched again.
func (s *store) use(sha256, form string) (compute.CachedImage, bool) {
	name := s.imagePath(sha256, form)
	s.mu.Lock()
	now := time.Now()
	err := os.Chtimes(name, now, now) // under mu: eviction sees the time or has ended
	s.mu.Unlock()
	if err != nil {
		return compute.CachedImage{}, false
	}
	info, err := format.InspectFile(name)
	if err != nil && croft.KindOf(err) != croft.Invalid {
		s.log.Warn("an image in the cache cannot be read", "op", "use", "image", name, "err", err)
		return compute.CachedImage{}, false
	}
	if err != nil || info.Format != form || !s.sizeIsRight(name, sha256) {
		s.log.Warn("a damaged image is removed from the cache", "op", "use", "image", name, "err", err)
		os.Remove(name)
		return compute.CachedImage{}, false
	}
	return compute.CachedImage{Path: name, Format: form, VirtualSize: info.VirtualSize, Digest: sha256}, true
}

// sizeIsRight compares the file's size with that recorded for each of its references.
func (s *store) sizeIsRight(name, sha256 string) bool {
	fi, err := os.Stat(name)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.index.References {
		if e.SHA256 == sha256 && e.Size != fi.Size() {
			return false
		}
	}
	return true
}

// remember records the image that a reference resolved to, as of now. A failure to write the index costs another
// download after a restart, not the image.
func (s *store) remember(ref Reference, e entry) {
	e.Checked = time.Now().UTC()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.References[ref.key()] = e
	if err := replaceJSON(s.indexFile(), s.index); err != nil {
		s.log.Warn("the index of the image cache cannot be written", "op", "remember", "err", err)
	}
}

// cached is a file of the cache for eviction.
type cached struct {
	path  string
	bytes int64 // allocated on disk
	used  time.Time
	links uint64
}

// evict removes images until need more bytes fit within the limit, least recently used first. It skips images
// with linked disks (removing them would free nothing) and recently used ones. The caller holds mu.
func (s *store) evict(need int64) error {
	files, err := s.files()
	if err != nil {
		return fmt.Errorf("make room in the image cache: %w", err)
	}
	total := need
	for _, f := range files {
		total += f.bytes
	}
	slices.SortFunc(files, func(a, b cached) int { return a.used.Compare(b.used) })
	for _, f := range files {
		if total <= s.max {
			break
		}
		if f.links > 1 || time.Since(f.used) < s.grace {
			continue
		}
		if err := os.Remove(f.path); err != nil {
			return fmt.Errorf("make room in the image cache: %w", err)
		}
		s.metrics.evicted.Inc()
		s.log.Info("image evicted", "image", f.path, "reason", "the cache is full and nothing used it longer")
		total -= f.bytes
	}
	return nil
}

// files lists the images in the cache. The caller holds mu.
func (s *store) files() ([]cached, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var files []cached
	for _, e := range entries {
		if !isImageName(e.Name()) {
			continue
		}
		if fi, err := e.Info(); err == nil {
			files = append(files, newCached(filepath.Join(s.dir, e.Name()), fi))
		}
	}
	return files, nil
}

func isImageName(name string) bool {
	_, _, ok := cutName(name)
	return ok
}

// cutName splits the name of a file in the cache.
func cutName(name string) (sha256, form string, ok bool) {
	sha256, form, _ = strings.Cut(name, ".")
	return sha256, form, len(sha256) == 64 && isHex(sha256) && slices.Contains(cachedFormats, form)
}

// cachedFormats are the formats of files in the cache.
var cachedFormats = []string{"qcow2", "raw", format.FormatISO}

// admit reports whether an image of this size (0: unknown) may enter the cache, and evicts others for it.
func (s *store) admit(bytes int64) error {
	if bytes > s.max {
		return croft.Errorf(croft.Invalid,
			"it has %s or more, and the image cache may hold %s in all: raise that limit or take a smaller image",
			format.Bytes(bytes), format.Bytes(s.max))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.evict(bytes)
}

// put renames the file to its content-derived name. An existing file has the same content and may have linked
// disks: it stays.
func (s *store) put(d candidate, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if fi, err := os.Stat(name); err == nil && fi.Size() == d.size {
		return os.Chtimes(name, now, now)
	}
	if err := os.Chtimes(d.path, now, now); err != nil {
		return err
	}
	if err := os.Rename(d.path, name); err != nil {
		return err
	}
	return errors.Join(syncDir(s.dir), s.evict(0))
}

// rememberImage is remember for a file that entered the cache through another reference.
func (s *store) rememberImage(ref Reference, d digest, img compute.CachedImage) error {
	fi, err := os.Stat(img.Path)
	if err != nil {
		return fmt.Errorf("look at the image in the cache: %w", err)
	}
	e := entry{SHA256: img.Digest, Format: img.Format, Size: fi.Size()}
	e.publish(d)
	s.remember(ref, e)
	return nil
}

// restrictModes removes world permissions from images of an older version. It skips images with linked disks, because
// their domains are defined without the group. The caller holds mu.
func (s *store) restrictModes() error {
	files, err := s.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.links > 1 {
			continue
		}
		if err := os.Chmod(f.path, imageMode); err != nil {
			return err
		}
	}
	if err := os.Chmod(s.indexFile(), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func newCached(path string, fi os.FileInfo) cached {
	f := cached{path: path, bytes: allocated(fi), used: fi.ModTime(), links: 1}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		f.links = uint64(st.Nlink)
	}
	return f
}

// imageMode lets the hypervisor's group read an image and the disks' copies of it: the definition of a domain
// assigns them to that group.
const imageMode = 0o640

// image returns the candidate as a cached image.
func (s *store) image(d candidate, info format.Info) compute.CachedImage {
	sum := d.sha256()
	return compute.CachedImage{Path: s.imagePath(sum, info.Format), Format: info.Format, VirtualSize: info.VirtualSize,
		Digest: sum}
}

// metrics counts the cache's operations.
type metrics struct {
	meter.Set
	requests *prometheus.CounterVec
	fetched  prometheus.Counter
	bytes    prometheus.Counter
	evicted  prometheus.Counter
}

func newMetrics(s *store) *metrics {
	m := &metrics{}
	m.requests = m.Counters("croft_image_requests_total",
		"Images that were asked for, by how that ended: ok, or the kind of the error.", "result")
	m.fetched = m.Counter("croft_image_fetched_total",
		"Images that came into the cache. All other requests that ended well found theirs there.")
	m.bytes = m.Counter("croft_image_fetched_bytes_total", "Bytes of the images that came into the cache.")
	m.evicted = m.Counter("croft_image_evicted_total", "Images that were dropped from the cache for room.")
	m.Now("croft_image_cache_limit_bytes", "Limit of the image cache (images.cache_gib).",
		func() float64 { return float64(s.max) })
	m.Now("croft_image_cache_bytes", "Size of the images in the cache.",
		func() float64 { _, bytes := s.holds(); return float64(bytes) })
	m.Now("croft_image_cache_images", "Images in the cache.",
		func() float64 { images, _ := s.holds(); return float64(images) })
	return m
}

// holds returns the number and size of cached images; an unreadable directory is empty.
func (s *store) holds() (images int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	files, err := s.files()
	if err != nil {
		return 0, 0
	}
	for _, f := range files {
		bytes += f.bytes
	}
	return len(files), bytes
}

// CacheDir returns the image directory of a host with this state directory.
func CacheDir(stateDir string) string { return filepath.Join(stateDir, "images") }
