package libvirt

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/libvirt/domainxml"
)

// Volumes implements compute.Hypervisor.
func (d *Driver) Volumes(ctx context.Context, id croft.InstanceID) ([]croft.VolumeID, error) {
	look := about("look at the volumes of", id)
	return call(ctx, d.conn, look, func(c *libvirt.Connect) (all []croft.VolumeID, err error) {
		err = with(c, id, func(dom *libvirt.Domain, _ mark) error {
			defined, running, err := disksOf(dom)
			all = slices.Sorted(maps.Keys(defined))
			for v := range running {
				if _, has := defined[v]; !has {
					all = append(all, v)
				}
			}
			return err
		})
		slices.Sort(all)
		return all, err
	})
}

// disks are volumes of a domain, by ID.
type disks map[croft.VolumeID]libvirtxml.DomainDisk

// disksOf returns the volumes in a domain's definition, and in its running machine.
func disksOf(dom *libvirt.Domain) (defined, running disks, err error) {
	if defined, err = disksIn(dom, libvirt.DOMAIN_XML_INACTIVE); err != nil {
		return nil, nil, err
	}
	active, err := dom.IsActive()
	if err != nil || !active {
		return defined, nil, err
	}
	running, err = disksIn(dom, 0)
	return defined, running, err
}

// definitionOf reads a domain's definition, or its running machine.
func definitionOf(dom *libvirt.Domain, flags libvirt.DomainXMLFlags) (x libvirtxml.Domain, err error) {
	text, err := dom.GetXMLDesc(flags)
	if err == nil {
		err = x.Unmarshal(text)
	}
	if err != nil {
		return x, fmt.Errorf("read its definition: %w", err)
	}
	if x.Devices == nil {
		x.Devices = &libvirtxml.DomainDeviceList{}
	}
	return x, nil
}

func disksIn(dom *libvirt.Domain, flags libvirt.DomainXMLFlags) (disks, error) {
	x, err := definitionOf(dom, flags)
	if err != nil {
		return nil, err
	}
	all := disks{}
	for _, disk := range x.Devices.Disks {
		if v, is := domainxml.VolumeOf(disk); is {
			all[v] = disk
		}
	}
	return all, nil
}

// Attach implements compute.Hypervisor. The definition comes first, so that a guest that is started meanwhile has the
// volume.
func (d *Driver) Attach(ctx context.Context, id croft.InstanceID, v compute.Volume) error {
	return do(ctx, d.conn, about("attach a volume to", id), func(c *libvirt.Connect) error {
		return with(c, id, func(dom *libvirt.Domain, _ mark) error {
			defined, running, err := disksOf(dom)
			if err != nil {
				return err
			}
			disk := domainxml.Definition{}.VolumeDisk(v, domainxml.FreeTarget(defined, running))
			text, err := disk.Marshal()
			if err != nil {
				return err
			}
			if _, has := defined[v.ID]; !has {
				if err := dom.AttachDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_CONFIG); err != nil {
					return err
				}
			}
			if _, has := running[v.ID]; has || running == nil {
				return nil
			}
			return dom.AttachDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
		})
	})
}

const (
	// releaseTime is how long Detach waits for a guest to release a volume.
	releaseTime = 5 * time.Second
	releasePoll = 100 * time.Millisecond
)

// Detach implements compute.Hypervisor. The definition comes first, so that a guest that never answers is without the
// volume from its next start on.
func (d *Driver) Detach(ctx context.Context, id croft.InstanceID, v croft.VolumeID) error {
	return do(ctx, d.conn, about("detach a volume from", id), func(c *libvirt.Connect) error {
		return with(c, id, func(dom *libvirt.Domain, _ mark) error {
			defined, running, err := disksOf(dom)
			if err != nil {
				return err
			}
			alias := domainxml.VolumeAlias(v)
			if _, has := defined[v]; has {
				if err := dom.DetachDeviceAlias(alias, libvirt.DOMAIN_DEVICE_MODIFY_CONFIG); err != nil {
					return err
				}
			}
			if _, has := running[v]; !has {
				return nil
			}
			asked := dom.DetachDeviceAlias(alias, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
			for end := time.Now().Add(releaseTime); ; time.Sleep(releasePoll) {
				_, running, err := disksOf(dom)
				if _, has := running[v]; !has || err != nil {
					return err
				}
				if asked != nil && !is(asked, libvirt.ERR_DEVICE_MISSING) || time.Now().After(end) {
					break
				}
			}
			if asked != nil { // among others, an earlier request is still waiting for the guest
				return croft.Errorf(croft.Unavailable, "the guest has not released it: %w; %s", words(asked),
					compute.ReleaseRemedy)
			}
			return croft.Errorf(croft.Unavailable, "the guest has not released it: it may be booting, or not support "+
				"it; %s", compute.ReleaseRemedy)
		})
	})
}

// Resize implements compute.Hypervisor.
func (d *Driver) Resize(ctx context.Context, id croft.InstanceID, vcpus, memory int64) error {
	return do(ctx, d.conn, about("resize", id), func(c *libvirt.Connect) error {
		return with(c, id, func(dom *libvirt.Domain, k mark) error {
			locked := libvirt.DomainMemoryParameters{HardLimitSet: true, HardLimit: domainxml.LockedMiB(memory) << 10}
			if len(k.PCI) > 0 {
				if err := dom.SetMemoryParameters(&locked, libvirt.DOMAIN_AFFECT_CONFIG); err != nil {
					return err
				}
			}
			// The maximum comes first: it lowers the current value, which cannot exceed it.
			return cmp.Or(
				dom.SetVcpusFlags(uint(vcpus), libvirt.DOMAIN_VCPU_CONFIG|libvirt.DOMAIN_VCPU_MAXIMUM),
				dom.SetVcpusFlags(uint(vcpus), libvirt.DOMAIN_VCPU_CONFIG),
				dom.SetMemoryFlags(uint64(memory)<<10, libvirt.DOMAIN_MEM_CONFIG|libvirt.DOMAIN_MEM_MAXIMUM),
				dom.SetMemoryFlags(uint64(memory)<<10, libvirt.DOMAIN_MEM_CONFIG))
		})
	})
}

// Grow implements compute.Hypervisor.
func (d *Driver) Grow(ctx context.Context, id croft.InstanceID, v croft.VolumeID, sizeGB int64) (bool, error) {
	return call(ctx, d.conn, about("grow a volume of", id), func(c *libvirt.Connect) (grown bool, err error) {
		err = with(c, id, func(dom *libvirt.Domain, _ mark) error {
			target, err := targetOf(dom, v)
			if err != nil || target == "" {
				return err
			}
			grown = true
			size := uint64(sizeGB) << 30
			if now, err := dom.GetBlockInfo(target, 0); err != nil || now.Capacity >= size {
				return err
			}
			return dom.BlockResize(target, size, libvirt.DOMAIN_BLOCK_RESIZE_BYTES)
		})
		return grown && err == nil, err
	})
}

// targetOf returns the target of a volume, or of the root disk, of a running guest; empty: it is off, or has none.
func targetOf(dom *libvirt.Domain, v croft.VolumeID) (string, error) {
	active, err := dom.IsActive()
	if err != nil || !active {
		return "", err
	}
	x, err := definitionOf(dom, 0)
	for _, disk := range x.Devices.Disks {
		if key, is := keyOf(disk); is && key == v && disk.Target != nil {
			return disk.Target.Dev, nil
		}
	}
	return "", err
}
