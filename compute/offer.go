package compute

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"croft"
)

// Offer sets how much of the facts a host offers. Ratios multiply what may be claimed; reserves are kept for
// the host itself.
type Offer struct {
	VCPURatio, MemoryRatio, DiskRatio          float64 // 4, 1 and 1 by default
	ReservedVCPUs, ReservedMiB, ReservedDiskGB int64
	Traits                                     []croft.Trait // additional ones, such as CUSTOM_SSD
}

// Provider describes the host to Placement: the inventory of the facts as offered, the traits that guests
// here can use, and one aggregate for each level of the location, so that member_of can name a site, a row or
// a rack.
func (o Offer) Provider(h croft.Host, partition croft.PartitionID, f Facts) croft.Provider {
	inventories := map[croft.ResourceClass]croft.Inventory{
		croft.VCPU:     inventory(int64(f.CPUs), o.ReservedVCPUs, cmp.Or(o.VCPURatio, 4)),
		croft.MemoryMB: inventory(f.MemoryMiB, o.ReservedMiB, cmp.Or(o.MemoryRatio, 1)),
		croft.DiskGB:   inventory(f.DiskGiB, o.ReservedDiskGB+f.DiskUseGiB, cmp.Or(o.DiskRatio, 1)),
	}
	// Placement accepts no total of 0, so empty classes are left out.
	maps.DeleteFunc(inventories, func(_ croft.ResourceClass, inv croft.Inventory) bool { return inv.Total < 1 })
	return croft.Provider{
		ID:          h.ID,
		Name:        h.Name,
		Inventories: inventories,
		Traits:      traits(h.VirtType, f, o.Traits),
		Aggregates:  Aggregates(partition, h.Location),
	}
}

func inventory(total, reserved int64, ratio float64) croft.Inventory {
	return croft.Inventory{
		Total: total, Reserved: min(max(reserved, 0), total),
		MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: ratio,
	}
}

// Aggregates returns the UUIDs of a location's levels, outermost first. They are derived (RFC 9562, version
// 5), so that all hosts of a rack name the same ones.
func Aggregates(partition croft.PartitionID, location string) []string {
	space, err := uuid.Parse(string(partition))
	if err != nil {
		space = uuid.NewSHA1(uuid.NameSpaceOID, []byte(partition))
	}
	var all []string
	path := ""
	for level := range strings.SplitSeq(strings.Trim(location, "/"), "/") {
		if level == "" {
			continue
		}
		path += "/" + level
		all = append(all, uuid.NewSHA1(space, []byte("location"+path)).String())
	}
	return all
}

// traits lists what a guest on the host can rely on. Under emulation these are the traits of QEMU's own CPU,
// independent of the host's.
func traits(virtType string, f Facts, more []croft.Trait) []croft.Trait {
	all := []croft.Trait{
		"COMPUTE_NODE", "COMPUTE_IMAGE_TYPE_QCOW2", "COMPUTE_IMAGE_TYPE_RAW",
		"COMPUTE_FIRMWARE_BIOS", "COMPUTE_NET_VIF_MODEL_VIRTIO", "COMPUTE_STORAGE_BUS_VIRTIO",
	}
	if f.Arch == "amd64" {
		all = append(all, "HW_ARCH_X86_64", "COMPUTE_ARCH_X86_64")
	}
	switch {
	case virtType == "qemu" && f.Arch == "amd64":
		all = append(all, emulated...)
	case virtType == "kvm":
		for _, flag := range f.CPUFlags {
			all = append(all, flagTraits[flag]...)
		}
		if f.Threads {
			all = append(all, "HW_CPU_HYPERTHREADING")
		}
	}
	if virtType != "" {
		all = append(all, croft.Trait("CUSTOM_CROFT_VIRT_"+strings.ToUpper(virtType)))
	}
	all = append(all, more...)
	slices.Sort(all)
	return slices.Compact(all)
}
