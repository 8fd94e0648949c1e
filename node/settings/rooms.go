package settings

import (
	"maps"
	"path/filepath"
	"slices"

	"croft"
	"croft/cluster/outbound"
	"croft/compute"
	"croft/compute/hypervisor/libvirt"
	"croft/compute/hypervisor/sim"
	"croft/compute/image"
	"croft/compute/pci"
	"croft/internal/egress"
	"croft/mdserver"
	"croft/placement"
)

// Configurations of the packages that run on hosts. The caller adds values that it has only at the start: logger,
// store, directory.

// ForAgent returns the configuration of the host's agent.
func (s *Settings) ForAgent() compute.Config {
	c := compute.Config{
		Networks: map[string]compute.NIC{}, MaxBuilds: s.MaxBuilds, ResyncEvery: s.Resync, SweepEvery: s.Sweep,
	}
	for _, name := range slices.Sorted(maps.Keys(s.Storage.Shared)) {
		path := filepath.Clean(s.Storage.Shared[name].Path)
		c.SharedDirs = append(c.SharedDirs, compute.SharedDir{Name: name, Path: path})
	}
	for name, n := range s.Networks {
		c.Networks[name] = compute.NIC{Network: n.Network, Bridge: n.Bridge}
	}
	// Guests that name no networks are connected to libvirt's, then to the bridge.
	if s.Network.Name != "" {
		c.NICs = append(c.NICs, compute.NIC{Network: s.Network.Name})
	}
	if s.Network.Bridge != "" {
		c.NICs = append(c.NICs, compute.NIC{Bridge: s.Network.Bridge})
	}
	return c
}

// NetworkProjects returns the projects that may use each further network, for the host's record.
func (s *Settings) NetworkProjects() map[string][]croft.Project {
	projects := map[string][]croft.Project{}
	for name, n := range s.Networks {
		projects[name] = croft.NetworkProjects(n.Projects)
	}
	return projects
}

// ForProvider returns the configuration of the resources that the host offers.
func (s *Settings) ForProvider() compute.Offer {
	o := compute.Offer{
		VCPURatio: s.Offer.VCPURatio, MemoryRatio: s.Offer.MemoryRatio, DiskRatio: s.Offer.DiskRatio,
		ReservedVCPUs: s.Offer.ReservedVCPUs, ReservedMiB: s.Offer.ReservedMemoryMiB,
		ReservedDiskGB: s.Offer.ReservedDiskGiB,
	}
	for name := range s.Networks { // for schedulers to find the hosts that have them
		o.Traits = append(o.Traits, croft.NetworkTrait(name))
	}
	for _, trait := range s.Offer.Traits {
		o.Traits = append(o.Traits, croft.Trait(trait))
	}
	return o
}

// ForPCI returns the selection of PCI devices that guests may have. Invalid.
func (s *Settings) ForPCI() (pci.Source, error) {
	selectors, err := pci.ParseSelectors(s.PCI)
	root := pci.DefaultRoot
	if s.Hypervisor == "sim" {
		root = s.Sim.Sysfs
	}
	return pci.Source{Root: root, Selectors: selectors}, err
}

// ForLibvirt returns the configuration of libvirt's driver.
func (s *Settings) ForLibvirt() libvirt.Config {
	return libvirt.Config{
		URI: s.Libvirt.URI, VirtType: s.Libvirt.VirtType, EmulatorCacheMiB: s.Libvirt.EmulatorCacheMiB,
		StopGrace: s.Libvirt.StopGrace, AllowSpoofing: s.Libvirt.AllowSpoofing,
		Emulated: s.Libvirt.EmulatedArchitectures,
	}
}

// ForSim returns the configuration of the simulated hypervisor.
func (s *Settings) ForSim() sim.Config {
	return sim.Config{Boot: s.Sim.Boot, Arch: s.Sim.Architectures}
}

// ForImages returns the configuration of the store of images. Invalid.
func (s *Settings) ForImages() (image.Config, error) {
	redirects, err := image.ParseNetworks(s.Images.AllowRedirects)
	if err != nil {
		return image.Config{}, err
	}
	callable, err := image.ParseNetworks(s.Images.CallNetworks)
	if err != nil {
		return image.Config{}, err
	}
	proxy, err := egress.ParseProxy(s.Images.Proxy)
	return image.Config{
		Proxy: proxy, AllowRedirects: redirects,
		Public: outbound.Rule{Allow: callable, Setting: "images.call_networks"}, MaxBytes: s.Images.CacheGiB << 30,
		AllowFiles: append([]string{}, s.Images.AllowFiles...), // an empty list permits none, nil permits all
	}, err
}

// ForSeeds returns the configuration of metadata disks, with or without a metadata server in addition.
func (s *Settings) ForSeeds() mdserver.Seeds {
	return mdserver.Seeds{Zone: s.Host.Location, NICs: len(s.ForAgent().NICs), Disk: s.Metadata.Disk}
}

// ForMetadata returns the configuration of the metadata server.
func (s *Settings) ForMetadata() mdserver.Config {
	return mdserver.Config{Passwords: s.Metadata.Passwords}
}

// ForPlacement returns the configuration of croft's own Placement, without the source of accepted tokens.
func (s *Settings) ForPlacement() placement.Config {
	return placement.Config{
		Randomize: s.Placement.Randomize, AccessLog: s.Placement.AccessLog,
		ConsistentReads: placement.Consistency(s.Placement.ConsistentReads),
	}
}
