package sim

import (
	"bytes"
	"cmp"
	"context"
	"image"
	"image/color"
	"image/png"
	"io"
	"strings"
	"sync"

	"croft"
	"croft/compute"
)

var _ compute.Consoles = (*Hypervisor)(nil)

// OpenConsole attaches to the console of a simulated guest. Like a terminal without a program, it echoes input and logs
// it. The guest obeys one command: it writes the text of a line "write TEXT" to all its disks, as Write does, and then
// answers "written to" and the disks: "disk", and the UUIDs of its volumes.
func (h *Hypervisor) OpenConsole(_ context.Context, id croft.InstanceID, takeOver bool) (io.ReadWriteCloser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err != nil {
		return nil, err
	}
	return h.open(g, &g.console, "console", takeOver)
}

// greeting is what a server of VNC sends first.
const greeting = "RFB 003.008\n"

// OpenScreen attaches to the screen of a simulated guest, which greets like a server of VNC and ignores its client.
func (h *Hypervisor) OpenScreen(_ context.Context, id croft.InstanceID, takeOver bool) (io.ReadWriteCloser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.findScreen(id)
	if err != nil {
		return nil, err
	}
	c, err := h.open(g, &g.screen, "screen", takeOver)
	if err != nil {
		return nil, err
	}
	c.screen = true
	c.unread.WriteString(greeting) // a bytes.Buffer never fails
	return c, nil
}

// Screenshot returns a blue picture.
func (h *Hypervisor) Screenshot(_ context.Context, id croft.InstanceID) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.findScreen(id)
	if err != nil {
		return nil, err
	}
	if g.Power == compute.PowerOff {
		return nil, croft.Errorf(croft.Conflict, "instance %s does not run, so its screen shows nothing", id)
	}
	picture := image.NewPaletted(image.Rect(0, 0, 64, 48), color.Palette{color.RGBA{B: 0xff, A: 0xff}})
	var text bytes.Buffer
	err = png.Encode(&text, picture)
	return text.Bytes(), err
}

// findScreen returns a guest with a screen. The caller holds h.mu.
func (h *Hypervisor) findScreen(id croft.InstanceID) (*guest, error) {
	g, err := h.find(id)
	if err == nil && g.Machine.Kind.Display != croft.DisplayVNC {
		err = croft.Errorf(croft.Conflict, "instance %s has no screen", id)
	}
	return g, err
}

// open attaches to one of the places of a guest. The caller holds h.mu.
func (h *Hypervisor) open(g *guest, at **console, what string, takeOver bool) (*console, error) {
	switch {
	case g.Power == compute.PowerOff:
		return nil, croft.Errorf(croft.Conflict, "instance %s does not run, so its %s takes no input", g.Machine.ID,
			what)
	case *at != nil && takeOver:
		(*at).end()
	case *at != nil:
		return nil, croft.Errorf(croft.Conflict, "the %s of instance %s is in use by another client", what,
			g.Machine.ID)
	}
	c := &console{h: h, guest: g, at: at}
	c.changed.L = &c.mu
	*at = c
	return c, nil
}

// console is one attachment.
type console struct {
	h      *Hypervisor
	guest  *guest
	at     **console // its place in the guest
	screen bool      // it ignores its client

	line []byte // typed since the last end of a line; the hypervisor's mutex guards it

	mu      sync.Mutex
	changed sync.Cond
	unread  bytes.Buffer
	ended   bool // the guest is off, or the console is closed
}

// maxLine bounds a typed line in bytes; the rest of a longer one is ignored.
const maxLine = 1 << 10

// Read blocks until there is data; io.EOF once the guest is off.
func (c *console) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.unread.Len() == 0 && !c.ended {
		c.changed.Wait()
	}
	return c.unread.Read(p)
}

func (c *console) Write(p []byte) (int, error) {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	if !c.screen {
		if err := c.guest.print("%s", p); err != nil {
			return 0, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, io.ErrClosedPipe
	}
	if c.screen {
		return len(p), nil
	}
	c.changed.Signal()
	c.unread.Write(bytes.ReplaceAll(p, []byte{'\r'}, []byte("\r\n"))) // a bytes.Buffer never fails
	for _, b := range p {
		if b != '\r' && b != '\n' {
			if len(c.line) < maxLine {
				c.line = append(c.line, b)
			}
			continue
		}
		said := c.obey(string(c.line))
		c.line = c.line[:0]
		c.unread.WriteString(said)
		if err := c.guest.print("%s", said); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// obey carries out a typed line, and returns what the guest says. The caller holds c.h.mu.
func (c *console) obey(line string) string {
	data, is := strings.CutPrefix(line, "write ")
	if !is || data == "" {
		return ""
	}
	disks, err := c.guest.write(data)
	if err != nil {
		return err.Error() + "\r\n"
	}
	said := "written to"
	for _, disk := range disks {
		said += " " + cmp.Or(string(disk), "disk")
	}
	return said + "\r\n"
}

// Close detaches. It is idempotent.
func (c *console) Close() error {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	if *c.at == c {
		*c.at = nil
	}
	c.end()
	return nil
}

func (c *console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.changed.Broadcast()
}

// hangUp ends the attachments when the guest goes off. The caller holds h.mu.
func (g *guest) hangUp() {
	for _, at := range []**console{&g.console, &g.screen} {
		if *at != nil {
			(*at).end()
			*at = nil
		}
	}
}
