package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
)

// Overlay implements compute.ImageStore.
func (c *Cache) Overlay(_ context.Context, file string, below compute.Layer) error {
	h, err := header(below.Path)
	if err == nil {
		empty := format.Overlay{Virtual: int64(h.Virtual), Backing: below.Path, BackingFormat: below.Format}
		if err = c.space.room(filepath.Dir(file), empty.Length()); err == nil {
			err = replaceFile(file, 0o600, func(f *os.File) error {
				if err := f.Truncate(empty.Length()); err != nil {
					return err
				}
				return empty.Write(f)
			})
		}
	}
	if err != nil {
		return fmt.Errorf("make an overlay of %s: %w", below.Path, err)
	}
	return nil
}

// header reads the header of a disk.
func header(file string) (*format.Qcow2, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return format.ReadQcow2(f, info.Size())
}

// Below implements compute.ImageStore.
func (c *Cache) Below(file string) (string, error) {
	h, err := header(file)
	if err != nil {
		return "", fmt.Errorf("read the header of %s: %w", file, err)
	}
	if h.KeepsDataElsewhere() {
		return "", croft.Errorf(croft.Invalid, "the disk %s keeps its data in another file", file)
	}
	return h.Backing, nil
}

// Fits implements compute.ImageStore.
func (c *Cache) Fits(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	used := info.Size()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		used = st.Blocks * 512 // the file has holes
	}
	return c.space.room(filepath.Dir(file), used)
}

// Merge implements compute.ImageStore. It names all layers to qemu-img, which then follows no name in a header: a QEMU
// that its guest took over may have written any there.
func (c *Cache) Merge(ctx context.Context, layers []compute.Layer) error {
	if err := c.Fits(layers[0].Path); err != nil {
		return err
	}
	disk, err := json.Marshal(node(layers))
	if err == nil {
		err = qemuImg(ctx, filepath.Dir(layers[0].Path), "commit", "-q", "-d", "json:"+string(disk))
	}
	if err != nil {
		return fmt.Errorf("merge %s into %s: %w", layers[0].Path, layers[1].Path, err)
	}
	return nil
}

// node describes a disk to QEMU.
func node(layers []compute.Layer) map[string]any {
	file := map[string]any{"driver": layers[0].Format,
		"file": map[string]any{"driver": "file", "filename": layers[0].Path}}
	switch {
	case len(layers) > 1:
		file["backing"] = node(layers[1:])
	case layers[0].Format == "qcow2":
		file["backing"] = nil
	}
	return file
}

// Rebase implements compute.ImageStore.
func (c *Cache) Rebase(ctx context.Context, file string, below compute.Layer) error {
	if err := qemuImg(ctx, filepath.Dir(file), "rebase", "-q", "-u", "-f", "qcow2", "-b", below.Path, "-F",
		below.Format, file); err != nil {
		return fmt.Errorf("name another backing file in %s: %w", file, err)
	}
	return nil
}

// qemuImg runs qemu-img, which locks the files that it opens against guests and other programs.
func qemuImg(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "qemu-img", args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	switch {
	case err == nil || ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return croft.Errorf(croft.Unavailable, "qemu-img is missing on the host: install qemu-utils")
	case strings.Contains(said.String(), "No space left"):
		return croft.Errorf(croft.Unavailable, "no space is left in %s: free some there", dir)
	}
	return croft.Errorf(croft.Unavailable, "qemu-img: %s", strings.TrimSpace(said.String()))
}
