package croft

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// DefaultNetworks is the name, in a Spec, of the networks that a host gives to instances without a list of networks.
const DefaultNetworks = "default"

// networkTrait is the prefix of the traits by which hosts offer named networks.
const networkTrait = "CUSTOM_CROFT_NET_"

// maxNetworkName keeps a network's trait within the 255 characters of Placement, and its name readable.
const maxNetworkName = 63

// CheckNetworkName accepts names that can become part of a trait and be read back from it. Invalid otherwise.
func CheckNetworkName(name string) error {
	ok := name != "" && len(name) <= maxNetworkName
	for _, c := range name {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	if !ok {
		return Errorf(Invalid, "%q cannot be the name of a network: use up to %d letters a to z, digits and dashes",
			name, maxNetworkName)
	}
	return nil
}

// NetworkTrait returns the trait of the hosts that have the named network.
func NetworkTrait(name string) Trait {
	return Trait(networkTrait + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
}

// NetworkOf returns the name of the network that a trait offers; false if it offers none.
func NetworkOf(t Trait) (name string, ok bool) {
	rest, ok := strings.CutPrefix(string(t), networkTrait)
	return strings.ToLower(strings.ReplaceAll(rest, "_", "-")), ok
}

// EveryProject stands for all projects in the list of a network's projects.
const EveryProject Project = "*"

// NetworkProjects returns the projects that may use a further network of a host, given the list in its settings. The
// default is DefaultProject, which belongs to the operators.
func NetworkProjects(listed []Project) []Project {
	if listed == nil {
		return []Project{DefaultProject}
	}
	return listed
}

// AdmitsTo reports whether instances of a project may use a network of the host, if it has a network of that name. The
// default networks are open to all projects. Networks missing from the record, for example because the agent is older
// than this restriction, have the default of NetworkProjects.
func (h Host) AdmitsTo(network string, p Project) bool {
	if network == DefaultNetworks {
		return true
	}
	projects := NetworkProjects(h.Networks[network])
	return slices.Contains(projects, p) || slices.Contains(projects, EveryProject)
}

// CheckFixedAddress refuses what cannot be the chosen address of an instance on these networks. Invalid.
func CheckFixedAddress(address string, networks []string) error {
	if address == "" {
		return nil
	}
	addr, err := netip.ParseAddr(address)
	switch {
	case err != nil || !addr.Is4() || addr.String() != address || !addr.IsGlobalUnicast():
		return Errorf(Invalid, "%.40q is no address that a guest can have: give an IPv4 address such as 192.168.122.50",
			address)
	case len(networks) > 0 && !slices.Contains(networks, DefaultNetworks):
		return Errorf(Invalid, "the address %s is one of the network default, which the request does not name: "+
			"name it too", address)
	}
	return nil
}

// GivesAddress reports whether the usual network of the host gives an address to a guest, if it is free; also for no
// address.
func (h Host) GivesAddress(address string) bool {
	if address == "" {
		return true
	}
	addr, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(h.GuestAddresses, func(text string) bool {
		first, last, _ := strings.Cut(text, "-")
		from, err1 := netip.ParseAddr(first)
		to, err2 := netip.ParseAddr(last)
		return err1 == nil && err2 == nil && from.Is4() && !addr.Less(from) && !to.Less(addr)
	})
}

// OpenPort is a port of an instance that guests of other projects reach.
type OpenPort struct {
	Protocol string // tcp or udp
	Port     uint16
}

// String returns the port in the syntax of ParseOpenPort, such as tcp/80.
func (p OpenPort) String() string { return fmt.Sprintf("%s/%d", p.Protocol, p.Port) }

// MaxOpenPorts is the maximum number of open ports of an instance.
const MaxOpenPorts = 32

// ParseOpenPort parses a protocol and a port, such as tcp/80 or udp/53. Invalid.
func ParseOpenPort(text string) (OpenPort, error) {
	protocol, number, _ := strings.Cut(text, "/")
	port, err := strconv.ParseUint(number, 10, 16)
	p := OpenPort{protocol, uint16(port)}
	if err != nil || port == 0 || protocol != "tcp" && protocol != "udp" || p.String() != text {
		return p, Errorf(Invalid, "%.40q is not a port to open: write tcp or udp, a slash and a number, such as tcp/80", text)
	}
	return p, nil
}

// CheckOpenPorts refuses ports that cannot be opened, duplicate ports, and too many ports. Invalid.
func CheckOpenPorts(all []string) error {
	if len(all) > MaxOpenPorts {
		return Errorf(Invalid, "%d open ports are too many: an instance opens at most %d", len(all), MaxOpenPorts)
	}
	for i, text := range all {
		if _, err := ParseOpenPort(text); err != nil {
			return err
		}
		if slices.Contains(all[:i], text) {
			return Errorf(Invalid, "the open port %s is named twice", text)
		}
	}
	return nil
}
