// Package checkup examines a machine with the settings that a host would run with: it combines the checks of doctor
// with checks of libvirt, of this machine's membership of a cloud, and of that cloud. It changes nothing.
package checkup

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/libvirt"
	"croft/compute/storage"
	"croft/control/cloud/fencing"
	"croft/internal/checks"
	"croft/node"
	"croft/node/doctor"
	"croft/node/settings"
	"croft/trust"
)

// port is an address that croft up listens on.
type port struct{ use, setting, listen string }

// portsOf returns the addresses that croft up would listen on.
func portsOf(s *settings.Settings, of *trust.Membership) []port {
	var all []port
	at := s.Servers(of)
	if of == nil || of.Etcd.Member {
		all = append(all, port{"etcd", "etcd.listen", at.Etcd})
		if s.ServesPlacement() {
			all = append(all, port{"placement", "placement.listen", at.Placement})
		}
	}
	if s.Hypervisor != settings.NoHypervisor {
		all = append(all, port{"api", "api.listen", at.API})
	}
	return all
}

// Examine checks this machine with the settings that a host would run with, and the cloud that it would reach.
func Examine(ctx context.Context, s settings.Settings, reach settings.Reach) ([]checks.Result, error) {
	running, runs := compute.Running(s.StateDir)
	configured := s.Hypervisor
	if runs && running.Hypervisor != "" {
		s.Hypervisor = running.Hypervisor // given by an option of croft up, for example
	}
	c := node.MachineConfig(&s)
	c.Running = running.PID
	for _, p := range portsOf(&s, reach.Joined) {
		addr, err := netip.ParseAddrPort(p.listen)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "%s is %q: use an IP address and a port, such as 127.0.0.1:2379",
				p.setting, p.listen)
		}
		c.Ports = append(c.Ports, doctor.Port{Use: p.use, Addr: addr})
	}
	probes := node.MachineProbes(nil)
	foreign := func(context.Context) (map[string]string, error) { return nil, nil }
	if c.Libvirt {
		driver, err := libvirt.New(libvirt.Config{URI: s.Libvirt.URI, VirtType: s.Libvirt.VirtType,
			Emulated: s.Libvirt.EmulatedArchitectures})
		if err != nil {
			return nil, err
		}
		defer driver.Close()
		foreign = driver.ForeignPCI
		probes = node.MachineProbes(driver)
		probes.MetadataServer = func(ctx context.Context, bridge string, pid int32) (doctor.MetadataServer, error) {
			return lookMetadataServer(ctx, s.StateDir, reach, bridge, pid)
		}
	}
	cloud := lookCloud(s.StateDir, reach)
	all := append(doctor.Checks(c, probes), cloud, checks.Check{Name: "certificates",
		Look: func(context.Context) checks.Result { return node.Certificates(s.StateDir) }})
	if !reach.Joined.IsStrict() {
		all = append(all, checks.Check{Name: "clocks", Look: lookClocks(reach.Etcd)},
			checks.Check{Name: "backups", Look: lookBackups(reach.Etcd)},
			checks.Check{Name: "agent", Look: lookReported(reach.Etcd, s.StateDir)})
		if s.Host.Fence != "" {
			agents := &fencing.Agents{File: s.Host.Fence}
			all = append(all, checks.Check{Name: "fence", Look: lookFence(reach.Etcd, agents)})
		}
	}
	if s.Hypervisor != settings.NoHypervisor {
		for _, name := range slices.Sorted(maps.Keys(s.Storage.Shared)) {
			dir := storage.New(storage.Config{Name: name, Path: s.Storage.Shared[name].Path})
			all = append(all, checks.Check{Name: "storage " + name, Look: lookStorage(dir)})
		}
		devices, err := s.ForPCI()
		if err != nil {
			return nil, err
		}
		if len(devices.Selectors) > 0 {
			all = append(all, checks.Check{Name: "pci", Look: lookPCI(devices, foreign)})
		}
		all = append(all,
			checks.Check{Name: "offer", Look: func(ctx context.Context) checks.Result { return lookOffer(ctx, &s) }})
	}
	if s.Hypervisor != configured {
		all = append([]checks.Check{{Name: "hypervisor", Look: func(context.Context) checks.Result {
			return checks.Good(fmt.Sprintf("%s: process %d runs with these settings of this state directory, which "+
				"may differ from the settings here",
				s.Hypervisor, running.PID))
		}}}, all...)
	}
	return checks.Run(ctx, all), nil
}

// lookOffer checks that the host has the resources that it reserves for itself.
func lookOffer(ctx context.Context, s *settings.Settings) checks.Result {
	dir := s.StateDir
	for _, err := os.Stat(dir); err != nil && dir != filepath.Dir(dir); _, err = os.Stat(dir) {
		dir = filepath.Dir(dir) // it will be created
	}
	facts, err := compute.ReadFacts(ctx, dir, 0)
	if err == nil {
		err = node.CheckReserves(s, facts)
	}
	if err != nil {
		return checks.Result{Level: checks.Fail, Found: err.Error(), Do: "change the settings below offer"}
	}
	return checks.Result{Level: checks.OK,
		Found: fmt.Sprintf("of %d CPUs, %d MiB of memory and %d GiB of disk, %d, %d and %d are reserved for the host; croft host "+
			"list shows what is left beside other files and virtual machines",
			facts.CPUs, facts.MemoryMiB, facts.DiskGiB, s.Offer.ReservedVCPUs, s.Offer.ReservedMemoryMiB,
			s.Offer.ReservedDiskGiB)}
}
