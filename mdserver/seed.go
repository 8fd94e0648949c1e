package mdserver

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"croft"
	"croft/internal/nocloud"
	"croft/internal/userdata"
)

// configDriveLabel is the volume label by which guests find a config-2 disk.
const configDriveLabel = "config-2"

// Seeds creates the metadata disks of one host's instances.
type Seeds struct {
	Zone   string // the host's location
	NICs   int    // network interfaces of instances that name no networks; 0: 1
	Vendor []byte // text that the host's operator adds to every guest's set-up
	Server bool   // the host runs a metadata server
	// the host's address on the network of the metadata server; invalid: not known
	Gateway netip.Addr
	Disk    bool // instances with MetadataAuto get a disk even if the server could serve them
}

// Source returns the metadata source of the instance, never MetadataAuto. An order with MetadataAuto gets the server,
// unless the host runs none, the instance is not on its network, or the instance requires a token: cloud-init requests
// no token in OpenStack's tree. Invalid: the order requires the server and this host runs none.
func (s Seeds) Source(o croft.Order) (croft.Metadata, error) {
	open := o.Spec.IMDS == "" || o.Spec.IMDS == croft.IMDSOptional
	switch source := o.Spec.Metadata; source {
	case "", croft.MetadataAuto:
		if s.Server && open && !s.Disk && reachesServer(o) {
			return croft.MetadataServer, nil
		}
		return croft.MetadataNoCloud, nil
	case croft.MetadataServer:
		if !s.Server {
			return "",
				croft.Errorf(croft.Invalid, "instance %s wants its metadata from the server, and this host runs none "+
					"(metadata.server): ask for nocloud or config-drive", o.Name)
		}
		if !reachesServer(o) {
			return "",
				croft.Errorf(croft.Invalid,
					"instance %s wants its metadata from the server, which is on the network %q alone: "+
						"name that too, or ask for nocloud or config-drive", o.Name, croft.DefaultNetworks)
		}
		return source, nil
	case croft.MetadataNoCloud, croft.MetadataConfigDrive:
		return source, nil
	default:
		return "", croft.Errorf(croft.Invalid, "instance %s wants its metadata from %q, which this host does not know",
			o.Name, source)
	}
}

// reachesServer reports whether the instance is on the server's network.
func reachesServer(o croft.Order) bool {
	return len(o.Spec.Networks) == 0 || slices.Contains(o.Spec.Networks, croft.DefaultNetworks)
}

// WriteSeed writes the disk for the order's Source; for the server, a NoCloud disk.
func (s Seeds) WriteSeed(ctx context.Context, w io.Writer, o croft.Order) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write the metadata disk of %s: %w", o.Instance, err)
	}
	g := FromOrder(o)
	g.Zone, g.Vendor, g.Gateway = s.Zone, s.Vendor, s.Gateway
	g.MACs, g.Home = MACs(o, s.NICs), Home(o)
	if o.Spec.Metadata == croft.MetadataConfigDrive {
		return WriteConfigDrive(w, g)
	}
	return WriteSeed(w, g)
}

// WriteSeed writes an ISO 9660 image with the guest's metadata in NoCloud's format: meta-data, user-data, vendor-data
// and, with several network interfaces, network-config.
func WriteSeed(w io.Writer, g Guest) error {
	files, err := seedFiles(g)
	if err == nil {
		err = nocloud.WriteDisk(w, nocloud.Label, g.withHostKey(files))
	}
	if err != nil {
		return fmt.Errorf("write the metadata disk of %s: %w", g.ID, err)
	}
	return nil
}

// WriteConfigDrive writes an ISO 9660 image with the files of OpenStack's tree in the version "latest", which every
// reader accepts.
func WriteConfigDrive(w io.Writer, g Guest) error {
	var files []nocloud.File
	for _, n := range openstackFiles(g, randomSeed) {
		files = append(files, nocloud.File{Name: "openstack/latest/" + n.name, Body: n.body()})
	}
	if err := nocloud.WriteDisk(w, configDriveLabel, g.withHostKey(files)); err != nil {
		return fmt.Errorf("write the metadata disk of %s: %w", g.ID, err)
	}
	return nil
}

// withHostKey adds the SSH server's key for guests without cloud-init.
func (g Guest) withHostKey(files []nocloud.File) []nocloud.File {
	if g.HostKey == "" {
		return files
	}
	return append(files, nocloud.File{Name: croftDir + "/" + hostKeyFile, Body: []byte(g.HostKey)})
}

// nocloud.Files returns the files of the disk. user-data is present even if empty: without it NoCloud ignores the disk.
func seedFiles(g Guest) ([]nocloud.File, error) {
	meta, err := nocloud.Marshal(seedMeta(g))
	if err != nil {
		return nil, err
	}
	files := []nocloud.File{
		{Name: "meta-data", Body: meta},
		{Name: "user-data", Body: g.UserData},
		{Name: "vendor-data", Body: userdata.Join(append(g.vendorLayer(), g.ownParts()...)...)},
	}
	if len(g.MACs) > 1 {
		network, err := nocloud.Marshal(seedNetwork(g))
		if err != nil {
			return nil, err
		}
		files = append(files, nocloud.File{Name: "network-config", Body: network})
	}
	return files, nil
}

func seedMeta(g Guest) nocloud.Meta {
	m := nocloud.Meta{InstanceID: string(g.ID), Hostname: g.Hostname(), Zone: g.zone(), Tags: g.Tags}
	for _, k := range g.publicKeys() {
		m.PublicKeys = append(m.PublicKeys, k.line)
	}
	return m
}

type seedNetworkYAML struct {
	Version   int                         `yaml:"version"`
	Ethernets map[string]seedEthernetYAML `yaml:"ethernets"`
}

type seedEthernetYAML struct {
	Match     map[string]string `yaml:"match"`
	DHCP4     bool              `yaml:"dhcp4"`
	Overrides map[string]int    `yaml:"dhcp4-overrides"`
	Routes    []seedRouteYAML   `yaml:"routes,omitempty"`
	Optional  bool              `yaml:"optional,omitempty"`
}

type seedRouteYAML struct {
	To     string `yaml:"to"`
	Via    string `yaml:"via"`
	Metric int    `yaml:"metric"`
}

// routeMetric returns the metric of the routes of the nth interface: if several networks have a router, the first
// network's is used.
func routeMetric(n int) int { return 100 * (n + 1) }

// seedNetwork configures DHCP on every interface. Boot waits only for the first interface.
func seedNetwork(g Guest) seedNetworkYAML {
	n := seedNetworkYAML{Version: 2, Ethernets: map[string]seedEthernetYAML{}}
	for i, mac := range g.MACs {
		nic := seedEthernetYAML{
			Match:     map[string]string{"macaddress": strings.ToLower(mac.String())},
			DHCP4:     true,
			Overrides: map[string]int{"route-metric": routeMetric(i)},
			Optional:  i > 0,
		}
		if via, ok := g.metadataVia(i); ok {
			route := seedRouteYAML{To: Address.Addr().String() + "/32", Via: via.String(), Metric: routeMetric(i)}
			nic.Routes = []seedRouteYAML{route}
		}
		n.Ethernets[fmt.Sprintf("nic%d", i)] = nic
	}
	return n
}
