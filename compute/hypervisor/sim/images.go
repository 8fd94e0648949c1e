package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"croft"
	"croft/compute"
	"croft/internal/durable"
)

var _ compute.ImageStore = Images{}

// Images replaces the image cache for simulated guests: it accepts every reference, fetches nothing and creates empty
// disks. An image that has a file, such as one that was uploaded to the cloud's catalog, is linked into the directory
// of the disk, as in the real cache, so that moves find it there.
type Images struct {
	// Dir gets a small bootable file for each reference that is fetched, so that the catalog can have it as an image.
	// Empty: fetched images have no file.
	Dir string

	// Fault is called by every Fetch. It may block; its error fails the fetch.
	Fault func(ctx context.Context, ref string) error
	Kept  *Kept // records fetched references; nil: not recorded
}

// Kept is the cache of Images, which contains only references. The zero Kept is empty.
type Kept struct {
	mu   sync.Mutex
	refs []string // latest first
}

var _ compute.Cache = Images{}

// Held implements compute.Cache.
func (s Images) Held(context.Context) ([]compute.Held, error) {
	if s.Kept == nil {
		return nil, nil
	}
	s.Kept.mu.Lock()
	defer s.Kept.mu.Unlock()
	var all []compute.Held
	for _, ref := range s.Kept.refs {
		all = append(all, heldOf(ref))
	}
	return all, nil
}

// Remove implements compute.Cache.
func (s Images) Remove(_ context.Context, ref string) (removed []compute.Held, err error) {
	if s.Kept == nil {
		return nil, errNotHeld
	}
	s.Kept.mu.Lock()
	defer s.Kept.mu.Unlock()
	s.Kept.refs = slices.DeleteFunc(s.Kept.refs, func(r string) bool {
		if h := heldOf(r); ref == "" || ref == r || ref == h.SHA256 {
			removed = append(removed, h)
			return true
		}
		return false
	})
	if len(removed) == 0 && ref != "" {
		return nil, errNotHeld
	}
	return removed, nil
}

var errNotHeld = croft.Errorf(croft.NotFound, "this host has not fetched it")

// heldOf returns the image of a reference, with a checksum of the reference.
func heldOf(ref string) compute.Held {
	sum := sha256.Sum256([]byte(ref))
	return compute.Held{Path: "/simulated", Format: "raw",
		SHA256: hex.EncodeToString(sum[:]), References: []string{ref}}
}

// keep records a fetched image.
func (k *Kept) keep(ref string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refs = append([]string{ref}, slices.DeleteFunc(k.refs, func(r string) bool { return r == ref })...)
}

// Fetch returns an image of size 0. Invalid: the reference is empty.
func (s Images) Fetch(ctx context.Context, ref string, progress func(croft.Progress)) (compute.CachedImage, error) {
	if strings.TrimSpace(ref) == "" {
		return compute.CachedImage{}, croft.Errorf(croft.Invalid, "no image is named")
	}
	if s.Fault != nil {
		if err := s.Fault(ctx, ref); err != nil {
			return compute.CachedImage{}, err
		}
	}
	if progress != nil {
		progress(croft.Progress{})
	}
	if s.Kept != nil {
		s.Kept.keep(ref)
	}
	if s.Dir == "" || ctx.Err() != nil {
		return compute.CachedImage{Path: "/simulated", Format: "raw"}, ctx.Err()
	}
	return s.standIn(ref)
}

// standIn makes the file of a reference: a boot sector that jumps to itself, and the digest of the reference.
func (s Images) standIn(ref string) (compute.CachedImage, error) {
	sum := sha256.Sum256([]byte(ref))
	disk := make([]byte, 4096)
	copy(disk, []byte{0xeb, 0xfe})
	copy(disk[510:], []byte{0x55, 0xaa})
	copy(disk[512:], sum[:])
	path := filepath.Join(s.Dir, hex.EncodeToString(sum[:])+".raw")
	err := os.MkdirAll(s.Dir, 0o700)
	if err == nil {
		err = durable.Write(path, disk, 0o600)
	}
	if err != nil {
		return compute.CachedImage{}, fmt.Errorf("make a simulated image: %w", err)
	}
	return onDisk(path, "raw")
}

// onDisk returns an image with a file.
func onDisk(path, format string) (compute.CachedImage, error) {
	f, err := os.Open(path)
	if err != nil {
		return compute.CachedImage{}, err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	return compute.CachedImage{Path: path, Format: format, VirtualSize: size, Digest: hex.EncodeToString(sum.Sum(nil))},
		err
}

// FetchPublic is Fetch, which opens no connections.
func (s Images) FetchPublic(ctx context.Context, ref string, progress func(croft.Progress)) (compute.CachedImage,
	error) {
	return s.Fetch(ctx, ref, progress)
}

// Disk creates a file with the name of its base in dir, so that tests see which files of an instance remain. An
// existing one is kept.
func (Images) Disk(_ context.Context, img compute.CachedImage, dir string, _ int64) ([]compute.Layer, error) {
	path := filepath.Join(dir, "disk.qcow2")
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		err = linkBase(img, dir)
	}
	if _, there := os.Stat(path); err == nil && errors.Is(there, os.ErrNotExist) {
		err = diskFile{below: base(img, dir).Path}.write(path)
	}
	if err != nil {
		return nil, fmt.Errorf("make a simulated disk: %w", err)
	}
	return layers(img, path), nil
}

// linkBase gives a disk the file of its image, if the image has one.
func linkBase(img compute.CachedImage, dir string) error {
	if img.Digest == "" {
		return nil
	}
	to := base(img, dir).Path
	if img.Path == to {
		return nil
	}
	err := os.Link(img.Path, to)
	switch {
	case errors.Is(err, os.ErrExist):
		return nil
	case !errors.Is(err, syscall.EXDEV): // a shared storage is another file system
		return err
	}
	from, err := os.Open(img.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	return durable.WriteFrom(to, 0o444, func(w io.Writer) error {
		_, err := io.Copy(w, from)
		return err
	})
}

// base returns the layer of an image below a disk in dir.
func base(img compute.CachedImage, dir string) compute.Layer {
	return compute.Layer{Path: filepath.Join(dir, "base."+img.Format), Format: img.Format, Shared: true}
}

func layers(img compute.CachedImage, path string) []compute.Layer {
	return []compute.Layer{{Path: path, Format: "qcow2"}, base(img, filepath.Dir(path))}
}

// Base returns the image that Disk linked, or else the one without a file.
func (Images) Base(_ context.Context, dir string) (compute.CachedImage, error) {
	for _, format := range []string{"qcow2", "raw"} {
		img, err := onDisk(filepath.Join(dir, "base."+format), format)
		if !errors.Is(err, os.ErrNotExist) {
			return img, err
		}
	}
	return compute.CachedImage{Path: "/simulated", Format: "raw"}, nil
}

// Adopt gives a disk that was copied its name.
func (Images) Adopt(_ context.Context, img compute.CachedImage, dir, staged string, _ int64) ([]compute.Layer, error) {
	path := filepath.Join(dir, "disk.qcow2")
	if err := linkBase(img, dir); err != nil {
		return nil, fmt.Errorf("adopt a simulated disk: %w", err)
	}
	if err := os.Rename(staged, path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("adopt a simulated disk: %w", err)
	}
	f, err := readFile(path)
	if below := base(img, dir).Path; err == nil && f.below != "" && f.below != below {
		f.below = below
		err = f.write(path)
	}
	if img.Format == "" {
		return []compute.Layer{{Path: path, Format: "qcow2"}}, err
	}
	return layers(img, path), err
}

// Enlarge looks for the disk, which has no size.
func (Images) Enlarge(_ context.Context, file string, _ int64) error {
	if _, err := os.Stat(file); err != nil {
		return croft.Errorf(croft.NotFound, "make a simulated disk larger: %w", err)
	}
	return nil
}

// Volume creates a file without contents, so that tests see which volumes exist.
func (Images) Volume(_ context.Context, file string, _ int64) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make a simulated volume: %w", err)
	}
	return f.Close()
}

// Overlay creates a file that contains the name of the layer below.
func (Images) Overlay(_ context.Context, file string, below compute.Layer) error {
	return diskFile{below: below.Path}.write(file)
}

// Below returns what Overlay or Rebase wrote.
func (Images) Below(file string) (string, error) {
	f, err := readFile(file)
	return f.below, err
}

// ReadDisk writes the data of the disk or, if nothing was written to it, the text of its topmost file. Of a blank disk
// it writes a zero, since no disk is empty.
func (Images) ReadDisk(_ context.Context, all []compute.Layer, w io.Writer) error {
	text, err := content(all)
	if err == nil && text == nil {
		text, err = os.ReadFile(all[0].Path)
	}
	if len(text) == 0 {
		text = []byte{0}
	}
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// WriteDisk stores the content in the file.
func (Images) WriteDisk(_ context.Context, file string, _ int64, r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return diskFile{data: text}.write(file)
}

// Fits accepts every file: the data of simulated disks is small.
func (Images) Fits(string) error { return nil }

// Merge writes the data of the first layer into the second.
func (Images) Merge(_ context.Context, layers []compute.Layer) error {
	return merge(layers[0].Path, layers[1].Path)
}

// CopyFiles has the files of images of the cloud's catalog. An image that is saved from a simulated guest has a boot
// sector, and then the data of the disk.
type CopyFiles struct{ compute.CopyFiles }

// Flatten stages the image of a simulated disk.
func (s CopyFiles) Flatten(_ context.Context, id croft.ImageID, layers []compute.Layer, _ int64) error {
	data, err := content(layers)
	if err != nil {
		return fmt.Errorf("save a simulated disk: %w", err)
	}
	disk := make([]byte, 1<<20)
	copy(disk, []byte{0xeb, 0xfe}) // jumps to itself
	copy(disk[2:], layers[0].Path)
	copy(disk[510:], []byte{0x55, 0xaa})
	copy(disk[512:], data)
	return os.WriteFile(s.Staged(id), disk, 0o600)
}

// CD gives the file of an image that has one, and makes an empty one for the others.
func (Images) CD(_ context.Context, img compute.CachedImage, file string) error {
	if img.Digest != "" {
		if err := os.Link(img.Path, file); err == nil || errors.Is(err, os.ErrExist) {
			return nil
		}
	}
	if err := os.WriteFile(file, nil, 0o444); err != nil {
		return fmt.Errorf("make a simulated CD: %w", err)
	}
	return nil
}

// OnlyFirmware returns none: simulated guests boot nothing.
func (Images) OnlyFirmware([]compute.Layer) (croft.Firmware, error) { return "", nil }

// Rebase names another layer below a file.
func (Images) Rebase(_ context.Context, file string, below compute.Layer) error {
	return rename(file, below.Path)
}
