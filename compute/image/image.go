// Package image fetches guest disk images to the host and creates disks from them.
//
// An image is named by a reference: an http or https URL, or an absolute path on the host, with an optional
// fragment that says how it is verified (#sha256=HEX, #sha512=HEX, or #sums=URL for the publisher's own
// list). Short names such as debian-12 are resolved to references by a Catalog, on the client's side.
//
// A Cache fetches each image once for all waiting instances, resumes interrupted downloads, verifies them,
// and parses the header itself before any hypervisor sees the file: an image that refers to another file
// (backing file, data file), is encrypted, or is not a disk never enters the cache. No QEMU tool is run on an
// image; the first program to open it is the guest's QEMU, as the user under which libvirt runs it. Files in
// the cache are named by their SHA-256 and are immutable.
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
	"croft/cluster/outbound"
	"croft/compute"
	"croft/internal/egress"
	"croft/internal/meter"
)

var _ compute.ImageStore = (*Cache)(nil)

// DefaultMaxBytes is the default size of the cache (64 GiB).
const DefaultMaxBytes = 64 << 30

// Config configures a Cache. Only Dir is required.
type Config struct {
	// Dir holds the images, accessible to this process's user only. Only one Cache may use it at a time; the
	// agent's lock on its state directory ensures that.
	Dir string
	// MaxBytes limits the size of one image and the total of all. The least recently used images are evicted first;
	// images with linked disks, or used in the last ten minutes, stay, so the limit is soft. Zero: DefaultMaxBytes.
	MaxBytes int64
	// Stall is the timeout without data from a server. Zero: 30 seconds.
	Stall time.Duration
	// Fresh is how long a copy is used without revalidation at the server. Zero: a minute; negative: always revalidate.
	Fresh time.Duration
	// Transport sends the requests. Nil: Go's default transport, with the proxies of the environment, which
	// refuses names that resolve to link-local addresses and redirects into this host's own networks.
	Transport http.RoundTripper
	// Proxy chooses the proxy of downloads; the proxy of the environment by default.
	Proxy egress.Proxy
	// AllowRedirects lists networks of this host to which redirects from elsewhere may lead.
	AllowRedirects []netip.Prefix
	// Public decides which addresses are connected to for references that tenants chose.
	Public outbound.Rule
	// AllowFiles lists directories, by their paths on this host, whose files may be images. Nil: all; empty: none.
	AllowFiles []string
	// Log receives a line per image that is fetched, evicted, or used although its server does not respond.
	// Nil: slog.Default().
	Log *slog.Logger
}

// Cache keeps verified images in a directory. All methods are safe for concurrent use.
type Cache struct {
	store    *store
	staging  staging
	space    *space
	client   *client
	copier   copier
	download *downloader
	inflight inflight
}

// New opens the cache in c.Dir, creating it if necessary, and removes leftovers of a killed process, except
// resumable downloads.
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
					"image cache: allowed directories need absolute paths, and %q is not one", dir)
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
		public:    c.Public,
		zone:      func(a netip.Addr) zone { return zoneOf(a, ownAddresses()) },
		lookup:    net.DefaultResolver.LookupNetIP,
	}
	if http.transport == nil {
		http.transport = http.newTransport(c.Proxy)
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

// Fetch returns the image of ref, from the cache if possible. Concurrent callers with the same reference
// share one download, which continues while one of them waits. progress, if not nil, is called from this
// goroutine about five times a second while data arrives, and once more at the end.
func (c *Cache) Fetch(ctx context.Context, ref string, progress func(croft.Progress)) (compute.CachedImage, error) {
	return c.await(ctx, ref, false, progress)
}

// FetchPublic is Fetch for a reference that a tenant chose. It connects only to addresses that Config.Public permits,
// also after redirects, and looks up the names in the reference before it returns an image from the cache or uses a
// proxy. Invalid: the reference is a file, or leads to another address.
func (c *Cache) FetchPublic(ctx context.Context, ref string, progress func(croft.Progress)) (compute.CachedImage,
	error) {
	return c.await(ctx, ref, true, progress)
}

func (c *Cache) await(ctx context.Context, ref string, public bool, progress func(croft.Progress)) (
	img compute.CachedImage,
	err error) {
	defer func() { c.store.metrics.requests.WithLabelValues(meter.Result(err)).Inc() }()
	r, err := ParseReference(ref)
	if err != nil {
		return compute.CachedImage{}, err
	}
	r.Public = public
	f, err := c.inflight.join(ctx, r)
	if err != nil {
		return compute.CachedImage{}, fmt.Errorf("image %s: %w", r.Name(), err)
	}
	defer c.inflight.leave(f)
	img, err = f.wait(ctx, progress)
	if err != nil {
		return compute.CachedImage{}, fmt.Errorf("image %s: %w", r.Name(), err)
	}
	return img, nil
}

// fetch obtains the image of ref in the cheapest way.
func (c *Cache) fetch(ctx context.Context, ref Reference, t *transfer) (compute.CachedImage, error) {
	if ref.Public {
		if ref.Path != "" {
			return compute.CachedImage{}, croft.Errorf(croft.Invalid, "files of hosts are for operators: give a URL")
		}
		for _, address := range ref.urls() {
			if err := c.client.checkPublic(ctx, address); err != nil {
				return compute.CachedImage{}, err
			}
		}
		ctx = context.WithValue(ctx, publicKey{}, true)
	}
	if img, ok := c.store.byDigest(ref.want()); ok {
		t.finishAt(img.Path)
		return img, nil
	}
	if ref.Path != "" {
		return c.copier.fetch(ctx, ref, t)
	}
	return c.download.fetch(ctx, ref, t)
}

// open prepares the directory: creates it, reads the index, sweeps leftovers.
func (c *Cache) open() error {
	for _, dir := range []string{c.store.dir, c.staging.dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make image cache: %w", err)
		}
		if err := os.Chmod(dir, 0o700); err != nil { // created by an older version
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
	if err := c.store.restrictModes(); err != nil {
		return fmt.Errorf("clean image cache: %w", err)
	}
	return c.store.evict(0)
}

// sweep removes leftovers of killed processes: temporary files, and downloads that cannot or will not be
// resumed. The caller holds mu.
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

// Collector returns the cache's metrics.
func (c *Cache) Collector() prometheus.Collector { return c.store.metrics }
