package mdserver

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"croft/internal/userdata"
)

// openstackVersions are the versions known to cloud-init, which uses the newest listed one. All contain the
// same files: a newer file in an older version is harmless.
var openstackVersions = []string{
	"2012-08-10", "2013-04-04", "2013-10-17", "2015-10-15",
	"2016-06-30", "2016-10-06", "2017-02-22", "2018-08-27", "latest",
}

func isOpenstackVersion(v string) bool { return slices.Contains(openstackVersions, v) }

// openstack is the tree of Nova's metadata service. Versions are listed without a slash, since cloud-init compares
// whole lines.
func openstack(g Guest, seed func() []byte) []node {
	var versions []node
	for _, v := range openstackVersions {
		versions = append(versions, lazyDir(v, func() []node { return openstackFiles(g, seed) }).as(v))
	}
	return versions
}

func openstackFiles(g Guest, seed func() []byte) []node {
	files := []node{
		computed("meta_data.json", mimeJSON, func() []byte { return metaData(g, seed()) }),
		computed("network_data.json", mimeJSON, func() []byte { return networkData(g) }),
	}
	if len(g.UserData) > 0 {
		files = append(files, userData("user_data", g))
	}
	return append(files,
		computed("vendor_data.json", mimeJSON, func() []byte { return vendorData(g.vendorLayer()) }),
		computed("vendor_data2.json", mimeJSON, func() []byte { return vendorData(g.ownParts()) }))
}

type metaDataJSON struct {
	UUID        string            `json:"uuid"`
	Name        string            `json:"name"`
	Hostname    string            `json:"hostname"`
	ProjectID   string            `json:"project_id"`
	Zone        string            `json:"availability_zone"`
	LaunchIndex int               `json:"launch_index"`
	PublicKeys  map[string]string `json:"public_keys,omitempty"`
	Keys        []keyJSON         `json:"keys"`
	Meta        map[string]string `json:"meta"`
	Devices     []string          `json:"devices"`
	RandomSeed  string            `json:"random_seed"`
}

type keyJSON struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Data string `json:"data"`
}

func metaData(g Guest, seed []byte) []byte {
	m := metaDataJSON{
		UUID:       string(g.ID),
		Name:       g.Name,
		Hostname:   g.Hostname(),
		ProjectID:  string(g.Project),
		Zone:       g.zone(),
		PublicKeys: map[string]string{},
		Keys:       []keyJSON{},
		Meta:       map[string]string{},
		Devices:    []string{},
		RandomSeed: base64.StdEncoding.EncodeToString(seed),
	}
	maps.Copy(m.Meta, g.Tags)
	for _, k := range g.publicKeys() {
		m.PublicKeys[k.name] = k.line
		m.Keys = append(m.Keys, keyJSON{k.name, "ssh", k.line})
	}
	return encode(m)
}

type networkDataJSON struct {
	Links    []linkJSON    `json:"links"`
	Networks []networkJSON `json:"networks"`
	Services []string      `json:"services"`
}

type linkJSON struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	MAC  string `json:"ethernet_mac_address"`
	MTU  *int   `json:"mtu"`
}

// networkJSON follows Nova's schema of network_data.json, which requires all but Metric and Routes.
type networkJSON struct {
	ID        string `json:"id"`
	NetworkID string `json:"network_id"`
	Link      string `json:"link"`
	Type      string `json:"type"`
	// Metric is an addition, which the schema allows, here and in routes: cloud-init reads it.
	Metric int         `json:"metric,omitempty"`
	Routes []routeJSON `json:"routes,omitempty"`
}

type routeJSON struct {
	Network string `json:"network"`
	Netmask string `json:"netmask"`
	Gateway string `json:"gateway"`
	Metric  int    `json:"metric"`
}

// networkData configures DHCP on every interface, because addresses come from DHCP.
func networkData(g Guest) []byte {
	n := networkDataJSON{Links: []linkJSON{}, Networks: []networkJSON{}, Services: []string{}}
	for i, mac := range g.MACs {
		link := fmt.Sprintf("nic%d", i)
		n.Links = append(n.Links, linkJSON{ID: link, Type: "phy", MAC: mac.String()})
		id := fmt.Sprintf("network%d", i)
		network := networkJSON{ID: id, NetworkID: id, Link: link, Type: "ipv4_dhcp"}
		if len(g.MACs) > 1 {
			network.Metric = routeMetric(i)
		}
		if via, ok := g.metadataVia(i); ok {
			network.Routes = []routeJSON{{Address.Addr().String(), "255.255.255.255", via.String(), routeMetric(i)}}
		}
		n.Networks = append(n.Networks, network)
	}
	return encode(n)
}

// encode cannot fail: v contains only strings and integers.
func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return body
}

// vendorData wraps parts as OpenStack does: cloud-init treats the value of the key cloud-init like user-data.
func vendorData(parts []userdata.Part) []byte {
	if len(parts) == 0 {
		return []byte("{}")
	}
	return encode(map[string]string{"cloud-init": string(userdata.Join(parts...))})
}

func randomSeed() []byte {
	seed := make([]byte, 512) // as much as Nova provides
	rand.Read(seed)           // never fails
	return seed
}
