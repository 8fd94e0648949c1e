package libvirt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"strings"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/libvirt/domainxml"
)

// definition is the input for a domain's XML in addition to the machine and its mark.
type definition domainxml.Definition

// define returns the XML of a machine and the digest of all of it, which the XML's mark contains too.
func (f definition) define(m compute.Machine, k mark) (text, digest string, err error) {
	text, err = f.marshal(m, k)
	if err != nil {
		return "", "", err
	}
	sum := sha256.Sum256([]byte(text))
	k.Digest = hex.EncodeToString(sum[:8])
	text, err = f.marshal(m, k)
	return text, k.Digest, err
}

func (f definition) marshal(m compute.Machine, k mark) (string, error) {
	element, err := xml.Marshal(k)
	if err != nil {
		return "", fmt.Errorf("mark of instance %s: %w", m.ID, err)
	}
	f.Name, f.Metadata = prefix+string(m.ID), string(element)
	return domainxml.Definition(f).Marshal(m)
}

// check rejects machines that libvirt would reject with a worse message, or misinterpret.
func check(m compute.Machine) error {
	if id, err := croft.ParseInstanceID(string(m.ID)); err != nil || id != m.ID {
		return croft.Errorf(croft.Invalid, "define instance: %q is not a UUID", m.ID)
	}
	switch {
	case m.Partition == "":
		return croft.Errorf(croft.Invalid, "define instance %s: it belongs to no partition", m.ID)
	case m.VCPUs < 1 || m.MemoryMiB < 1:
		return croft.Errorf(croft.Invalid, "define instance %s: %d VCPU and %d MiB of memory are not a machine", m.ID,
			m.VCPUs, m.MemoryMiB)
	case m.Kind.Firmware.IsUEFI() && !strings.HasPrefix(m.NVRAM, "/"):
		return croft.Errorf(croft.Invalid, "define instance %s: the file %q of its UEFI must be an absolute path", m.ID,
			m.NVRAM)
	case m.CD != "" && (m.Kind.ISO == "" || !strings.HasPrefix(m.CD, "/")):
		return croft.Errorf(croft.Invalid, "define instance %s: its CD %q must be an absolute path, for a CD drive", m.ID,
			m.CD)
	case len(m.Disk) == 0:
		return croft.Errorf(croft.Invalid, "define instance %s: it has no disk", m.ID)
	}
	for _, l := range m.Disk {
		if !strings.HasPrefix(l.Path, "/") || l.Format != "qcow2" && l.Format != "raw" {
			return croft.Errorf(croft.Invalid,
				"define instance %s: disk %q of format %q must be an absolute path of qcow2 or raw", m.ID, l.Path,
				l.Format)
		}
	}
	for _, n := range m.NICs {
		if n.MAC == "" || n.Network == "" && n.Bridge == "" {
			return croft.Errorf(croft.Invalid,
				"define instance %s: a network interface needs a MAC and a network or a bridge", m.ID)
		}
	}
	return nil
}
