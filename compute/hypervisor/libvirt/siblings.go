package libvirt

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
)

// NeedsOthersServer returns an instance of the partition on the libvirt network, or else on the bridge, that reads its
// metadata from the server of another agent on this machine: its disk exists, but outside dir, the directory of the
// calling agent's instances. It returns "" if it is missing, or if an instance below dir reads its metadata from a
// server too, so that this agent had the server before. Unavailable: libvirt does not answer.
func (d *Driver) NeedsOthersServer(ctx context.Context, p croft.PartitionID, network, bridge, dir string) (
	croft.InstanceID, error) {
	return call(ctx, d.conn, task{verb: "find instances that need a metadata server"},
		func(c *libvirt.Connect) (croft.InstanceID, error) {
			list, err := d.domains.all(c)
			if err != nil {
				return "", err
			}
			var others croft.InstanceID
			for _, one := range list {
				on := func(n markNIC) bool {
					if network != "" {
						return n.Network == network
					}
					return n.Network == "" && n.Bridge == bridge
				}
				if one.Partition != p || !slices.ContainsFunc(one.nics, on) {
					continue
				}
				disk, needs, err := metadataOf(c, one.ID)
				switch {
				case err != nil:
					return "", err
				case needs && isBelow(dir, disk):
					return "", nil
				case needs && exists(disk):
					others = one.ID
				}
			}
			return others, nil
		})
}

// metadataOf returns the file of the instance's root disk, and whether it reads its metadata from the server.
func metadataOf(c *libvirt.Connect, id croft.InstanceID) (disk string, needs bool, err error) {
	err = with(c, id, func(dom *libvirt.Domain, _ mark) error {
		text, err := dom.GetXMLDesc(libvirt.DOMAIN_XML_INACTIVE)
		if err == nil {
			disk, needs, err = parseMetadata(text)
		}
		return err
	})
	if errors.Is(err, croft.NotFound) {
		return "", false, nil // removed since the listing
	}
	return disk, needs, err
}

// parseMetadata is metadataOf for the XML of the instance's domain: only a metadata disk is a CD.
func parseMetadata(text string) (disk string, needs bool, err error) {
	var x libvirtxml.Domain
	if err := x.Unmarshal(text); err != nil {
		return "", false, err
	}
	if x.Devices == nil {
		return "", false, nil
	}
	needs = true
	for _, one := range x.Devices.Disks {
		switch {
		case one.Device == "cdrom":
			needs = false
		case disk == "" && one.Source != nil && one.Source.File != nil:
			disk = one.Source.File.File
		}
	}
	return disk, needs, nil
}

func isBelow(dir, file string) bool {
	return strings.HasPrefix(resolved(file), resolved(dir)+string(filepath.Separator))
}

// resolved returns the absolute path without symbolic links, as far as it exists.
func resolved(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// exists reports whether the file may exist: an unreadable one counts.
func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
