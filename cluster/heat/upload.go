package heat

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"croft"
	"croft/cluster"
	"croft/cluster/outbound"
)

// progressPause is how often Glance is told how far an upload is.
const progressPause = 10 * time.Second

// mostUploads is how many uploads go on at once.
const mostUploads = 4

// mostImage bounds an image, in bytes.
const mostImage = 1 << 40

// uploadKey is what is uploaded where.
type uploadKey struct{ site, project, image, hash string }

// upload is one under way.
type upload struct {
	done, total atomic.Int64
	id          atomic.Pointer[string]
	ended       chan struct{}
	err         error // once ended is closed
}

func (u *upload) ref() string {
	if id := u.id.Load(); id != nil {
		return *id
	}
	return ""
}

// uploads are those of this process.
type uploads struct {
	mu    sync.Mutex
	all   map[uploadKey]*upload
	seen  map[string]sighting // of uploads of other processes, by image
	ctx   context.Context     // ends with Close
	end   context.CancelFunc
	slots chan struct{}
	work  sync.WaitGroup
}

// sighting is when an image was first seen as it is.
type sighting struct{ updated, first time.Time }

func (u *uploads) init() {
	u.ctx, u.end = context.WithCancel(context.Background())
	u.all, u.seen, u.slots = map[uploadKey]*upload{}, map[string]sighting{}, make(chan struct{}, mostUploads)
}

func (u *uploads) close() {
	u.end()
	u.work.Wait()
}

// running returns the upload under a key, also one that ended and whose end nobody was told of yet.
func (u *uploads) running(key uploadKey) *upload {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all[key]
}

// begin runs an upload unless one runs.
func (u *uploads) begin(key uploadKey, do func(ctx context.Context, u *upload) error) *upload {
	u.mu.Lock()
	defer u.mu.Unlock()
	if one := u.all[key]; one != nil {
		return one
	}
	one := &upload{ended: make(chan struct{})}
	u.all[key] = one
	u.work.Go(func() {
		defer close(one.ended)
		select {
		case u.slots <- struct{}{}:
			defer func() { <-u.slots }()
			one.err = do(u.ctx, one)
		case <-u.ctx.Done():
			one.err = u.ctx.Err()
		}
	})
	return one
}

func (u *uploads) forget(key uploadKey, one *upload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all[key] == one {
		delete(u.all, key)
	}
}

// stopped reports whether an upload of another process has told no progress for long, by our clock.
func (u *uploads) stopped(id string, updated time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	before, known := u.seen[id]
	if !known || !before.updated.Equal(updated) {
		u.seen[id] = sighting{updated, time.Now()}
		return false
	}
	return time.Since(before.first) > abandoned
}

// upload makes an image of a source. An image whose hash is wrong never becomes usable: its last bytes are not sent.
func (d *Driver) upload(ctx context.Context, s *session, client *gophercloud.ServiceClient, i cluster.Image,
	u *upload) error {
	source, err := open(ctx, i)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	u.total.Store(source.total)
	id, err := d.createImage(ctx, s, client, i)
	if err != nil {
		return err
	}
	u.id.Store(&id)
	source.done = &u.done
	told, stop := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { d.tell(told, client, id, u) })
	err = s.put(ctx, client.ServiceURL("images", id, "file"), source)
	stop()
	telling.Wait()
	if err == nil {
		err = d.checkImage(ctx, s, client, id, u.done.Load())
	}
	if source.wrong != nil {
		err = source.wrong
	}
	if err != nil {
		d.deleteImage(ctx, s, client, id)
	}
	return err
}

// createImage makes an image without content.
func (d *Driver) createImage(ctx context.Context, s *session, client *gophercloud.ServiceClient, i cluster.Image) (string,
	error) {
	ctx, cancel := d.brief(ctx)
	defer cancel()
	format := i.Format
	if format == "" {
		format = "qcow2"
	}
	made, err := images.Create(ctx, client, images.CreateOpts{Name: i.Name, ContainerFormat: "bare", DiskFormat: format,
		MinDisk: i.MinDiskGB, MinRAM: i.MinRAMMB,
		Properties: map[string]string{imageProperty: i.Name, hashProperty: i.SHA256, doneProperty: "0"}}).Extract()
	if err != nil {
		return "", s.explain("create the image", err)
	}
	return made.ID, nil
}

// tell tells Glance how far an upload is, so that other processes leave it alone.
func (d *Driver) tell(ctx context.Context, client *gophercloud.ServiceClient, id string, u *upload) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(progressPause):
		}
		request, cancel := d.brief(ctx)
		err := images.Update(request, client, id, images.UpdateOpts{images.UpdateImageProperty{Op: images.ReplaceOp,
			Name: doneProperty, Value: strconv.FormatInt(u.done.Load(), 10)}}).Err
		cancel()
		if err != nil && ctx.Err() == nil {
			d.c.Log.Debug("the progress of an upload is not told", "image", id, "err", err)
		}
	}
}

// checkImage checks that Glance has all of an image.
func (d *Driver) checkImage(ctx context.Context, s *session, client *gophercloud.ServiceClient, id string,
	size int64) error {
	ctx, cancel := d.brief(ctx)
	defer cancel()
	i, err := images.Get(ctx, client, id).Extract()
	switch {
	case err != nil:
		return s.explain("read the image", err)
	case i.Status != images.ImageStatusActive || i.SizeBytes != size:
		return croft.Errorf(croft.Unavailable, "site %s: the image is %s and has %d of %d bytes", s.site.Name, i.Status,
			i.SizeBytes, size)
	}
	return nil
}

// put sends a source. It is not gophercloud's, which sends what is left of a body once more with a renewed token, and
// never says how long it is.
func (s *session) put(ctx context.Context, address string, source *source) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, address, source)
	if err != nil {
		return croft.Errorf(croft.Invalid, "site %s: the address of its image service is none", s.site.Name)
	}
	r.ContentLength = source.total // -1: not known
	r.Header.Set("Content-Type", "application/octet-stream")
	r.Header.Set("X-Auth-Token", s.provider.Token())
	a, err := s.provider.HTTPClient.Do(r)
	if err != nil {
		return s.explain("upload the image", err)
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode/100 == 2 {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(a.Body, 64<<10))
	return s.explain("upload the image", gophercloud.ErrUnexpectedResponseCode{Actual: a.StatusCode, Body: body})
}

// source is the content of an image as it comes. Its last bytes are held back until the hash is right.
type source struct {
	io.Closer
	in    *bufio.Reader
	name  string
	total int64 // -1: not known
	want  string
	sum   hash.Hash
	done  *atomic.Int64
	wrong error // the hash is another one
}

// open begins to read the source of an image.
func open(ctx context.Context, i cluster.Image) (*source, error) {
	client, err := outbound.Client(outbound.Config{Timeout: -1, MaxBody: mostImage})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, i.URL, nil)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "image %s: its URL is none", i.Name)
	}
	a, err := client.Do(r)
	if err != nil {
		return nil, croft.Errorf(croft.Unavailable, "image %s: %s", i.Name, outbound.Explain(r.URL.Host, err))
	}
	if a.StatusCode != http.StatusOK {
		_ = a.Body.Close()
		return nil, croft.Errorf(croft.Unavailable, "image %s: %s answers %s", i.Name, r.URL.Host, a.Status)
	}
	return &source{Closer: closing{a.Body, client}, in: bufio.NewReaderSize(a.Body, 256<<10), name: i.Name,
		total: a.ContentLength, want: i.SHA256, sum: sha256.New()}, nil
}

// closing closes the connections of a client with a body.
type closing struct {
	io.ReadCloser
	client *http.Client
}

// Close implements io.Closer.
func (c closing) Close() error {
	err := c.ReadCloser.Close()
	c.client.CloseIdleConnections()
	return err
}

// Read implements io.Reader. The last byte comes only if the hash is right.
func (s *source) Read(p []byte) (int, error) {
	next, err := s.in.Peek(2)
	if len(next) == 2 {
		n, err := s.in.Read(p[:min(len(p), s.in.Buffered()-1)])
		s.sum.Write(p[:n])
		s.done.Add(int64(n))
		return n, err
	}
	if !errors.Is(err, io.EOF) {
		return 0, err
	}
	return s.last(p, next)
}

// last hands out the last byte.
func (s *source) last(p, left []byte) (int, error) {
	s.sum.Write(left)
	if got := hex.EncodeToString(s.sum.Sum(nil)); got != s.want {
		s.wrong = croft.Errorf(croft.Invalid, "image %s has the SHA-256 %s at its source, not %s", s.name, got, s.want)
		return 0, s.wrong
	}
	n := copy(p, left)
	_, err := s.in.Discard(n)
	s.done.Add(int64(n))
	return n, cmp.Or(err, io.EOF)
}
