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
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"croft"
	"croft/compute"
	"croft/internal/meter"
)

var _ compute.Images = (*Cache)(nil)

// DefaultMaxBytes is the size of the cache where the settings name none (64 GiB).
const DefaultMaxBytes = 64 << 30

// evictionGrace is how long an image stays that was used, since a disk on it may
// just be in the making.
const evictionGrace = 10 * time.Minute

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
	dir       string
	max       int64
	stall     time.Duration
	fresh     time.Duration
	http      http.RoundTripper
	allow     []string // directories
	redirects []netip.Prefix
	log       *slog.Logger
	metrics   *metrics

	// What tests shorten or stand in for.
	zone   func(netip.Addr) zone
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
	grace  time.Duration               // an image used more recently is not evicted
	pause  time.Duration               // before a cut download is taken up again
	free   func(string) (int64, error) // bytes available in a directory

	mu      sync.Mutex // guards what follows and the names in dir
	flights map[string]*flight
	index   index
}

// New opens the cache in c.Dir, making it where it is missing, and removes what a
// killed process left there, except downloads that can be taken up again.
func New(c Config) (*Cache, error) {
	if c.Dir == "" || !filepath.IsAbs(c.Dir) {
		return nil, croft.Errorf(croft.Invalid, "image cache: the directory must be an absolute path, not %q", c.Dir)
	}
	cache := &Cache{
		dir:       filepath.Clean(c.Dir),
		max:       cmp.Or(c.MaxBytes, DefaultMaxBytes),
		stall:     cmp.Or(c.Stall, 30*time.Second),
		fresh:     cmp.Or(c.Fresh, time.Minute),
		http:      c.Transport,
		log:       cmp.Or(c.Log, slog.Default()),
		grace:     evictionGrace,
		pause:     time.Second,
		redirects: c.AllowRedirects,
		zone:      func(a netip.Addr) zone { return zoneOf(a, ownAddresses()) },
		lookup:    net.DefaultResolver.LookupNetIP,
		free:      freeBytes,
		flights:   make(map[string]*flight),
	}
	cache.metrics = newMetrics(cache)
	if c.AllowFiles == nil {
		cache.allow = []string{"/"}
	}
	for _, dir := range c.AllowFiles {
		if !filepath.IsAbs(dir) {
			return nil,
				croft.Errorf(croft.Invalid,
					"image cache: files are allowed in directories by their absolute paths, and %q is none", dir)
		}
		cache.allow = append(cache.allow, filepath.Clean(dir))
	}
	if cache.http == nil {
		cache.http = cache.newTransport()
	}
	return cache, cache.open()
}

// Fetch returns the image that ref names, from the cache where it has it. Callers
// of the same reference share one download; it goes on while one of them waits.
// Progress, if not nil, is called from this goroutine about five times a second
// while bytes arrive, and once more at the end.
func (c *Cache) Fetch(ctx context.Context, ref string, progress func(croft.Progress)) (img compute.Image, err error) {
	defer func() { c.metrics.requests.WithLabelValues(meter.Result(err)).Inc() }()
	r, err := ParseReference(ref)
	if err != nil {
		return compute.Image{}, err
	}
	f, err := c.join(ctx, r)
	if err != nil {
		return compute.Image{}, fmt.Errorf("image %s: %w", r.Name(), err)
	}
	defer c.leave(f)
	img, err = f.wait(ctx, progress)
	if err != nil {
		return compute.Image{}, fmt.Errorf("image %s: %w", r.Name(), err)
	}
	return img, nil
}

// fetch is what a flight does: the cheapest way to the image that ref names.
func (c *Cache) fetch(ctx context.Context, ref Reference, t *transfer) (compute.Image, error) {
	if img, ok := c.byDigest(ref.want()); ok {
		t.finishAt(img.Path)
		return img, nil
	}
	if ref.Path != "" {
		return c.fetchFile(ctx, ref, t)
	}
	return c.fetchHTTP(ctx, ref, t)
}

// open prepares the directory: made, index read, leftovers swept.
func (c *Cache) open() error {
	for _, dir := range []string{c.dir, c.partDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make image cache: %w", err)
		}
		if err := os.Chmod(dir, 0o700); err != nil { // an older version made it
			return fmt.Errorf("make image cache: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.loadIndex(); err != nil {
		return err
	}
	if err := c.sweep(); err != nil {
		return fmt.Errorf("clean image cache: %w", err)
	}
	if err := c.closeOff(); err != nil {
		return fmt.Errorf("clean image cache: %w", err)
	}
	return c.evict(0)
}

// imageMode lets the hypervisor's group read an image and the disks' copies of it: the
// definition of a domain gives them to that group.
const imageMode = 0o640

// closeOff takes the images of an older version, which everybody could read, from
// others, but those that disks stand on: their domains are defined without that group.
// Caller holds mu.
func (c *Cache) closeOff() error {
	files, err := c.files()
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
	if err := os.Chmod(c.indexFile(), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
