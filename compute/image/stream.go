package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
	"croft/internal/children"
)

// ReadDisk implements compute.ImageStore. qemu-nbd opens the disk read-only, with the locks of QEMU, and nbdcopy reads
// it in order; both end with the process that started them.
func (c *Cache) ReadDisk(ctx context.Context, layers []compute.Layer, w io.Writer) error {
	disk, err := json.Marshal(node(layers))
	if err != nil {
		return err
	}
	if err := nbdcopy(ctx, nil, w, filepath.Dir(layers[0].Path), "--", "[", "qemu-nbd", "--read-only",
		"json:"+string(disk), "]", "-"); err != nil {
		return fmt.Errorf("read the disk %s: %w", layers[0].Path, err)
	}
	return nil
}

// WriteDisk implements compute.ImageStore.
func (c *Cache) WriteDisk(ctx context.Context, file string, sizeGB int64, r io.Reader) error {
	room := int64(croft.MaxVolumeGB * gib)
	empty := format.Overlay{Virtual: sizeGB * gib, Room: max(room, sizeGB*gib)}
	dir := filepath.Dir(file)
	err := c.space.room(dir, empty.Length())
	if err == nil {
		err = replaceFile(file, 0o600, func(f *os.File) error {
			if err := f.Truncate(empty.Length()); err != nil {
				return err
			}
			return empty.Write(f)
		})
	}
	if err == nil {
		disk, _ := json.Marshal(node([]compute.Layer{{Path: file, Format: "qcow2"}})) // plain strings: cannot fail
		err = nbdcopy(ctx, &gauged{r: r, room: c.space.gauge(dir)}, nil, dir, "--flush", "--", "-", "[", "qemu-nbd",
			"--discard=unmap", "--detect-zeroes=unmap", "json:"+string(disk), "]")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the disk %s: %w", file, err), os.Remove(file))
	}
	return nil
}

// gauged reads while there is space for what is not zero.
type gauged struct {
	r    io.Reader
	room *gauge
}

func (g *gauged) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	if n > 0 && !allZero(p[:n]) {
		if full := g.room.take(int64(n)); full != nil {
			return 0, full
		}
	}
	return n, err
}

// nbdcopy runs nbdcopy.
func nbdcopy(ctx context.Context, in io.Reader, out io.Writer, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "nbdcopy", args...)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
	err := children.Run(cmd)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return croft.Errorf(croft.Unavailable, "nbdcopy is missing on the host: install libnbd-bin")
	case strings.Contains(said.String(), "No space left"):
		return croft.Errorf(croft.Unavailable, "no space is left in %s: free some there", dir)
	case said.Len() == 0: // the other end of the pipe failed
		return err
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	return croft.Errorf(croft.Unavailable, "%s", lines[0])
}
