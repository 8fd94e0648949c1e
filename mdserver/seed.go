package mdserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/kdomanski/iso9660"

	"croft"
	"croft/internal/userdata"
)

// padding is the number of zero bytes after the image. Readers probe for other file systems up to offset 68 KiB;
// busybox rejects a smaller disk before it reads its label, and a CD drive may read ahead. genisoimage adds the same
// amount.
const padding = 150 * 2048

// Volume labels by which guests find a NoCloud and a config-2 disk.
const (
	seedLabel        = "cidata"
	configDriveLabel = "config-2"
)

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
// and, with several network interfaces, network-config. The names are lower case with a dash, in the plain directory:
// ISO 9660 leaves such names to agreement, and Linux, cloud-init and busybox accept them.
func WriteSeed(w io.Writer, g Guest) error {
	files, err := seedFiles(g)
	if err == nil {
		err = writeDisk(w, seedLabel, g.withHostKey(files))
	}
	if err != nil {
		return fmt.Errorf("write the metadata disk of %s: %w", g.ID, err)
	}
	return nil
}

// WriteConfigDrive writes an ISO 9660 image with the files of OpenStack's tree in the version "latest", which every
// reader accepts.
func WriteConfigDrive(w io.Writer, g Guest) error {
	var files []seedFile
	for _, n := range openstackFiles(g, randomSeed) {
		files = append(files, seedFile{"openstack/latest/" + n.name, n.body()})
	}
	if err := writeDisk(w, configDriveLabel, g.withHostKey(files)); err != nil {
		return fmt.Errorf("write the metadata disk of %s: %w", g.ID, err)
	}
	return nil
}

// withHostKey adds the SSH server's key for guests without cloud-init.
func (g Guest) withHostKey(files []seedFile) []seedFile {
	if g.HostKey == "" {
		return files
	}
	return append(files, seedFile{croftDir + "/" + hostKeyFile, []byte(g.HostKey)})
}

func writeDisk(w io.Writer, label string, files []seedFile) (err error) {
	image, err := iso9660.NewWriter()
	if err != nil {
		return err
	}
	defer func() {
		if cleanup := image.Cleanup(); err == nil {
			err = cleanup
		}
	}()
	for _, f := range files {
		if err := image.AddFile(bytes.NewReader(f.body), f.name); err != nil {
			return err
		}
	}
	if err := image.WriteTo(w, label); err != nil {
		return err
	}
	_, err = w.Write(make([]byte, padding))
	return err
}

type seedFile struct {
	name string
	body []byte
}

// seedFiles returns the files of the disk. user-data is present even if empty: without it NoCloud ignores the disk.
func seedFiles(g Guest) ([]seedFile, error) {
	meta, err := marshal(seedMeta(g))
	if err != nil {
		return nil, err
	}
	files := []seedFile{
		{"meta-data", meta},
		{"user-data", g.UserData},
		{"vendor-data", userdata.Join(append(g.vendorLayer(), g.ownParts()...)...)},
	}
	if len(g.MACs) > 1 {
		network, err := marshal(seedNetwork(g))
		if err != nil {
			return nil, err
		}
		files = append(files, seedFile{"network-config", network})
	}
	return files, nil
}

type seedMetaYAML struct {
	InstanceID string            `yaml:"instance-id"`
	Hostname   string            `yaml:"local-hostname"`
	Zone       string            `yaml:"availability-zone"`
	PublicKeys []string          `yaml:"public-keys,omitempty"`
	Tags       map[string]string `yaml:"tags,omitempty"`
}

func seedMeta(g Guest) seedMetaYAML {
	m := seedMetaYAML{InstanceID: string(g.ID), Hostname: g.Hostname(), Zone: g.zone(), Tags: g.Tags}
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
