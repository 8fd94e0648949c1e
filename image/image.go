// Package image brings a guest's disk image onto the host and makes disks of it.
//
// An image is named by a reference: an http or https URL, or an absolute path on
// the host, with an optional fragment that says how it is verified
// (#sha256=HEX, #sha512=HEX, or #sums=URL for the publisher's own list). Short
// names such as debian-12 are resolved to references by a Catalog, on the side
// of whoever asks.
//
// A Cache fetches each image once, however many instances wait for it, takes a
// broken download up where it ended, verifies it, and reads its header itself
// before any hypervisor sees the file: an image that points at another file
// (backing file, data file), is encrypted, or is no disk at all never enters the
// cache. No program of QEMU's is run on an image; the first that opens one is the
// QEMU of a guest, as the user that libvirt runs it as. What is in the cache is
// named by its SHA-256 and never changes.
package image

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/compute"
	"croft/internal/meter"
)

var _ compute.Images = (*Cache)(nil)

// DefaultMaxBytes is the size of the cache where the settings name none (64 GiB).
const DefaultMaxBytes = 64 << 30

// Config is what a Cache needs. Only Dir is required.
type Config struct {
	// Dir holds the images, for this process's user alone. One Cache may use it at a
	// time; the agent's lock on its state directory sees to that.
	Dir string
	// MaxBytes bounds one image and all of them together. The least recently used
	// go first; one that a disk stands on or that was used in the last ten minutes
	// stays, so the bound is soft. Zero is DefaultMaxBytes.
	MaxBytes int64
	// Stall is how long a server may send nothing. Zero is 30 seconds.
	Stall time.Duration
	// Fresh is how long a copy is used without asking the server whether it still
	// is the newest. Zero is a minute, negative asks every time.
	Fresh time.Duration
	// Transport carries the requests. Nil is Go's own, with the proxies of the
	// environment, and with names that resolve to link-local addresses, and redirects
	// into this host's own networks, refused.
	Transport http.RoundTripper
	// AllowRedirects are networks of this host that redirects from elsewhere may lead
	// into.
	AllowRedirects []netip.Prefix
	// AllowFiles are directories whose files may be images, by their paths on this
	// host. Nil is all of them; empty is none.
	AllowFiles []string
	// Log gets a line per image fetched, evicted, or used although its server is
	// silent. Nil is slog.Default().
	Log *slog.Logger
}

// Cache keeps verified images in a directory. All methods may be called at once.
type Cache struct {
	store    *store
	staging  staging
	space    *space
	client   *client
	copier   copier
	download *downloader
	inflight inflight
}

// New opens the cache in c.Dir, making it where it is missing, and removes what a
// killed process left there, except downloads that can be taken up again.
func New(c Config) (*Cache, error) {
	if c.Dir == "" || !filepath.IsAbs(c.Dir) {
		return nil, croft.Errorf(croft.Invalid, "image cache: the directory must be an absolute path, not %q", c.Dir)
	}
	var allow []string
	if c.AllowFiles == nil {
		allow = []string{"/"}
	}
	for _, dir := range c.AllowFiles {
		if !filepath.IsAbs(dir) {
			return nil,
				croft.Errorf(croft.Invalid,
					"image cache: files are allowed in directories by their absolute paths, and %q is none", dir)
		}
		allow = append(allow, filepath.Clean(dir))
	}
	s := &store{
		dir:   filepath.Clean(c.Dir),
		max:   cmp.Or(c.MaxBytes, DefaultMaxBytes),
		grace: evictionGrace,
		log:   cmp.Or(c.Log, slog.Default()),
	}
	s.metrics = newMetrics(s)
	http := &client{
		transport: c.Transport,
		stall:     cmp.Or(c.Stall, 30*time.Second),
		redirects: c.AllowRedirects,
		zone:      func(a netip.Addr) zone { return zoneOf(a, ownAddresses()) },
		lookup:    net.DefaultResolver.LookupNetIP,
	}
	if http.transport == nil {
		http.transport = http.newTransport()
	}
	cache := &Cache{store: s, staging: staging{filepath.Join(s.dir, "partial")}, client: http}
	cache.space = &space{free: freeBytes}
	commit := committer{unpacker{s.dir, s.max, cache.space}, s}
	cache.copier = copier{allow, cache.staging, cache.space, commit}
	cache.download = &downloader{
		client: http, publisher: publisher{http, append(slices.Clone(keyringDirs), allow...)},
		staging: cache.staging, space: cache.space, committer: commit,
		fresh: cmp.Or(c.Fresh, time.Minute), pause: time.Second,
	}
	cache.inflight = inflight{fetch: cache.fetch, all: map[string]*inflightFetch{}}
	return cache, cache.open()
}

// Fetch returns the image that ref names, from the cache where it has it. Callers
// of the same reference share one download; it goes on while one of them waits.
// Progress, if not nil, is called from this goroutine about five times a second
// while bytes arrive, and once more at the end.
func (c *Cache) Fetch(ctx context.Context, ref string, progress func(croft.Progress)) (img compute.Image, err error) {
	defer func() { c.store.metrics.requests.WithLabelValues(meter.Result(err)).Inc() }()
	r, err := ParseReference(ref)
	if err != nil {
		return compute.Image{}, err
	}
	f, err := c.inflight.join(ctx, r)
	if err != nil {
		return compute.Image{}, fmt.Errorf("image %s: %w", r.Name(), err)
	}
	defer c.inflight.leave(f)
	img, err = f.wait(ctx, progress)
	if err != nil {
		return compute.Image{}, fmt.Errorf("image %s: %w", r.Name(), err)
	}
	return img, nil
}

// fetch takes the cheapest way to the image that ref names.
func (c *Cache) fetch(ctx context.Context, ref Reference, t *transfer) (compute.Image, error) {
	if img, ok := c.store.byDigest(ref.want()); ok {
		t.finishAt(img.Path)
		return img, nil
	}
	if ref.Path != "" {
		return c.copier.fetch(ctx, ref, t)
	}
	return c.download.fetch(ctx, ref, t)
}

// open prepares the directory: made, index read, leftovers swept.
func (c *Cache) open() error {
	for _, dir := range []string{c.store.dir, c.staging.dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make image cache: %w", err)
		}
		if err := os.Chmod(dir, 0o700); err != nil { // an older version made it
			return fmt.Errorf("make image cache: %w", err)
		}
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if err := c.store.loadIndex(); err != nil {
		return err
	}
	if err := c.sweep(); err != nil {
		return fmt.Errorf("clean image cache: %w", err)
	}
	if err := c.store.closeOff(); err != nil {
		return fmt.Errorf("clean image cache: %w", err)
	}
	return c.store.evict(0)
}

// sweep removes what killed processes left: temporary files, and downloads that
// cannot or will not be taken up again. Caller holds mu.
func (c *Cache) sweep() error {
	for _, dir := range []string{c.store.dir, c.staging.dir} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := filepath.Join(dir, e.Name())
			if filepath.Ext(name) != tempSuffix && (dir == c.store.dir || isResumable(name, e)) {
				continue
			}
			if err := os.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Collector gives the cache's metrics.
func (c *Cache) Collector() prometheus.Collector { return c.store.metrics }
