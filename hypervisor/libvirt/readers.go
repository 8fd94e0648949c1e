package libvirt

import (
	"fmt"
	"os"
	"strings"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// readersOf is what a connection said about the user that its QEMU runs as.
type readersOf struct {
	conn *libvirt.Connect
	virt string
	text string
}

// readers returns the owner and group of files that many guests read and none may
// write, as libvirt writes them in a label: this process's user, and the group of the
// QEMU that libvirt runs. It is empty where libvirt runs QEMU as its own user.
func (d *Driver) readers(c *libvirt.Connect, virt string) (string, error) {
	d.mu.Lock()
	known := d.readersKnown
	d.mu.Unlock()
	if known.conn == c && known.virt == virt {
		return known.text, nil
	}
	text, err := c.GetCapabilities()
	if err != nil {
		return "", err
	}
	known = readersOf{conn: c, virt: virt}
	if known.text, err = parseReaders(text, virt, os.Getuid()); err != nil {
		return "", err
	}
	d.mu.Lock()
	d.readersKnown = known
	d.mu.Unlock()
	return known.text, nil
}

func parseReaders(capabilities, virt string, owner int) (string, error) {
	var caps libvirtxml.Caps
	if err := caps.Unmarshal(capabilities); err != nil {
		return "", fmt.Errorf("read the capabilities of libvirt: %w", err)
	}
	for _, model := range caps.Host.SecModel {
		for _, label := range model.Labels {
			_, group, ok := strings.Cut(label.Value, ":")
			if model.Name == "dac" && label.Type == virt && ok {
				return fmt.Sprintf("+%d:%s", owner, group), nil
			}
		}
	}
	return "", nil
}
