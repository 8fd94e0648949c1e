package libvirt

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
)

// OpenScreen connects to the socket of QEMU's VNC server, which only root and QEMU can reach.
func (d *Driver) OpenScreen(ctx context.Context, id croft.InstanceID, takeOver bool) (io.ReadWriteCloser, error) {
	path, err := call(ctx, d.conn, about("attach to the screen of", id),
		func(c *libvirt.Connect) (path string, err error) {
			err = running(c, id, func(_ *libvirt.Domain, x libvirtxml.Domain) error {
				path = screenOf(x)
				return nil
			})
			if err == nil && path == "" {
				err = errNoScreen
			}
			return path, err
		})
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, croft.Errorf(croft.Unavailable, "attach to the screen of instance %s: %w", id, err)
	}
	return d.attach(&d.viewed, conn, id, "screen", takeOver)
}

var errNoScreen = croft.Errorf(croft.Conflict, "it has no screen")

// screenOf returns the socket of a running machine's VNC server; empty: it has none.
func screenOf(x libvirtxml.Domain) string {
	for _, g := range x.Devices.Graphics {
		if g.VNC == nil {
			continue
		}
		if g.VNC.Socket != "" {
			return g.VNC.Socket
		}
		for _, l := range g.VNC.Listeners {
			if l.Socket != nil && l.Socket.Socket != "" {
				return l.Socket.Socket
			}
		}
	}
	return ""
}

// maxScreenshot limits the bytes of a picture, whose size the guest chooses.
const maxScreenshot = 64 << 20

// Screenshot implements compute.Consoles.
func (d *Driver) Screenshot(ctx context.Context, id croft.InstanceID) ([]byte, error) {
	return call(ctx, d.conn, about("look at the screen of", id), func(c *libvirt.Connect) (picture []byte, err error) {
		err = running(c, id, func(dom *libvirt.Domain, x libvirtxml.Domain) error {
			if screenOf(x) == "" {
				return errNoScreen
			}
			raw, err := takePicture(c, dom)
			if err == nil {
				picture, err = toPNG(raw)
			}
			return err
		})
		return picture, err
	})
}

// takePicture returns the screen in the format that QEMU writes: PPM or PNG.
func takePicture(c *libvirt.Connect, dom *libvirt.Domain) ([]byte, error) {
	stream, err := c.NewStream(0)
	if err != nil {
		return nil, err
	}
	defer stream.Free()
	if _, err := dom.Screenshot(stream, 0, 0); err != nil {
		return nil, err
	}
	var raw bytes.Buffer
	for part := make([]byte, 256<<10); ; {
		n, err := stream.Recv(part)
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case n == 0:
			return raw.Bytes(), stream.Finish()
		case raw.Len()+n > maxScreenshot:
			return nil, errors.Join(croft.Errorf(croft.Invalid, "its screen is too large for a picture"),
				stream.Abort())
		}
		raw.Write(part[:n])
	}
}

// toPNG converts a binary PPM (P6) with colours of one byte; a PNG is returned as it is.
func toPNG(raw []byte) ([]byte, error) {
	if bytes.HasPrefix(raw, []byte("\x89PNG\r\n")) {
		return raw, nil
	}
	in := bufio.NewReader(bytes.NewReader(raw))
	var width, height, colours int
	if _, err := fmt.Fscanf(in, "P6\n%d %d\n%d\n", &width, &height, &colours); err != nil {
		return nil, fmt.Errorf("read the picture of its screen: %w", err)
	}
	const most = 1 << 14 // of either side
	if width < 1 || height < 1 || width > most || height > most || colours != 255 || 3*width*height > len(raw) {
		return nil, fmt.Errorf("read the picture of its screen: it has %d x %d points of %d colours and %d bytes", width,
			height, colours, len(raw))
	}
	picture := image.NewNRGBA(image.Rect(0, 0, width, height))
	for at := 0; at < len(picture.Pix); at += 4 {
		if _, err := io.ReadFull(in, picture.Pix[at:at+3]); err != nil {
			return nil, fmt.Errorf("read the picture of its screen: %w", err)
		}
		picture.Pix[at+3] = 0xff
	}
	var out bytes.Buffer
	err := png.Encode(&out, picture)
	return out.Bytes(), err
}
