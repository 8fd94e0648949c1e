package adopt

import (
	"context"
	"encoding/xml"
	"strconv"
	"strings"

	"croft"
	"croft/grid/machine"
	"croft/grid/unit"
)

// domain is the part of libvirt's domain XML that a job file can express, or that must be reported as not expressible.
type domain struct {
	Type   string `xml:"type,attr"`
	Name   string `xml:"name"`
	Memory struct {
		Unit  string `xml:"unit,attr"`
		Value int64  `xml:",chardata"`
	} `xml:"memory"`
	VCPU     int `xml:"vcpu"`
	Metadata struct {
		Text string `xml:",innerxml"`
	} `xml:"metadata"`
	Disks []struct {
		Device string `xml:"device,attr"`
		Source struct {
			File string `xml:"file,attr"`
		} `xml:"source"`
		Target struct {
			Dev string `xml:"dev,attr"`
		} `xml:"target"`
	} `xml:"devices>disk"`
	Interfaces []struct {
		Source struct {
			Network string `xml:"network,attr"`
			Bridge  string `xml:"bridge,attr"`
		} `xml:"source"`
	} `xml:"devices>interface"`
	HostDevices []struct{} `xml:"devices>hostdev"`
	Filesystems []struct{} `xml:"devices>filesystem"`
}

// separator ends each domain in the script's output.
const separator = "\n--croft-grid-adopt--\n"

// disks separates a domain's XML from the output of virsh domblkinfo for its disks.
const disks = "\n--croft-grid-adopt-disks--\n"

func domains(ctx context.Context, m machine.Machine) ([]Found, error) {
	out, err := ask(ctx, m, "virsh", `names=$(virsh --quiet --connect qemu:///system list --all --uuid) || return
for id in $names; do
	virsh --quiet --connect qemu:///system domstate "$id" || continue
	virsh --quiet --connect qemu:///system dumpxml --inactive "$id"
	printf '\n--croft-grid-adopt-disks--\n'
	virsh --quiet --connect qemu:///system domblkinfo "$id" --all 2> /dev/null
	printf '\n--croft-grid-adopt--\n'
done`)
	if err != nil {
		return nil, err
	}
	var list []Found
	for text := range strings.SplitSeq(out, separator) {
		state, definition, found := strings.Cut(strings.TrimLeft(text, "\n"), "\n")
		if !found || strings.TrimSpace(definition) == "" {
			continue
		}
		definition, sizes, _ := strings.Cut(definition, disks)
		var d domain
		if err := xml.Unmarshal([]byte(strings.TrimLeft(definition, "\n")), &d); err != nil {
			return nil, croft.Errorf(croft.Unavailable, "the definition of a domain: %w", err)
		}
		// Domains of a grid or of a croft cloud are managed by that grid or cloud.
		if strings.Contains(d.Metadata.Text, "https://croft/") {
			continue
		}
		f := d.found(capacities(sizes))
		f.Running = strings.TrimSpace(state) == "running"
		list = append(list, f)
	}
	return list, nil
}

// capacities parses the output of virsh domblkinfo --all: the capacity of each disk in bytes, by its target name in the
// guest.
func capacities(text string) map[string]int64 {
	all := map[string]int64{}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 {
			if n, err := strconv.ParseInt(words[1], 10, 64); err == nil {
				all[words[0]] = n
			}
		}
	}
	return all
}

// unknownDisk is the disk size in bytes that a job gets if libvirt does not report one.
const unknownDisk = 10 << 30

// bytesOf maps libvirt's units of memory to bytes.
var bytesOf = map[string]int64{"": 1 << 10, "KiB": 1 << 10, "k": 1 << 10, "MiB": 1 << 20, "M": 1 << 20, "GiB": 1 << 30,
	"G": 1 << 30, "b": 1, "bytes": 1}

func (d *domain) found(sizes map[string]int64) Found {
	f := Found{Runtime: "vm", Name: d.Name}
	u := &f.Unit
	u.Runtime = "vm"
	u.VM = &unit.VM{VCPUs: max(1, d.VCPU), Memory: d.Memory.Value * max(1, bytesOf[d.Memory.Unit]), VirtType: "kvm",
		Network: "none"}
	if d.Type == "qemu" {
		u.VM.VirtType = "qemu"
	}
	size := int64(0)
	for _, disk := range d.Disks {
		switch {
		case disk.Device == "cdrom" || disk.Device == "floppy":
			f.not("the %s drive", disk.Device)
		case u.VM.Image == "" && disk.Source.File != "":
			u.VM.Image, size = disk.Source.File, sizes[disk.Target.Dev]
			f.not("the disk %s: a virtual machine of a job gets a new disk above its image, so make this disk an "+
				"image first",
				disk.Source.File)
		default:
			f.not("a further disk, or one that is no file: %s", disk.Source.File)
		}
	}
	if u.VM.Disk = size; size == 0 {
		u.VM.Disk = unknownDisk
		f.not("the size of its disk, which libvirt does not know")
	}
	if u.VM.Image == "" {
		u.VM.Image = images + "/image"
		f.not("an image: it has no disk in a file")
	}
	for i, n := range d.Interfaces {
		name := n.Source.Network
		if n.Source.Bridge != "" && name == "" {
			name = "bridge:" + n.Source.Bridge
		}
		if i > 0 || name == "" {
			f.not("a further network interface, or one of another kind")
			continue
		}
		u.VM.Network = name
	}
	if len(d.HostDevices) > 0 {
		f.not("devices of the node")
	}
	if len(d.Filesystems) > 0 {
		f.not("directories of the node")
	}
	f.not("its MAC address, UUID and firmware")
	return f
}
