package mdserver

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"croft/internal/userdata"
)

// ec2Versions are the versions that clients use as a fallback.
var ec2Versions = []string{"2009-04-04", "latest"}

// ec2 is the tree of Amazon's instance metadata, as far as it applies here. The instance-id is the UUID, not i- and
// some digits: cloud-init repeats its once-per-instance steps when that ID changes, so every source of metadata must
// return the same one, and users can look up a UUID. There is no instance identity document, because no client could
// verify croft's signature.
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

// ec2Tags leaves out tags that do not fit in a path; OpenStack's tree contains them.
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

// ec2UserData returns the user's data. This tree has no place for the parts of operators and croft. So cloud-init,
// which accepts MIME, gets all parts here; other clients, which may support only scripts, get only the user's data.
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

// isCloudInit recognizes cloud-init by the client's User-Agent. If cloud-init sends a token, as for EC2's
// tree, it sends its HTTP library's name instead of its own.
func isCloudInit(client string) bool {
	return strings.HasPrefix(client, "Cloud-Init/") || strings.HasPrefix(client, "python-requests/")
}

// userData is a file that is absent, not empty, if there is no user data, because clients interpret 404 as none.
func userData(name string, g Guest) node {
	return computed(name, mimeData, func() []byte { return g.UserData })
}
