package libvirt

import (
	"context"
	"time"

	"libvirt.org/go/libvirt"

	"croft/compute"
)

// usageStats selects the statistics for Usages.
const usageStats = libvirt.DOMAIN_STATS_CPU_TOTAL | libvirt.DOMAIN_STATS_BALLOON |
	libvirt.DOMAIN_STATS_INTERFACE | libvirt.DOMAIN_STATS_BLOCK

// Usages implements compute.Meters, in one call for all guests. The call does not wait for the monitors of guests, so
// that busy guests lack the values that come from it.
func (d *Driver) Usages(ctx context.Context) ([]compute.Usage, error) {
	return call(ctx, d.conn, task{verb: "read what the guests use"}, func(c *libvirt.Connect) ([]compute.Usage, error) {
		all,
			err := c.GetAllDomainStats(nil, usageStats,
			libvirt.CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE|libvirt.CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT)
		if err != nil {
			return nil, err
		}
		var list []compute.Usage
		for _, one := range all {
			if id, ok := instanceOf(one.Domain); ok {
				u := usage(one)
				u.Instance = id
				list = append(list, u)
			}
			_ = one.Domain.Free()
		}
		return list, nil
	})
}

// usage sums libvirt's statistics over a guest's devices.
func usage(s libvirt.DomainStats) compute.Usage {
	var u compute.Usage
	if s.Cpu != nil {
		u.CPU = time.Duration(s.Cpu.Time)
	}
	if s.Balloon != nil {
		u.MemoryBytes = s.Balloon.Rss << 10
	}
	u.Busy = s.Balloon == nil || !s.Balloon.RssSet
	for _, disk := range s.Block {
		u.DiskRead += disk.RdBytes
		u.DiskWritten += disk.WrBytes
		u.DiskReads += disk.RdReqs
		u.DiskWrites += disk.WrReqs
	}
	for _, nic := range s.Net {
		u.NetReceived += nic.RxBytes
		u.NetSent += nic.TxBytes
	}
	return u
}
