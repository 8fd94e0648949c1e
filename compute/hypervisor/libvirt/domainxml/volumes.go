package domainxml

import (
	"strings"

	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/compute/machine"
)

// volumeAlias is the beginning of the alias of a volume; libvirt leaves aliases that begin with ua- to users.
const volumeAlias = "ua-volume-"

// VolumeAlias returns the alias by which a domain's device is known to be a volume.
func VolumeAlias(id croft.VolumeID) string { return volumeAlias + string(id) }

// VolumeOf returns the volume of a disk; false: the disk is not a volume.
func VolumeOf(disk libvirtxml.DomainDisk) (croft.VolumeID, bool) {
	if disk.Alias == nil {
		return "", false
	}
	id, is := strings.CutPrefix(disk.Alias.Name, volumeAlias)
	return croft.VolumeID(id), is
}

// firstVolume is the letter of the first volume's target; vdb is the seed.
const firstVolume = 'c'

// FreeTarget returns a target for a volume that none of these disks has.
func FreeTarget(all ...map[croft.VolumeID]libvirtxml.DomainDisk) string {
	taken := map[string]bool{}
	for _, disks := range all {
		for _, disk := range disks {
			if disk.Target != nil {
				taken[disk.Target.Dev] = true
			}
		}
	}
	letter := firstVolume
	for taken["vd"+string(letter)] {
		letter++
	}
	return "vd" + string(letter)
}

// VolumeDisk is a disk with a serial number by which the guest finds it, whatever its target is.
func (f Definition) VolumeDisk(v machine.Volume, target string) libvirtxml.DomainDisk {
	disk := libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Cache: "writeback", Discard: "unmap"},
		Target: &libvirtxml.DomainDiskTarget{Dev: target, Bus: "virtio"},
		Serial: v.Serial,
		Alias:  &libvirtxml.DomainAlias{Name: VolumeAlias(v.ID)},
	}
	f.SetLayers(&disk, append([]machine.Layer{{Path: v.Path, Format: "qcow2"}}, v.Below...))
	return disk
}
