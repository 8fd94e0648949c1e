package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/diskcopy"
	"croft/compute/image/format"
)

var _ compute.CopyFiles = (*Copies)(nil)

// Copies has the files of images of the cloud's catalog on a host, apart from the cache: a file in the cache may be
// used by anyone who knows its checksum, but an image of the catalog only by its projects. A verified file is named by
// the UUID of the image, the SHA-256 of the file and its format, and never changes.
type Copies struct {
	dir   string
	max   int64
	space *space

	mu sync.Mutex // guards the names in dir
}

// stagedSuffix marks the staging files of copies.
const stagedSuffix = ".staged"

// NewCopies opens a directory of copies, which may have max bytes in all, and creates it if necessary. Zero:
// DefaultMaxBytes.
func NewCopies(dir string, max int64) (*Copies, error) {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("make the directory of images: %w", err)
	}
	return &Copies{dir: dir, max: cmp.Or(max, DefaultMaxBytes), space: &space{free: freeBytes}}, nil
}

// Staged implements compute.CopyFiles.
func (c *Copies) Staged(id croft.ImageID) string {
	return filepath.Join(c.dir, string(id)+stagedSuffix)
}

// Get implements compute.CopyFiles.
func (c *Copies) Get(id croft.ImageID) (img compute.CachedImage, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return img, false
	}
	for _, e := range entries {
		of, rest, _ := strings.Cut(e.Name(), ".")
		sum, form, is := cutName(rest)
		if !is || croft.ImageID(of) != id {
			continue
		}
		path := filepath.Join(c.dir, e.Name())
		now := time.Now()
		info, err := format.InspectFile(path)
		if err != nil || info.Format != form || os.Chtimes(path, now, now) != nil {
			return img, false
		}
		return compute.CachedImage{Path: path, Format: form, VirtualSize: info.VirtualSize, Digest: sum}, true
	}
	return img, false
}

// All implements compute.CopyFiles.
func (c *Copies) All() (all []croft.ImageID, err error) {
	entries, err := os.ReadDir(c.dir)
	for _, e := range entries {
		of, _, _ := strings.Cut(e.Name(), ".")
		if id, err := croft.ParseImageID(of); err == nil && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all, err
}

// Remove implements compute.CopyFiles.
func (c *Copies) Remove(id croft.ImageID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remove(id)
}

func (c *Copies) remove(id croft.ImageID) error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if of, _, _ := strings.Cut(e.Name(), "."); croft.ImageID(of) != id {
			continue
		}
		if err := os.RemoveAll(filepath.Join(c.dir, e.Name())); err != nil {
			return err
		}
	}
	return syncDir(c.dir)
}

// Room implements compute.CopyFiles.
func (c *Copies) Room(bytes int64, keep func(croft.ImageID) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	total := bytes
	var files []cached
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // it was just removed
		}
		f := newCached(filepath.Join(c.dir, e.Name()), info)
		total += f.bytes
		if of, _, _ := strings.Cut(e.Name(), "."); !keep(croft.ImageID(of)) && time.Since(f.used) > evictionGrace {
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b cached) int { return a.used.Compare(b.used) })
	for _, f := range files {
		if total <= c.max && c.space.room(c.dir, bytes) == nil {
			return nil
		}
		if err := os.Remove(f.path); err != nil {
			return err
		}
		total -= f.bytes
	}
	if total > c.max {
		return croft.Errorf(croft.NoCapacity, "the images of the catalog would have %s on this host, more than "+
			"images.cache_gib permits: remove some, or raise it", format.Bytes(total))
	}
	return noRoom(c.space.room(c.dir, bytes))
}

// noRoom gives the error of a full file system the kind NoCapacity.
func noRoom(err error) error {
	if err != nil && croft.KindOf(err) == croft.Unavailable {
		return croft.Errorf(croft.NoCapacity, "%w", err)
	}
	return err
}

// Received implements compute.CopyFiles.
func (c *Copies) Received(id croft.ImageID) (int64, error) {
	info, err := os.Stat(c.Staged(id))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Receive implements compute.CopyFiles.
func (c *Copies) Receive(ctx context.Context, id croft.ImageID, at, total int64, chunk io.Reader) (n int64, err error) {
	n, err = c.Received(id)
	switch {
	case err != nil:
		return n, err
	case at != n:
		return n, croft.Errorf(croft.Conflict, "the next chunk starts at byte %d, not %d", n, at)
	}
	f, err := os.OpenFile(c.Staged(id), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return n, err
	}
	defer f.Close()
	room, buffer := c.space.gauge(c.dir), make([]byte, 256<<10)
	for err == nil {
		var k int
		if k, err = chunk.Read(buffer); k == 0 {
			continue
		}
		if n+int64(k) > total {
			err = croft.Errorf(croft.Invalid, "the upload has more than the %d bytes that were announced", total)
			break
		}
		if full := room.take(int64(k)); full != nil {
			err = noRoom(full)
			break
		}
		written, failed := f.Write(buffer[:k])
		n += int64(written)
		if failed != nil {
			err = noRoom(noSpace(failed, c.dir))
		} else if ctx.Err() != nil {
			err = ctx.Err()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, errors.Join(err, noRoom(noSpace(f.Sync(), c.dir)))
}

// Admit implements compute.CopyFiles.
func (c *Copies) Admit(ctx context.Context, id croft.ImageID, want croft.ImageFile, most int64) (croft.ImageFile,
	error) {
	return c.admit(id, want, most, summing(ctx))
}

// Keep implements compute.CopyFiles.
func (c *Copies) Keep(id croft.ImageID, want croft.ImageFile, most int64) (croft.ImageFile, error) {
	return c.admit(id, want, most, func(io.Reader) (string, error) { return want.SHA256, nil })
}

// admit is Admit, with the SHA-256 that sum returns.
func (c *Copies) admit(id croft.ImageID, want croft.ImageFile, most int64, sum func(io.Reader) (string, error)) (
	file croft.ImageFile, err error) {
	staged := c.Staged(id)
	defer func() {
		if errors.Is(err, croft.Invalid) {
			err = errors.Join(err, c.Remove(id))
		}
	}()
	file, err = describe(staged, sum)
	if err == nil {
		err = matches(file, want, most)
	}
	if err != nil {
		return file, err
	}
	return file, errors.Join(c.name(id, staged, file), diskcopy.Forget(staged))
}

// name gives a verified file its name, and makes it readable for the hypervisor.
func (c *Copies) name(id croft.ImageID, staged string, file croft.ImageFile) error {
	f, err := os.Open(staged)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := errors.Join(f.Chmod(imageMode), noRoom(noSpace(f.Sync(), c.dir))); err != nil {
		return fmt.Errorf("keep an image: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := os.Rename(staged, c.path(id, file)); err != nil {
		return err
	}
	return syncDir(c.dir)
}

func (c *Copies) path(id croft.ImageID, file croft.ImageFile) string {
	return filepath.Join(c.dir, string(id)+"."+file.SHA256+"."+file.Format)
}

// describe reads the header of a file, and its SHA-256 from sum.
func describe(path string, sum func(io.Reader) (string, error)) (file croft.ImageFile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return file, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return file, err
	}
	info, err := format.Inspect(f, fi.Size())
	if err != nil {
		return file, err
	}
	digest, err := sum(f)
	return croft.ImageFile{SHA256: digest, Format: info.Format, SizeBytes: fi.Size(), DiskBytes: info.VirtualSize}, err
}

// summing returns a function that reads a file for its SHA-256.
func summing(ctx context.Context) func(io.Reader) (string, error) {
	return func(f io.Reader) (string, error) {
		sum, _, err := sumOf(ctx, f)
		return sum, err
	}
}

// sumOf returns the SHA-256 of a file and how many bytes it has.
func sumOf(ctx context.Context, f io.Reader) (string, int64, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, readerUntil{ctx, f})
	if err != nil {
		return "", n, fmt.Errorf("read an image: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), n, nil
}

// readerUntil reads until its context ends.
type readerUntil struct {
	ctx context.Context
	io.Reader
}

func (r readerUntil) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// matches compares a file with the one that is wanted.
func matches(file, want croft.ImageFile, most int64) error {
	switch {
	case want.SHA256 != "" && file.SHA256 != want.SHA256:
		return croft.Errorf(croft.Invalid, "the file has the SHA-256 %s, not %s: it is another one, or was changed on the way",
			file.SHA256, want.SHA256)
	case want.Format != "" && file.Format != want.Format:
		return croft.Errorf(croft.Invalid, "the file is %s, not %s", file.Format, want.Format)
	case file.SizeBytes > most:
		return croft.Errorf(croft.Invalid, "the file has %s, more than the %s that were requested for it",
			format.Bytes(file.SizeBytes), format.Bytes(most))
	}
	return nil
}

// Link implements compute.CopyFiles.
func (c *Copies) Link(ctx context.Context, id croft.ImageID, img compute.CachedImage, want croft.ImageFile,
	most int64) (file croft.ImageFile, err error) {
	info, err := os.Stat(img.Path)
	if err != nil {
		return file, err
	}
	file = croft.ImageFile{SHA256: img.Digest, Format: img.Format, SizeBytes: info.Size(), DiskBytes: img.VirtualSize}
	if err := matches(file, want, most); err != nil {
		return file, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := os.Link(img.Path, c.path(id, file)); err != nil && !errors.Is(err, fs.ErrExist) {
		return file, fmt.Errorf("keep an image: %w", err)
	}
	// A copy from another host that broke off is not continued any more.
	for _, err := range []error{os.Remove(c.Staged(id)), diskcopy.Forget(c.Staged(id))} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return file, errors.Join(ctx.Err(), syncDir(c.dir))
}

// Flatten implements compute.CopyFiles.
func (c *Copies) Flatten(ctx context.Context, id croft.ImageID, layers []compute.Layer, most int64) error {
	var used int64
	for _, l := range layers {
		info, err := os.Stat(l.Path)
		if err != nil {
			return err
		}
		used += allocated(info)
	}
	if err := noRoom(c.space.room(c.dir, min(used, most))); err != nil {
		return err
	}
	disk, err := json.Marshal(node(layers))
	if err != nil {
		return err
	}
	staged := c.Staged(id)
	if err := os.Remove(staged); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = qemuImg(ctx, c.dir, "convert", "-q", "-O", "qcow2", "json:"+string(disk), staged)
	if err != nil {
		return errors.Join(fmt.Errorf("copy the disk: %w", noRoom(err)), os.RemoveAll(staged))
	}
	return nil
}
