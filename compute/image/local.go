package image

import (
	"context"
	"fmt"
	"io"
	"os"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
)

// copier fetches images from files of this host.
type copier struct {
	allow   []string // directories
	staging staging
	space   *space
	committer
}

// fetch copies a file of this host into the cache, unless it is unchanged since the last copy.
func (c copier) fetch(ctx context.Context, ref Reference, t *transfer) (compute.CachedImage, error) {
	src, fi, err := openIn(c.allow, ref.Path)
	if err != nil {
		return compute.CachedImage{}, err
	}
	defer src.Close()
	now := stampOf(fi)
	if e, img, ok := c.store.held(ref); ok && e.Stamp != nil && *e.Stamp == now {
		t.finish(e.Size)
		return img, nil
	}
	if err := c.store.admit(now.Size); err != nil {
		return compute.CachedImage{}, err
	}
	if err := inspectSource(src, now.Size); err != nil { // before a useless copy
		return compute.CachedImage{}, err
	}
	if err := c.space.room(c.store.dir, min(now.Size, allocated(fi))); err != nil {
		return compute.CachedImage{}, err
	}
	t.total.Store(now.Size)
	want := ref.want()
	p, err := c.staging.open(ref, want.algo == "sha512")
	if err != nil {
		return compute.CachedImage{}, err
	}
	if err = c.copyLocal(ctx, p, src, now, t); err == nil {
		err = p.verify(want, "that was asked for")
	}
	if err != nil {
		p.discard()
		return compute.CachedImage{}, err
	}
	return c.commit(ctx, p, ref, want, &now)
}

// inspectSource is Inspect for a file that may be packed: packed content is checked when it is unpacked.
func inspectSource(r io.ReaderAt, size int64) error {
	head, err := format.ReadHead(r, size)
	if err != nil {
		return err
	}
	if _, packed := format.PackingOf(head); packed {
		return nil
	}
	_, err = format.Inspect(r, size)
	return err
}

// copyLocal copies the file, preserving holes, into a new staging file, and checks that it did not change meanwhile.
func (c copier) copyLocal(ctx context.Context, p *stagingFile, src *os.File, before stamp, t *transfer) error {
	if err := p.reset(validator{}, before.Size); err != nil {
		return fmt.Errorf("write image: %w", noSpace(err, c.store.dir))
	}
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	n, err := copySparse(ctx, p.f, counted{src, p, t}, c.space.gauge(c.store.dir))
	if err != nil {
		return fmt.Errorf("copy image: %w", noSpace(err, c.store.dir))
	}
	p.size = n
	after, err := src.Stat()
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	if n != before.Size || stampOf(after) != before {
		return croft.Errorf(croft.Unavailable, "it changed while it was read: try again when it is finished")
	}
	return nil
}

// counted adds the read bytes to the staging file's sums and the transfer's progress.
type counted struct {
	io.Reader
	p *stagingFile
	t *transfer
}

func (r counted) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.p.hash(b[:n])
	r.t.have.Store(r.p.hashed)
	return n, err
}
