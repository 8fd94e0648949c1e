package mdserver

import "strconv"

// ec2Versions are those that clients fall back to when they find no newer one.
var ec2Versions = []string{"2009-04-04", "latest"}

// ec2 is the tree of Amazon's instance metadata, as far as it says something true
// here. The instance-id is the UUID, not i- and some digits: cloud-init runs its
// once-per-instance steps again when that id changes, so every source of metadata
// must give the same one, and a person can look it up.
func ec2(g Guest) []node {
	var versions []node
	for _, v := range ec2Versions {
		children := []node{dir("meta-data", ec2MetaData(g)...)}
		if len(g.UserData) > 0 {
			children = append(children, userData("user-data", g))
		}
		versions = append(versions, dir(v, children...).as(v))
	}
	return versions
}

func ec2MetaData(g Guest) []node {
	nodes := []node{
		file("ami-id", g.imageName()),
		file("ami-launch-index", "0"),
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
	nodes = append(nodes, dir("placement", file("availability-zone", g.zone())))
	if keys := ec2Keys(g); len(keys) > 0 {
		nodes = append(nodes, dir("public-keys", keys...))
	}
	return nodes
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

// userData is absent, not empty, where there is none: clients take 404 for no.
func userData(name string, g Guest) node {
	return computed(name, mimeData, func() []byte { return g.UserData })
}
