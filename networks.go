package croft

import "strings"

// DefaultNetworks is the name, in a Spec, of the networks that a host gives to instances that name none.
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
