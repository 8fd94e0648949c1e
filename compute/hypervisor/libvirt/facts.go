package libvirt

import (
	"slices"

	"libvirt.org/go/libvirt"

	"croft"
)

// networkFacts are the properties of a libvirt network that the packet filter needs.
type networkFacts struct {
	Network
	pool pool
}

// lookAtNetworks reads the networks of the listed domains, and leaves out networks that no longer exist.
func lookAtNetworks(c *libvirt.Connect, list []domain) (map[string]networkFacts, error) {
	facts := map[string]networkFacts{}
	for _, one := range list {
		for _, n := range one.nics {
			if _, known := facts[n.Network]; known || n.Network == "" {
				continue
			}
			f, err := lookAtNetwork(c, n.Network)
			if err == nil {
				facts[n.Network] = f
			} else if !is(err, libvirt.ERR_NO_NETWORK) && croft.KindOf(err) != croft.Invalid {
				return nil, err
			}
		}
	}
	return facts, nil
}

func lookAtNetwork(c *libvirt.Connect, name string) (f networkFacts, err error) {
	n, err := c.LookupNetworkByName(name)
	if err != nil {
		return f, err
	}
	defer n.Free()
	text, err := n.GetXMLDesc(0)
	if err != nil {
		return f, err
	}
	if f.Network, err = parseNetwork(text); err != nil {
		return f, err
	}
	f.pool, err = parsePool(text)
	return f, err
}

// unreserved returns the domains of a partition with an address that is not reserved in its network, or has no name
// there.
func unreserved(p croft.PartitionID, list []domain, facts map[string]networkFacts) []croft.InstanceID {
	var ids []croft.InstanceID
	for _, one := range list {
		missing := func(n markNIC) bool {
			f, known := facts[n.Network]
			name, reserved := f.pool.names[n.MAC]
			return known && n.Address != "" && (!reserved || name == "" || f.pool.lacks(one.Name, one.Project, n))
		}
		if one.Partition == p && slices.ContainsFunc(one.nics, missing) {
			ids = append(ids, one.ID)
		}
	}
	return ids
}
