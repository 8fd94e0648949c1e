package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/compute"
)

var _ compute.Consoles = (*Driver)(nil)

// OpenConsole opens the pseudo-terminal of the guest's serial port. The guest's output is logged whether a
// client is attached or not.
func (d *Driver) OpenConsole(ctx context.Context, id croft.InstanceID, takeOver bool) (io.ReadWriteCloser, error) {
	attach := about("attach to the console of", id)
	path, err := call(ctx, d.conn, attach, func(c *libvirt.Connect) (path string, err error) {
		err = with(c, id, func(dom *libvirt.Domain, _ mark) error {
			text, err := dom.GetXMLDesc(0)
			if err != nil {
				return err
			}
			path, err = terminalOf(text)
			return err
		})
		return path, err
	})
	if err != nil {
		return nil, err
	}
	tty, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err == nil {
		err = makeRaw(tty)
	}
	if err != nil {
		return nil, fmt.Errorf("attach to the console of instance %s: %w", id, err)
	}
	return d.attach(&d.attached, tty, id, "console", takeOver)
}

// attach makes a client of a guest's console or screen the only one.
func (d *Driver) attach(all *sync.Map, guest io.ReadWriteCloser, id croft.InstanceID, what string,
	takeOver bool) (io.ReadWriteCloser, error) {
	own := &console{guest: guest}
	own.leave = func() { all.CompareAndDelete(id, own) }
	for {
		other, taken := all.LoadOrStore(id, own)
		switch {
		case !taken:
			return own, nil
		case !takeOver:
			_ = guest.Close() // the conflict says more
			return nil, croft.Errorf(croft.Conflict, "the %s of instance %s is in use by another client", what, id)
		}
		other.(*console).takenOver()
	}
}

// terminalOf returns the serial port's terminal from a domain's XML. Conflict: the domain is off.
func terminalOf(text string) (string, error) {
	var x libvirtxml.Domain
	if err := x.Unmarshal(text); err != nil {
		return "", fmt.Errorf("its description: %w", err)
	}
	if x.Devices != nil {
		for _, s := range x.Devices.Serials {
			if s.Source != nil && s.Source.Pty != nil && s.Source.Pty.Path != "" {
				return s.Source.Pty.Path, nil
			}
		}
	}
	return "", croft.Errorf(croft.Conflict, "it does not run, so its console takes no input")
}

// makeRaw passes every byte unchanged: the guest does line editing and echo.
func makeRaw(tty *os.File) error {
	raw, err := tty.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var t *unix.Termios
		if t, failed = unix.IoctlGetTermios(int(fd), unix.TCGETS); failed != nil {
			return
		}
		t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR |
			unix.IGNCR | unix.ICRNL | unix.IXON
		t.Oflag &^= unix.OPOST
		t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
		failed = unix.IoctlSetTermios(int(fd), unix.TCSETS, t)
	})
	return errors.Join(err, failed)
}

// console is the attached terminal, or the connection to the screen.
type console struct {
	guest io.ReadWriteCloser
	leave func()
	ended atomic.Bool // another client took over
}

// takenOver ends the attachment: its client reads the end.
func (c *console) takenOver() {
	c.ended.Store(true)
	_ = c.Close() // nothing is written to it any more
}

// Read reads the guest's output; io.EOF once its process is gone.
func (c *console) Read(p []byte) (int, error) {
	n, err := c.guest.Read(p)
	switch {
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ECONNRESET), isClosed(err) && c.ended.Load():
		err = io.EOF
	case isClosed(err):
		err = io.ErrClosedPipe
	}
	return n, err
}

// Write sends input to the guest.
func (c *console) Write(p []byte) (int, error) {
	n, err := c.guest.Write(p)
	if isClosed(err) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EPIPE) {
		err = io.ErrClosedPipe
	}
	return n, err
}

// Close detaches. It is idempotent.
func (c *console) Close() error {
	defer c.leave()
	if err := c.guest.Close(); err != nil && !isClosed(err) {
		return err
	}
	return nil
}

// isClosed reports whether a file or connection was closed here.
func isClosed(err error) bool { return errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) }
