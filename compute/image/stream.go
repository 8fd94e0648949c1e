package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
	"croft/compute/image/nbd"
	"croft/internal/children"
)

// ReadDisk implements compute.ImageStore. qemu-nbd opens the disk read-only, with the locks of QEMU, and ends with the
// process that started it. Only parts with data are read.
func (c *Cache) ReadDisk(ctx context.Context, layers []compute.Layer, w io.Writer) error {
	if err := readDisk(ctx, layers, w); err != nil {
		return fmt.Errorf("read the disk %s: %w", layers[0].Path, err)
	}
	return nil
}

func readDisk(ctx context.Context, layers []compute.Layer, w io.Writer) error {
	disk, err := json.Marshal(node(layers))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, ended, err := qemuNBD(ctx, "json:"+string(disk))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	out := &failedWriter{Writer: w}
	client, err := nbd.Open(conn)
	if err == nil {
		err = client.Copy(out)
	}
	_ = conn.Close()
	failed := <-ended
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case out.err != nil:
		return out.err
	case failed != nil:
		return failed
	case err != nil:
		return croft.Errorf(croft.Unavailable, "%w", err)
	}
	return nil
}

// failedWriter keeps the error of a writer.
type failedWriter struct {
	io.Writer
	err error
}

func (w *failedWriter) Write(p []byte) (n int, err error) {
	n, w.err = w.Writer.Write(p)
	return n, w.err
}

// qemuNBD starts qemu-nbd for the disk that args describe, and connects to it. It ends after the connection, or with
// ctx, and then ended receives its error.
func qemuNBD(ctx context.Context, args ...string) (_ net.Conn, ended <-chan error, err error) {
	if _, err := exec.LookPath("qemu-nbd"); err != nil {
		return nil, nil, croft.Errorf(croft.Unavailable, "qemu-nbd is missing on the host: install qemu-utils")
	}
	conn, listening, err := pendingConn()
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket: %w", err)
	}
	// qemu-nbd takes a listening socket from systemd, which gives it the process ID too.
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec qemu-nbd "$@"`,
		"qemu-nbd", "--read-only"}, args...)...)
	var said bytes.Buffer
	cmd.ExtraFiles, cmd.Stderr = []*os.File{listening}, &said
	result := make(chan error, 1)
	go func() {
		err := children.Run(cmd)
		_ = listening.Close() // a connection that was not accepted ends
		if text := strings.TrimSpace(said.String()); err != nil && text != "" {
			err = croft.Errorf(croft.Unavailable, "%s", strings.SplitN(text, "\n", 2)[0])
		}
		result <- err
	}()
	return conn, result, nil
}

// pendingConn returns a connection to a listening socket that has no name any more.
func pendingConn() (_ net.Conn, listening *os.File, err error) {
	dir, err := os.MkdirTemp("", "croft-nbd-") // only this process's user can connect to its sockets
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	if listening, err = l.File(); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, listening, nil
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
		err = nbdcopy(ctx, &gauged{r: r, room: c.space.gauge(dir)}, dir, "--flush", "--", "-", "[", "qemu-nbd",
			"--discard=unmap", "--detect-zeroes=unmap", "json:"+string(disk), "]")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the disk %s: %w", file, err), os.Remove(file))
	}
	return nil
}

// gauged reads while there is space for the data that is not zero.
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
func nbdcopy(ctx context.Context, in io.Reader, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "nbdcopy", args...)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = in, &said
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
