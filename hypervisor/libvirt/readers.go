package libvirt

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// readers caches which user a connection's QEMU runs as.
type readers struct{ known atomic.Pointer[readersOf] }

type readersOf struct {
	conn *libvirt.Connect
	virt string
	text string
}

// of returns the owner and group, as a libvirt label, of files that many guests read and none may write: this
// process's user and the group of libvirt's QEMU. Empty: libvirt runs QEMU as its own user.
func (r *readers) of(c *libvirt.Connect, virt string) (string, error) {
	if k := r.known.Load(); k != nil && k.conn == c && k.virt == virt {
		return k.text, nil
	}
	capabilities, err := c.GetCapabilities()
	if err != nil {
		return "", err
	}
	text, err := parseReaders(capabilities, virt, os.Getuid())
	if err == nil {
		r.known.Store(&readersOf{conn: c, virt: virt, text: text})
	}
	return text, err
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
