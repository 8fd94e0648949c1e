package pci

import (
	"fmt"
	"slices"
	"strings"

	"croft"
	"croft/internal/lazyregexp"
)

// maxSelectors bounds the settings, and thus the classes that a host offers.
const maxSelectors = 32

// vfsPrefix selects the virtual functions of a physical one.
const vfsPrefix = "vfs:"

var (
	idsForm     = lazyregexp.New(`^([0-9a-f]{4}):([0-9a-f]{4})(?::([0-9a-f]{2}|[0-9a-f]{4}|[0-9a-f]{6}))?$`)
	addressForm = lazyregexp.New(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	classForm   = lazyregexp.New(`^` + croft.PCIPrefix + `[A-Z0-9_]{1,200}$`)
)

// Selector selects devices of a machine by their IDs, by an address, or as the virtual functions of a device.
type Selector struct {
	Text            string // as in the settings
	Class           croft.ResourceClass
	address, pf     string
	vendor, product string
	code            string // its first digits
}

// ParseSelectors reads the setting pci: VENDOR:PRODUCT or VENDOR:PRODUCT:KIND with hexadecimal numbers, an address such
// as 0000:3b:00.0, or vfs: and the address of a physical function; each may be followed by = and the resource class
// under which it is offered. Invalid.
func ParseSelectors(texts []string) ([]Selector, error) {
	if len(texts) > maxSelectors {
		return nil, croft.Errorf(croft.Invalid, "pci has %d entries: at most %d", len(texts), maxSelectors)
	}
	var all []Selector
	for _, text := range texts {
		s, err := parseSelector(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(o Selector) bool { return o.what() == s.what() }) {
			return nil, croft.Errorf(croft.Invalid, "pci has %s twice: leave one of them out", s.what())
		}
		all = append(all, s)
	}
	return all, nil
}

func parseSelector(text string) (Selector, error) {
	what, class, named := strings.Cut(strings.TrimSpace(text), "=")
	s := Selector{Text: text, Class: croft.ResourceClass(class)}
	what = strings.ToLower(what)
	if named && !classForm.MatchString(class) {
		return s, croft.Errorf(croft.Invalid, "pci: %.80q is not a resource class for PCI devices: write %s and capital "+
			"letters, digits and underscores, such as %sGPU", class, croft.PCIPrefix, croft.PCIPrefix)
	}
	pf, virtual := strings.CutPrefix(what, vfsPrefix)
	switch ids := idsForm.FindStringSubmatch(what); {
	case ids != nil:
		s.vendor, s.product, s.code = ids[1], ids[2], ids[3]
	case virtual && addressForm.MatchString(pf):
		s.pf = pf
	case addressForm.MatchString(what):
		s.address = what
	default:
		return s, croft.Errorf(croft.Invalid, "pci: %.80q selects no device: write VENDOR:PRODUCT as `lspci -nn` shows "+
			"them, such as 10de:2230, an address such as 0000:3b:00.0, or vfs:ADDRESS for the virtual functions of a "+
			"device", text)
	}
	return s, nil
}

// what returns the selector without its class.
func (s Selector) what() string {
	switch {
	case s.address != "":
		return s.address
	case s.pf != "":
		return vfsPrefix + s.pf
	case s.code != "":
		return s.vendor + ":" + s.product + ":" + s.code
	}
	return s.vendor + ":" + s.product
}

// selects reports whether the selector names a device.
func (s Selector) selects(d Device) bool {
	switch {
	case s.address != "":
		return d.Address == s.address
	case s.pf != "":
		return d.PF == s.pf
	}
	return d.Vendor == s.vendor && d.Product == s.product && strings.HasPrefix(d.Code, s.code)
}

// class returns the class under which the selector offers a device.
func (s Selector) class(d Device) croft.ResourceClass {
	if s.Class != "" {
		return s.Class
	}
	return croft.ResourceClass(fmt.Sprintf("%s%s_%s", croft.PCIPrefix, strings.ToUpper(d.Vendor),
		strings.ToUpper(d.Product)))
}

// Unit is what a guest gets as one: the selected devices of one IOMMU group.
type Unit struct {
	Class   croft.ResourceClass // of the first selector that selects one of them
	Devices []Device            // by address; never none
}

// Addresses returns the addresses of the devices.
func (u Unit) Addresses() []string {
	all := make([]string, len(u.Devices))
	for i, d := range u.Devices {
		all[i] = d.Address
	}
	return all
}

// Taken returns why the unit is not offered, if a machine that is not croft's has one of its devices; empty: none has.
// foreign has the names of such machines by address.
func (u Unit) Taken(foreign map[string]string) string {
	for _, d := range u.Devices {
		if name, has := foreign[d.Address]; has {
			return fmt.Sprintf("the PCI device %v is not offered: the machine %q, which is not croft's, has it in its "+
				"definition", d, name)
		}
	}
	return ""
}

// Refusal is why something that the settings select is not offered.
type Refusal struct {
	Address string // empty: there is no such device
	Reason  string // a sentence
}

// Select returns the units that the selectors offer, by the address of their first devices, and what they do not offer.
func Select(selectors []Selector, devices []Device) (units []Unit, refused []Refusal) {
	by := map[string]int{} // selectors by address of the selected device
	for i, s := range slices.Backward(selectors) {
		var found bool
		for _, d := range devices {
			if s.selects(d) {
				by[d.Address], found = i, true
			}
		}
		if !found {
			refused = append(refused, Refusal{Reason: fmt.Sprintf("no PCI device of this machine is %s, which the "+
				"setting pci selects", s.what())})
		}
	}
	slices.Reverse(refused)
	done := map[string]bool{} // groups
	for _, d := range devices {
		if _, selected := by[d.Address]; !selected || done[d.Group] && d.Group != "" {
			continue
		}
		members := []Device{d}
		if d.Group != "" && !d.isBridge() {
			members, done[d.Group] = endpoints(devices, d.Group), true
		}
		if why := refuse(members, by); why != "" {
			for _, m := range members {
				if _, selected := by[m.Address]; selected {
					reason := fmt.Sprintf("the PCI device %v is not offered: %s", m, why)
					refused = append(refused, Refusal{m.Address, reason})
				}
			}
			continue
		}
		first := slices.MinFunc(members, func(a, b Device) int { return by[a.Address] - by[b.Address] })
		units = append(units, Unit{Class: selectors[by[first.Address]].class(first), Devices: members})
	}
	return units, refused
}

// endpoints returns the devices of a group that are not bridges.
func endpoints(devices []Device, group string) (members []Device) {
	for _, d := range devices {
		if d.Group == group && !d.isBridge() {
			members = append(members, d)
		}
	}
	return members
}

// refuse returns why the devices of a group cannot be given to a guest; empty: they can.
func refuse(members []Device, selected map[string]int) string {
	for _, d := range members {
		_, is := selected[d.Address]
		switch {
		case d.isBridge():
			return "it is a bridge, which stays with the machine"
		case !addressForm.MatchString(d.Address):
			return "libvirt has no devices of that PCI domain; a controller such as Intel's VMD puts them there"
		case d.Group == "":
			return "no IOMMU limits what it can reach: switch on VT-d or AMD-Vi in the machine's firmware, and boot " +
				"Linux with it (intel_iommu=on)"
		case d.VFs > 0:
			return fmt.Sprintf("%s has %d virtual functions: select these (%s%s), or remove them (sriov_numvfs)",
				d.Address, d.VFs, vfsPrefix, d.Address)
		case !is:
			return fmt.Sprintf("its IOMMU group %s has %v too, and a group goes to one guest as a whole: select that "+
				"as well, or put one of them into another slot", d.Group, d)
		}
	}
	return ""
}

// Source selects the devices that a host offers.
type Source struct {
	Root      string // of sysfs
	Selectors []Selector
}

// Units reads the devices of the machine, and selects among them.
func (s Source) Units() ([]Unit, []Refusal, error) {
	if len(s.Selectors) == 0 {
		return nil, nil, nil
	}
	devices, err := Read(s.Root)
	if err != nil {
		return nil, nil, err
	}
	units, refused := Select(s.Selectors, devices)
	return units, refused, nil
}
