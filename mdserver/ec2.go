package mdserver

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"croft/internal/userdata"
)

// ec2Versions are those that clients fall back to when they find no newer one.
var ec2Versions = []string{"2009-04-04", "latest"}

// ec2 is the tree of Amazon's instance metadata, as far as it says something true
// here. The instance-id is the UUID, not i- and some digits: cloud-init runs its
// once-per-instance steps again when that id changes, so every source of metadata
// must give the same one, and a person can look it up. There is no instance
// identity document: nobody could check a signature of ours.
func ec2(g Guest, client string) []node {
	var versions []node
	for _, v := range ec2Versions {
		versions = append(versions, lazyDir(v, func() []node {
			children := []node{lazyDir("meta-data", func() []node { return ec2MetaData(g) })}
			if data := ec2UserData(g, client); len(data) > 0 {
				children = append(children, computed("user-data", mimeData, func() []byte { return data }))
			}
			return children
		}).as(v))
	}
	return versions
}

func ec2MetaData(g Guest) []node {
	nodes := []node{
		file("ami-id", g.imageName()),
		file("ami-launch-index", "0"),
		dir("block-device-mapping", file("ami", "vda"), file("root", "/dev/vda")),
		file("hostname", g.Hostname()),
		file("instance-id", string(g.ID)),
		file("instance-type", g.size()),
		file("local-hostname", g.Hostname()),
	}
	if g.Address.Is4() {
		nodes = append(nodes, file("local-ipv4", g.Address.String()))
	}
	if len(g.MACs) > 0 {
		nodes = append(nodes, file("mac", g.MACs[0].String()))
	}
	nodes = append(nodes, dir("placement", file("availability-zone", g.zone()), file("region", g.region())))
	if keys := ec2Keys(g); len(keys) > 0 {
		nodes = append(nodes, dir("public-keys", keys...))
	}
	if tags := ec2Tags(g); len(tags) > 0 {
		nodes = append(nodes, dir("tags", dir("instance", tags...)))
	}
	return nodes
}

// ec2Tags leaves out tags that a path cannot lead to: OpenStack's tree has them.
func ec2Tags(g Guest) []node {
	var tags []node
	for _, key := range slices.Sorted(maps.Keys(g.Tags)) {
		if key != "" && !strings.ContainsAny(key, "/\n") {
			tags = append(tags, file(key, g.Tags[key]))
		}
	}
	return tags
}

// ec2Keys lists key 0 as 0=NAME, although its directory is called 0.
func ec2Keys(g Guest) []node {
	var keys []node
	for i, k := range g.publicKeys() {
		n := strconv.Itoa(i)
		keys = append(keys, dir(n, file("openssh-key", k.line)).as(n+"="+k.name))
	}
	return keys
}

// ec2UserData is what the user gave. This tree has no place for what operators and
// croft itself add, so cloud-init, which takes MIME, gets all of it here; others,
// who may know nothing but scripts, get what the user gave.
func ec2UserData(g Guest, client string) []byte {
	if !isCloudInit(client) {
		return g.UserData
	}
	parts := append(g.vendorLayer(), g.ownParts()...)
	if len(g.UserData) > 0 {
		parts = append(parts, userdata.Part{Name: "user-data", Data: g.UserData})
	}
	return userdata.Join(parts...)
}

// isCloudInit tells by what a client calls itself. Where cloud-init sends a token
// along, as for EC2's tree, its HTTP library's name takes the place of its own.
func isCloudInit(client string) bool {
	return strings.HasPrefix(client, "Cloud-Init/") || strings.HasPrefix(client, "python-requests/")
}

// userData is absent, not empty, where there is none: clients take 404 for no.
func userData(name string, g Guest) node {
	return computed(name, mimeData, func() []byte { return g.UserData })
}
