package sim

import (
	"bytes"
	"context"
	"io"
	"sync"

	"croft"
	"croft/compute"
)

var _ compute.Consoles = (*Hypervisor)(nil)

// OpenConsole attaches to the console of a simulated guest. Like a terminal without a program, it echoes
// input and logs it.
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

	mu      sync.Mutex
	changed sync.Cond
	unread  bytes.Buffer
	ended   bool // the guest is off, or the console is closed
}

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
	err := c.guest.print("%s", p)
	c.h.mu.Unlock()
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, io.ErrClosedPipe
	}
	c.changed.Signal()
	c.unread.Write(bytes.ReplaceAll(p, []byte{'\r'}, []byte("\r\n"))) // a bytes.Buffer never fails
	return len(p), nil
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
