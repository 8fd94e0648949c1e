package libvirt

import (
	"context"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/libvirt/domainxml"
)

// agentTimeout is how long a guest's agent may take for one command, in seconds: freezing waits for pending writes.
const agentTimeout = 10

// keyOf returns the key of a disk in a domain's layers; false: it is neither the root disk nor a volume.
func keyOf(disk libvirtxml.DomainDisk) (croft.VolumeID, bool) {
	if v, is := domainxml.VolumeOf(disk); is {
		return v, true
	}
	return compute.RootDisk, domainxml.IsRoot(disk)
}

// fileOf returns the file of a disk's source; empty: it has none.
func fileOf(source *libvirtxml.DomainDiskSource) string {
	if source == nil || source.File == nil {
		return ""
	}
	return source.File.File
}

// Tops implements compute.Hypervisor.
func (d *Driver) Tops(ctx context.Context, id croft.InstanceID) (map[croft.VolumeID]string, error) {
	return call(ctx, d.conn, about("look at the disks of", id), func(c *libvirt.Connect) (
		all map[croft.VolumeID]string, err error) {
		all = map[croft.VolumeID]string{}
		return all, with(c, id, func(dom *libvirt.Domain, _ mark) error {
			x, err := definitionOf(dom, 0)
			for _, disk := range x.Devices.Disks {
				if key, is := keyOf(disk); is {
					all[key] = fileOf(disk.Source)
				}
			}
			return err
		})
	})
}

// running calls f with a domain that is not off, and its machine. Conflict.
func running(c *libvirt.Connect, id croft.InstanceID, f func(*libvirt.Domain, libvirtxml.Domain) error) error {
	return with(c, id, func(dom *libvirt.Domain, _ mark) error {
		active, err := dom.IsActive()
		if err != nil {
			return err
		}
		if !active {
			return croft.Errorf(croft.Conflict, "the guest is off")
		}
		x, err := definitionOf(dom, 0)
		if err != nil {
			return err
		}
		return f(dom, x)
	})
}

// PutOver implements compute.Hypervisor. libvirt thaws the guest in the same call that freezes it.
func (d *Driver) PutOver(ctx context.Context, id croft.InstanceID, tops map[croft.VolumeID]string,
	quiesce bool) error {
	return do(ctx, d.conn, about("take a snapshot of", id), func(c *libvirt.Connect) error {
		return running(c, id, func(dom *libvirt.Domain, x libvirtxml.Domain) error {
			snapshot := libvirtxml.DomainSnapshot{Disks: &libvirtxml.DomainSnapshotDisks{}}
			missing, changes := len(tops), false
			for _, disk := range x.Devices.Disks {
				one := libvirtxml.DomainSnapshotDisk{Name: disk.Target.Dev, Snapshot: "no"}
				key, is := keyOf(disk)
				if top := tops[key]; is && top != "" {
					missing--
					if fileOf(disk.Source) != top {
						one.Snapshot, changes = "external", true
						one.Driver = &libvirtxml.DomainDiskDriver{Type: "qcow2"}
						one.Source = &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: top}}
					}
				}
				snapshot.Disks.Disks = append(snapshot.Disks.Disks, one)
			}
			if missing > 0 {
				return errMissing
			}
			if !changes {
				return nil
			}
			text, err := snapshot.Marshal()
			if err != nil {
				return err
			}
			flags := libvirt.DOMAIN_SNAPSHOT_CREATE_DISK_ONLY | libvirt.DOMAIN_SNAPSHOT_CREATE_ATOMIC |
				libvirt.DOMAIN_SNAPSHOT_CREATE_NO_METADATA | libvirt.DOMAIN_SNAPSHOT_CREATE_REUSE_EXT
			if quiesce {
				if err := reachAgent(dom, x); err != nil {
					return err
				}
				flags |= libvirt.DOMAIN_SNAPSHOT_CREATE_QUIESCE
			}
			made, err := dom.CreateSnapshotXML(text, flags)
			if err != nil && quiesce {
				return croft.Errorf(croft.Unavailable, "%w", words(err))
			}
			if err != nil {
				return err
			}
			return made.Free()
		})
	})
}

var errMissing = croft.Errorf(croft.Conflict, "it does not have all of the disks")

// reachAgent limits how long libvirt waits for the guest's agent. ErrNoAgent.
func reachAgent(dom *libvirt.Domain, x libvirtxml.Domain) error {
	for _, channel := range x.Devices.Channels {
		if t := channel.Target; t != nil && t.VirtIO != nil && t.VirtIO.Name == domainxml.AgentChannel &&
			t.VirtIO.State == "connected" {
			return dom.AgentSetResponseTimeout(agentTimeout, 0)
		}
	}
	return compute.ErrNoAgent
}

// Thaw implements compute.Hypervisor.
func (d *Driver) Thaw(ctx context.Context, id croft.InstanceID) error {
	return do(ctx, d.conn, about("thaw the file systems of", id), func(c *libvirt.Connect) error {
		err := running(c, id, func(dom *libvirt.Domain, x libvirtxml.Domain) error {
			if err := reachAgent(dom, x); err != nil {
				return err
			}
			return dom.FSThaw(nil, 0)
		})
		if croft.KindOf(err) == croft.Conflict {
			return nil // it is off
		}
		return err
	})
}

// has reports whether a disk uses a layer.
func has(disk libvirtxml.DomainDisk, layer string) bool {
	if fileOf(disk.Source) == layer {
		return true
	}
	for b := disk.BackingStore; b != nil; b = b.BackingStore {
		if fileOf(b.Source) == layer {
			return true
		}
	}
	return false
}

// Merge implements compute.Hypervisor. The job of libvirt is its only state: it starts one if it is missing, and lets
// the guest go on with the layer below once a job on the topmost layer has caught up with the guest's writes.
func (d *Driver) Merge(ctx context.Context, id croft.InstanceID, key croft.VolumeID, layer, below string) (
	done bool, err error) {
	err = do(ctx, d.conn, about("merge the snapshot of", id), func(c *libvirt.Connect) error {
		return running(c, id, func(dom *libvirt.Domain, x libvirtxml.Domain) error {
			for _, disk := range x.Devices.Disks {
				if found, is := keyOf(disk); !is || found != key {
					continue
				}
				done, err = d.merge(dom, disk, layer, below)
				return err
			}
			return errMissing
		})
	})
	return done && err == nil, err
}

func (d *Driver) merge(dom *libvirt.Domain, disk libvirtxml.DomainDisk, layer, below string) (done bool, err error) {
	target := disk.Target.Dev
	if !has(disk, layer) {
		d.merging.Delete(layer)
		return true, nil
	}
	job, err := dom.GetBlockJobInfo(target, 0)
	switch {
	case err != nil:
		return false, err
	case job.Type == 0: // none
		// The job may have ended between the reads of the definition and of the job.
		if merged, err := merged(dom, target, layer); merged || err != nil {
			d.merging.Delete(layer)
			return merged, err
		}
		if _, was := d.merging.LoadAndDelete(layer); was {
			return false, croft.Errorf(croft.Unavailable, "QEMU ended the commit with an error, as when the disk of the host "+
				"is full")
		}
		d.merging.Store(layer, true)
		flags := libvirt.DomainBlockCommitFlags(0)
		if fileOf(disk.Source) == layer {
			flags = libvirt.DOMAIN_BLOCK_COMMIT_ACTIVE
		}
		return false, dom.BlockCommit(target, below, layer, 0, flags)
	case disk.Mirror == nil || disk.Mirror.Ready != "yes":
		return false, nil
	}
	return true, dom.BlockJobAbort(target, libvirt.DOMAIN_BLOCK_JOB_ABORT_PIVOT)
}

// merged reports whether a running disk has lost a layer.
func merged(dom *libvirt.Domain, target, layer string) (bool, error) {
	x, err := definitionOf(dom, 0)
	if err != nil {
		return false, err
	}
	for _, disk := range x.Devices.Disks {
		if disk.Target != nil && disk.Target.Dev == target {
			return !has(disk, layer), nil
		}
	}
	return false, errMissing
}

// Redefine implements compute.Hypervisor. One definition replaces the other, so that all disks change at one moment.
func (d *Driver) Redefine(ctx context.Context, id croft.InstanceID, disks compute.Disks) error {
	virt, _ := d.VirtType()
	return do(ctx, d.conn, about("change the disks of", id), func(c *libvirt.Connect) error {
		readers, err := d.readers.of(c, virt)
		if err != nil {
			return err
		}
		return with(c, id, func(dom *libvirt.Domain, _ mark) error {
			x, err := definitionOf(dom, libvirt.DOMAIN_XML_INACTIVE|libvirt.DOMAIN_XML_SECURE)
			if err != nil {
				return err
			}
			missing := len(disks)
			for i := range x.Devices.Disks {
				key, is := keyOf(x.Devices.Disks[i])
				if layers := disks[key]; is && len(layers) > 0 {
					missing--
					domainxml.Definition{Readers: readers}.SetLayers(&x.Devices.Disks[i], layers)
				}
			}
			if missing > 0 {
				return errMissing
			}
			text, err := x.Marshal()
			if err != nil {
				return fmt.Errorf("write its definition: %w", err)
			}
			defined, err := c.DomainDefineXMLFlags(text, libvirt.DOMAIN_DEFINE_VALIDATE)
			if err != nil {
				return err
			}
			return defined.Free()
		})
	})
}
