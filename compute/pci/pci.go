// Package pci reads the PCI devices of the machine from sysfs, and selects the devices for guests.
//
// It changes nothing. A device is selected only if the settings name it, and only with the whole of its IOMMU group:
// the devices of one group can reach each other's memory, so they cannot be given to different guests.
package pci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultRoot is where Linux shows its devices.
const DefaultRoot = "/sys"

// Device is one function of a PCI device.
type Device struct {
	Address string // such as 0000:3b:00.0
	Vendor  string // four hexadecimal digits, as Product
	Product string
	Code    string // its kind, six hexadecimal digits, such as 030000 for a VGA controller
	Group   string // number of its IOMMU group; empty: no IOMMU limits what it can reach
	Driver  string // of the host; empty: none is bound
	PF      string // address of the physical function that it is a virtual function of; empty: of none
	VFs     int    // how many virtual functions it has
}

// String names the device for people.
func (d Device) String() string { return fmt.Sprintf("%s (%s:%s)", d.Address, d.Vendor, d.Product) }

// isBridge reports whether the device leads to others; VFIO ignores these in a group.
func (d Device) isBridge() bool {
	return strings.HasPrefix(d.Code, "0600") || strings.HasPrefix(d.Code, "0604")
}

// unsafeGroup is the name of the groups that Linux makes for devices without an IOMMU.
const unsafeGroup = "vfio-noiommu"

// Read returns the PCI devices below root, by address. A device that is removed meanwhile is left out.
func Read(root string) ([]Device, error) {
	dir := filepath.Join(root, "bus/pci/devices")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a machine without PCI
	}
	if err != nil {
		return nil, fmt.Errorf("list the PCI devices: %w", err)
	}
	var all []Device
	for _, e := range entries {
		d, err := readDevice(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the PCI device %s: %w", e.Name(), err)
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b Device) int { return strings.Compare(a.Address, b.Address) })
	return all, nil
}

func readDevice(dir string) (d Device, err error) {
	d.Address = filepath.Base(dir)
	for file, value := range map[string]*string{"vendor": &d.Vendor, "device": &d.Product, "class": &d.Code} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return d, err
		}
		*value = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(string(text))), "0x")
	}
	for file, value := range map[string]*string{"iommu_group": &d.Group, "driver": &d.Driver, "physfn": &d.PF} {
		target, err := os.Readlink(filepath.Join(dir, file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
		if err == nil {
			*value = filepath.Base(target)
		}
	}
	if name, err := os.ReadFile(filepath.Join(dir, "iommu_group/name")); err == nil &&
		strings.TrimSpace(string(name)) == unsafeGroup {
		d.Group = ""
	}
	functions, err := filepath.Glob(filepath.Join(dir, "virtfn*"))
	d.VFs = len(functions)
	return d, err
}
