package sim

import (
	"bytes"
	"cmp"
	"context"
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
	switch {
	case err != nil:
		return nil, err
	case g.Power == compute.PowerOff:
		return nil, croft.Errorf(croft.Conflict, "instance %s does not run, so its console takes no input", id)
	case g.console != nil && takeOver:
		g.hangUp()
	case g.console != nil:
		return nil, croft.Errorf(croft.Conflict, "the console of instance %s is in use by another client", id)
	}
	c := &console{h: h, guest: g}
	c.changed.L = &c.mu
	g.console = c
	return c, nil
}

// console is one attachment.
type console struct {
	h     *Hypervisor
	guest *guest

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
	if err := c.guest.print("%s", p); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, io.ErrClosedPipe
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
	if c.guest.console == c {
		c.guest.console = nil
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

// hangUp ends the attachment when the guest goes off or another client takes over. The caller holds h.mu.
func (g *guest) hangUp() {
	if g.console != nil {
		g.console.end()
		g.console = nil
	}
}
