// Package pcitest simulates the PCI devices of a machine as files of sysfs, which a test may add and remove.
package pcitest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"croft/compute/pci"
)

// Sysfs is a simulated /sys.
type Sysfs struct {
	Root string
	t    testing.TB
}

// New returns the files of a machine that has these devices.
func New(t testing.TB, devices ...pci.Device) *Sysfs {
	t.Helper()
	s := &Sysfs{Root: t.TempDir(), t: t}
	s.make("bus/pci/devices")
	for _, d := range devices {
		s.Add(d)
	}
	return s
}

// GPU returns a device at an address, alone in the IOMMU group.
func GPU(address, group string) pci.Device {
	return pci.Device{Address: address, Vendor: "10de", Product: "2230", Code: "030000", Group: group,
		Driver: "nouveau"}
}

// Add plugs a device in, as Linux shows it. The physical function of a virtual one has to be there.
func (s *Sysfs) Add(d pci.Device) {
	s.t.Helper()
	dir := s.make("bus/pci/devices/" + d.Address)
	s.write(dir, "vendor", "0x"+d.Vendor)
	s.write(dir, "device", "0x"+d.Product)
	if d.Group != "" {
		s.link(dir, "iommu_group", s.make("kernel/iommu_groups/"+d.Group))
	}
	if d.Driver != "" {
		s.link(dir, "driver", s.make("bus/pci/drivers/"+d.Driver))
	}
	if d.PF != "" {
		s.link(dir, "physfn", s.dir(d.PF))
		siblings, err := filepath.Glob(filepath.Join(s.dir(d.PF), "virtfn*"))
		s.check(err)
		s.link(s.dir(d.PF), fmt.Sprintf("virtfn%d", len(siblings)), dir)
	}
	s.write(dir, "class", "0x"+d.Code) // last, since a device without it is not read yet
}

// Remove unplugs a device.
func (s *Sysfs) Remove(address string) {
	s.t.Helper()
	s.check(os.Remove(filepath.Join(s.dir(address), "class")))
	s.check(os.RemoveAll(s.dir(address)))
}

// WithoutIOMMU marks a group as one that Linux makes for devices without an IOMMU.
func (s *Sysfs) WithoutIOMMU(group string) {
	s.t.Helper()
	s.write(s.make("kernel/iommu_groups/"+group), "name", "vfio-noiommu")
}

func (s *Sysfs) dir(address string) string { return filepath.Join(s.Root, "bus/pci/devices", address) }

func (s *Sysfs) make(path string) string {
	dir := filepath.Join(s.Root, path)
	s.check(os.MkdirAll(dir, 0o755))
	return dir
}

func (s *Sysfs) write(dir, file, text string) {
	s.check(os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644))
}

func (s *Sysfs) link(dir, name, target string) { s.check(os.Symlink(target, filepath.Join(dir, name))) }

func (s *Sysfs) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
