package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"libvirt.org/go/libvirt"

	"croft"
	"croft/compute"
)

// pressAgain is the interval of repeated power button presses: a booting guest may miss one.
const pressAgain = 5 * time.Second

// Start boots a defined domain, or resumes a paused one. It starts the domain's networks if they are inactive.
func (d *Driver) Start(ctx context.Context, id croft.InstanceID) error {
	return do(ctx, d.conn, about("start", id), func(c *libvirt.Connect) error {
		return with(c, id, func(dom *libvirt.Domain, k mark) error {
			if err := d.start(c, id, dom, &k); err != nil {
				return err
			}
			// After the start: if this write fails, a guest that powers off is started once more.
			if err := k.noteStarted(dom, k.Generation); err != nil {
				d.log.Warn("that a guest was started could not be noted", "instance", id, "op", "start", "err", err)
			}
			return nil
		})
	})
}

func (d *Driver) start(c *libvirt.Connect, id croft.InstanceID, dom *libvirt.Domain, k *mark) error {
	state, _, err := dom.GetState()
	if err != nil {
		return err
	}
	switch state {
	case libvirt.DOMAIN_PAUSED:
		return dom.Resume()
	case libvirt.DOMAIN_PMSUSPENDED:
		return dom.PMWakeup(0)
	case libvirt.DOMAIN_CRASHED:
		if err := cut(dom); err != nil {
			return err
		}
	case libvirt.DOMAIN_SHUTOFF:
	default:
		return nil
	}
	if err := d.checkTPM(id, *k); err != nil {
		return err
	}
	nics, err := d.network.connect(c, k.NICs)
	if err != nil {
		return err
	}
	if !slices.Equal(nics, k.NICs) {
		k.NICs = nics
		if err := k.write(dom, libvirt.DOMAIN_AFFECT_CONFIG); err != nil {
			return fmt.Errorf("note its addresses: %w", err)
		}
	}
	if err := d.network.filter.adopt(c, dom, *k); err != nil {
		return err
	}
	if err := d.network.filter.update(c, k.Partition, true); err != nil {
		return err
	}
	if err := releaseLeases(c, k.NICs); err != nil {
		// A lease of an earlier boot only makes the guest seem reachable too early.
		d.log.Warn("an old DHCP lease stays", "instance", id, "op", "start", "err", err)
	}
	if d.config.AllowSpoofing { // no filter delays the guest's DHCP requests
		if err := d.network.reserve(c, *k); err != nil {
			return err
		}
		return boot(dom)
	}
	if err := boot(dom); err != nil {
		return err
	}
	if err := d.network.reserve(c, *k); err != nil {
		return errors.Join(err, cut(dom))
	}
	return nil
}

// boot starts a domain; another process may start it at the same time.
func boot(dom *libvirt.Domain) error {
	err := dom.Create()
	if !is(err, libvirt.ERR_OPERATION_INVALID) {
		return err
	}
	if active, aerr := dom.IsActive(); aerr == nil && active {
		return nil
	}
	return err
}

// Mark records the mark on the domain, running or not, and updates the packet filter if the project or its open ports
// changed.
func (d *Driver) Mark(ctx context.Context, id croft.InstanceID, m compute.Ordered) error {
	return do(ctx, d.conn, about("mark", id), func(c *libvirt.Connect) error {
		return with(c, id, func(dom *libvirt.Domain, k mark) error {
			active, err := dom.IsActive()
			if err != nil {
				return err
			}
			before := k
			k.set(m)
			if active {
				k.Started = m.Generation
			}
			if before.get().Equal(k.get()) && before.Started == k.Started {
				return nil
			}
			impact := libvirt.DOMAIN_AFFECT_CONFIG
			if active {
				impact |= libvirt.DOMAIN_AFFECT_LIVE
			}
			if err := k.write(dom, impact); err != nil {
				return err
			}
			if before.Name != k.Name {
				d.network.wake() // it gets its name in the DNS
			}
			if before.Project == k.Project && before.Open == k.Open {
				return nil
			}
			return d.network.filter.update(c, k.Partition, false)
		})
	})
}

// Stop presses the power button and waits for the guest. It cuts the power if StopGrace or ctx ends first.
func (d *Driver) Stop(ctx context.Context, id croft.InstanceID) error {
	box, leave := d.changed.Join()
	defer leave()
	grace, cancel := context.WithTimeout(ctx, d.config.StopGrace)
	defer cancel()
	off, err := d.press(ctx, id)
	if err != nil || off {
		return err
	}
	again := time.NewTicker(pressAgain)
	defer again.Stop()
	for {
		select {
		case <-box.Ready():
			box.Take()
			one, err := d.Get(grace, id)
			if grace.Err() == nil && (err != nil || one.Power == compute.PowerOff) {
				return err
			}
		case <-again.C:
			off, err := d.press(grace, id)
			if grace.Err() == nil && (err != nil || off) {
				return err
			}
		case <-grace.Done():
			err := d.CutPower(context.WithoutCancel(ctx), id)
			if errors.Is(err, croft.NotFound) {
				return nil
			}
			return err
		}
	}
}

// press asks the guest to power off; off: there is nothing to wait for.
func (d *Driver) press(ctx context.Context, id croft.InstanceID) (off bool, err error) {
	return call(ctx, d.conn, about("stop", id), func(c *libvirt.Connect) (off bool, err error) {
		err = with(c, id, func(dom *libvirt.Domain, k mark) error {
			// Before the press, so that a guest that powers off because of it is not taken for one that halted itself.
			if err := k.noteStarted(dom, 0); err != nil {
				return err
			}
			state, reason, err := dom.GetState()
			if err != nil {
				return err
			}
			switch p, _ := power(state, reason); p {
			case compute.PowerOff:
				off = true
				return nil
			case compute.PowerPaused: // a paused guest does not see the button
				off = true
				return cut(dom)
			}
			err = dom.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
			if is(err, libvirt.ERR_OPERATION_INVALID) {
				return nil // it went off between the two calls; the next read shows it
			}
			return err
		})
		return off, err
	})
}

// CutPower ends the guest without asking it.
func (d *Driver) CutPower(ctx context.Context, id croft.InstanceID) error {
	return do(ctx, d.conn, about("cut the power of", id), func(c *libvirt.Connect) error {
		return with(c, id, func(dom *libvirt.Domain, _ mark) error { return cut(dom) })
	})
}

// cut ends a domain's process; no process is success.
func cut(dom *libvirt.Domain) error {
	err := dom.Destroy()
	if is(err, libvirt.ERR_OPERATION_INVALID, libvirt.ERR_NO_DOMAIN) {
		if active, aerr := dom.IsActive(); is(aerr, libvirt.ERR_NO_DOMAIN) || aerr == nil && !active {
			return nil
		}
	}
	return err
}

// Remove cuts the power, releases the addresses and removes the definition. A domain that is not croft's is
// treated as absent.
func (d *Driver) Remove(ctx context.Context, id croft.InstanceID) error {
	return do(ctx, d.conn, about("remove", id), func(c *libvirt.Connect) error {
		var partition croft.PartitionID
		err := with(c, id, func(dom *libvirt.Domain, k mark) error {
			partition = k.Partition
			if err := cut(dom); err != nil {
				return err
			}
			if err := d.network.disconnect(c, id, k.NICs); err != nil {
				return err
			}
			return undefine(dom)
		})
		d.owners.invalidate()
		if errors.Is(err, croft.NotFound) {
			return d.network.forget(c, id)
		}
		if err == nil && partition != "" {
			if err := d.network.filter.update(c, partition, false); err != nil {
				// The stale entry affects only the port of a guest that no longer exists.
				d.log.Warn("the packet filter has rules for a guest that no longer "+
					"exists", "instance", id, "op", "remove", "err", err)
			}
		}
		return err
	})
}

// undefine removes the definition and everything libvirt stores with it.
func undefine(dom *libvirt.Domain) error {
	err := dom.UndefineFlags(libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA |
		libvirt.DOMAIN_UNDEFINE_CHECKPOINTS_METADATA | libvirt.DOMAIN_UNDEFINE_NVRAM)
	if is(err, libvirt.ERR_NO_DOMAIN) {
		return nil
	}
	if is(err, libvirt.ERR_OPERATION_INVALID) { // it was transient and ended with its process
		if persistent, perr := dom.IsPersistent(); is(perr, libvirt.ERR_NO_DOMAIN) || perr == nil && !persistent {
			return nil
		}
	}
	return err
}
