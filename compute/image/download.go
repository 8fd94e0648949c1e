package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
	"croft/internal/delay"
)

// maxTries limits the attempts of one download that make no progress.
const maxTries = 3

var (
	errUnchanged = errors.New("the copy in the cache is the newest") // HTTP 304
	errAgain     = errors.New("ask for the whole file")
)

// downloader fetches images over HTTP.
type downloader struct {
	client    *client
	publisher publisher
	staging   staging
	space     *space
	committer
	fresh time.Duration // how long a copy is used without revalidation
	pause time.Duration // delay before a cut download resumes
}

// fetch returns the newest version of an image on a server. If the server does not respond, a cached version
// is returned.
func (c *downloader) fetch(ctx context.Context, ref Reference, t *transfer) (compute.CachedImage, error) {
	e, img, ok := c.store.held(ref)
	if ok && time.Since(e.Checked) < c.fresh {
		t.finish(e.Size)
		return img, nil
	}
	newer, err := c.renew(ctx, ref, e.validator, ok, t)
	switch {
	case err == nil:
		return newer, nil
	case errors.Is(err, errUnchanged):
		c.store.remember(ref, e)
		t.finish(e.Size)
		return img, nil
	case ok && croft.KindOf(err) == croft.Unavailable && ctx.Err() == nil:
		c.store.log.Warn("the copy of an image in the cache is used without knowing whether it is the newest", "op", "fetch",
			"image", ref.Name(), "err", err)
		t.finish(e.Size)
		return img, nil
	}
	return compute.CachedImage{}, err
}

// renew asks the publisher's list, or else the server, for the current version of the reference, and fetches
// it unless the cache has it.
func (c *downloader) renew(ctx context.Context, ref Reference, have validator, held bool,
	t *transfer) (compute.CachedImage,
	error) {
	d := &download{c: c, ref: ref, want: ref.want(), t: t, room: c.space.gauge(c.store.dir)}
	switch {
	case ref.Sums != "":
		want, err := c.publisher.checksum(ctx, ref)
		if err != nil {
			return compute.CachedImage{}, err
		}
		if img, ok := c.store.byDigest(want); ok {
			t.finishAt(img.Path)
			return img, c.store.rememberImage(ref, want, img)
		}
		d.want = want
	case held:
		d.have = have
	}
	return d.run(ctx)
}

// download fetches one image over HTTP into the cache.
type download struct {
	c    *downloader
	ref  Reference
	want digest    // zero: any content
	have validator // of the cached version; zero: fetch unconditionally
	t    *transfer

	file    *stagingFile
	began   bool // the server has sent data
	resumed bool // the file consists of several responses
	looked  int  // how much of its beginning was checked: 0, format.HeadSize, earlyHeader
	local   bool // the failure is local to this host
	room    *gauge
}

// run downloads, verifies and commits. A partial download that may be resumed is kept.
func (d *download) run(ctx context.Context) (img compute.CachedImage, err error) {
	if d.file, err = d.c.staging.open(d.ref, d.want.algo == "sha512"); err != nil {
		return compute.CachedImage{}, err
	}
	d.resumed = d.file.size > 0
	err = d.complete(ctx)
	if err == nil {
		return d.c.commit(ctx, d.file, d.ref, d.want, nil)
	}
	if d.file.size > 0 && !d.local && (ctx.Err() != nil || croft.KindOf(err) == croft.Unavailable) {
		return compute.CachedImage{}, errors.Join(err, d.file.close())
	}
	d.file.discard()
	return compute.CachedImage{}, err
}

// complete retries until the file is complete and correct. A cut connection is resumed at once, because the
// progress would otherwise be shown as lost; a server that sent nothing is not asked again.
func (d *download) complete(ctx context.Context) error {
	best, tries := d.file.size, 0
	for {
		err := d.attempt(ctx)
		if err == nil {
			if err = d.file.verify(d.want, d.source()); err == nil || !d.resumed {
				return err
			}
			// Two versions may have been joined: retry in one response.
			d.resumed = false
			if err := d.file.reset(validator{}, 0); err != nil {
				return d.writeError(err)
			}
			continue
		}
		if !d.began || d.local || ctx.Err() != nil || croft.KindOf(err) != croft.Unavailable {
			return err
		}
		if tries++; d.file.size > best {
			best, tries = d.file.size, 0
		}
		if tries >= maxTries {
			return err
		}
		d.c.store.log.Info("a download is taken up again", "op", "fetch", "image", d.ref.Name(), "bytes", d.file.size,
			"reason", err)
		if err := delay.For(ctx, d.c.pause*time.Duration(tries+1)); err != nil {
			return err
		}
	}
}

// source says, for the error, where the expected checksum comes from.
func (d *download) source() string {
	if d.ref.Sums != "" {
		return "of the list " + Reference{URL: d.ref.Sums}.Name()
	}
	return "that was asked for"
}

func (d *download) attempt(ctx context.Context) error {
	for {
		err := d.once(ctx)
		if !errors.Is(err, errAgain) {
			return err
		}
		if err := d.file.reset(validator{}, 0); err != nil {
			return d.writeError(err)
		}
	}
}

// once makes one request and stores the received data.
func (d *download) once(ctx context.Context) error {
	if err := d.prepare(ctx); err != nil {
		return err
	}
	ctx, w := d.c.client.watch(ctx)
	defer w.stop()
	req, err := d.newRequest(ctx)
	if err != nil {
		return err
	}
	resp, err := d.c.client.do(req, d.pinned())
	if err != nil {
		return w.explain(err)
	}
	defer resp.Body.Close()
	if err := d.accept(resp); err != nil {
		return err
	}
	return d.receive(resp.Body, w)
}

// prepare decides how much to request again: only the rest if it can be resumed, everything if the server
// cannot identify the version. It hashes earlier data before the request, because that may take time.
func (d *download) prepare(ctx context.Context) error {
	p := d.file
	var err error
	switch {
	case p.size == 0:
	case p.ifRange(d.pinned()) == "":
		err = p.reset(validator{}, 0)
	case p.state.Total > 0 && p.size >= p.state.Total:
		err = p.back()
	}
	if err != nil {
		return d.writeError(err)
	}
	return p.catchUp(ctx)
}

func (d *download) pinned() bool { return d.want != digest{} }

func (d *download) newRequest(ctx context.Context) (*http.Request, error) {
	req, err := d.c.client.request(ctx, d.ref.URL)
	if err != nil {
		return nil, err
	}
	if d.file.size > 0 {
		d.resumed = true
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.file.size))
		req.Header.Set("If-Range", d.file.ifRange(d.pinned()))
		return req, nil
	}
	if d.have.ETag != "" {
		req.Header.Set("If-None-Match", d.have.ETag)
	}
	if d.have.LastModified != "" {
		req.Header.Set("If-Modified-Since", d.have.LastModified)
	}
	return req, nil
}

// accept prepares for the body of a response, or returns why it has no body.
func (d *download) accept(resp *http.Response) error {
	version := validator{resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")}
	partial := resp.Request.Header.Get("Range") != ""
	switch code := resp.StatusCode; {
	case code == http.StatusNotModified && d.have != (validator{}) && !partial:
		return errUnchanged
	case code == http.StatusOK:
		if err := d.file.reset(version, max(0, resp.ContentLength)); err != nil {
			return d.writeError(err)
		}
	case code == http.StatusRequestedRangeNotSatisfiable && partial:
		return errAgain
	case code == http.StatusPartialContent && partial:
		start, total, ok := parseContentRange(resp.Header.Get("Content-Range"))
		if !ok || start != d.file.size || d.file.isOther(version, d.pinned()) {
			return errAgain // not the requested range
		}
		d.file.state.Total = total
	default:
		return statusError(resp)
	}
	d.began = true
	d.t.total.Store(d.file.state.Total)
	d.t.have.Store(d.file.size)
	return d.makeRoom()
}

// makeRoom checks, once the size is known, whether the image fits.
func (d *download) makeRoom() error {
	total := d.file.state.Total
	if err := d.c.store.admit(total); err != nil {
		return err
	}
	if err := d.c.space.room(d.c.store.dir, max(0, total-d.file.size)); err != nil {
		d.local = true
		return err
	}
	d.room.left = roomEvery
	return nil
}

// parseContentRange reads "bytes START-END/TOTAL"; the total may be unknown (*).
func parseContentRange(s string) (start, total int64, ok bool) {
	span, size, ok := strings.Cut(strings.TrimPrefix(s, "bytes "), "/")
	first, _, dash := strings.Cut(span, "-")
	if !ok || !dash || !strings.HasPrefix(s, "bytes ") {
		return 0, 0, false
	}
	start, err := strconv.ParseInt(first, 10, 64)
	if err != nil || start < 0 {
		return 0, 0, false
	}
	if size == "*" {
		return start, 0, true
	}
	total, err = strconv.ParseInt(size, 10, 64)
	return start, total, err == nil && total > start
}

// receive writes the body to the staging file.
func (d *download) receive(body io.Reader, w *watch) error {
	r := w.reader(body)
	buf := make([]byte, 128<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := d.take(buf[:n]); err != nil {
				return err
			}
		}
		total := d.file.state.Total
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return w.explain(err)
		case total > 0 && d.file.size < total:
			return w.explain(io.ErrUnexpectedEOF)
		case total > 0 && d.file.size > total:
			return croft.Errorf(croft.Invalid, "the server sent more than the %d bytes it announced", total)
		default:
			return nil
		}
	}
}

func (d *download) take(b []byte) error {
	if d.file.size+int64(len(b)) > d.c.store.max {
		return d.c.store.admit(d.file.size + int64(len(b)))
	}
	if err := d.room.take(int64(len(b))); err != nil {
		d.local = true
		return err
	}
	if _, err := d.file.Write(b); err != nil {
		return d.writeError(err)
	}
	d.t.have.Store(d.file.size)
	return d.rejectEarly()
}

// earlyHeader is enough to contain any qcow2 header.
const earlyHeader = 2 << 20

// rejectEarly rejects a file that cannot become an image as early as possible, rather than after gigabytes.
func (d *download) rejectEarly() error {
	p := d.file
	if d.looked < format.HeadSize && p.size >= format.HeadSize {
		d.looked = format.HeadSize
		return d.checkHead(format.RefuseHead)
	}
	if d.looked < earlyHeader && p.size >= earlyHeader {
		d.looked = earlyHeader
		return d.checkHead(func(head []byte) error {
			if !format.IsQcow2(head) {
				return nil
			}
			h, err := format.ReadQcow2(p.f, p.size)
			if err != nil {
				return err
			}
			return h.Acceptable()
		})
	}
	return nil
}

// checkHead checks the beginning of the file. A packed file is checked when it is unpacked.
func (d *download) checkHead(judge func(head []byte) error) error {
	head, err := d.file.head()
	if err != nil {
		return err
	}
	if _, packed := format.PackingOf(head); packed {
		return nil
	}
	return judge(head)
}

func (d *download) writeError(err error) error {
	d.local = true
	return fmt.Errorf("write download: %w", noSpace(err, d.c.store.dir))
}
