package clusters

import (
	"fmt"
	"net/url"

	"croft"
	"croft/cluster"
)

// Keys builds the keys of clusters and of the catalogue; it is the prefix of the partition. The list of all keys is in
// etcdstore.
type Keys string

func (k Keys) prefix() string { return string(k) + "clusters/" }

// Records returns the prefix of the records of clusters.
func (k Keys) Records() string                  { return k.prefix() + "records/" }
func (k Keys) record(id croft.ClusterID) string { return k.Records() + string(id) }

func (k Keys) events(id croft.ClusterID) string { return k.prefix() + "events/" + string(id) + "/" }
func (k Keys) event(id croft.ClusterID, n int64) string {
	return fmt.Sprintf("%s%012d", k.events(id), n)
}
func (k Keys) holder(id croft.ClusterID) string   { return k.prefix() + "holders/" + string(id) }
func (k Keys) accounts(id croft.ClusterID) string { return k.allAccounts() + string(id) + "/" }
func (k Keys) allAccounts() string                { return k.prefix() + "accounts/" }
func (k Keys) account(id croft.ClusterID, user string) string {
	return k.accounts(id) + escaped(user)
}

// Owned returns the prefix of the keys of a project: the project is not removed while a key below it exists.
func (k Keys) Owned(p croft.Project) string { return k.prefix() + "owned/" + string(p) + "/" }
func (k Keys) names(p croft.Project) string { return k.Owned(p) + "names/" }
func (k Keys) name(p croft.Project, name string) string {
	return k.names(p) + name
}

// made returns the prefix of one key for each living cluster of an appliance that a user requested. Requests compare
// the revision of the latest one.
func (k Keys) made(p croft.Project, user, appliance string) string {
	return k.Owned(p) + "made/" + appliance + "/" + escaped(user) + "/"
}
func (k Keys) madeBy(c cluster.Cluster) string {
	return k.made(c.Project, c.User, c.Appliance) + string(c.ID)
}
func (k Keys) credentialName(c cluster.Credential) string {
	return k.credentialNames(c.Project) + escaped(c.User) + "/" + c.Name
}
func (k Keys) credentialNames(p croft.Project) string { return k.Owned(p) + "credentials/" }
func (k Keys) ownAppliance(a cluster.Appliance) string {
	return k.Owned(a.Project) + "appliances/" + a.Name
}

// used returns the prefix of one key for each living cluster whose record names the given site, credential or
// implementation.
func (k Keys) used(kind, name string) string { return k.prefix() + "used/" + kind + "/" + name + "/" }

func (k Keys) sites() string                { return k.prefix() + "sites/" }
func (k Keys) credentials() string          { return k.prefix() + "credentials/" }
func (k Keys) appliances() string           { return k.prefix() + "appliances/" }
func (k Keys) implementations() string      { return k.prefix() + "implementations/" }
func (k Keys) images() string               { return k.prefix() + "images/" }
func (k Keys) site(name string) string      { return k.sites() + name }
func (k Keys) appliance(name string) string { return k.appliances() + name }

// appliancesOf returns the prefix of a project's appliances. The range [sharedFrom, sharedEnd) has the appliances whose
// unique names have no project; these names start with a small letter.
func (k Keys) appliancesOf(p croft.Project) string {
	return k.appliances() + cluster.ScopedAppliance(p, "")
}
func (k Keys) sharedFrom() string { return k.appliances() + "a" }
func (k Keys) sharedEnd() string  { return k.appliances() + "{" }

func (k Keys) implementation(i cluster.ImplementationID) string {
	return k.implementations() + string(i)
}

// implemented returns the prefix of one key for each implementation of an appliance, so that these can be read without
// others.
func (k Keys) allImplemented() string              { return k.prefix() + "implemented/" }
func (k Keys) implemented(appliance string) string { return k.allImplemented() + appliance + "/" }
func (k Keys) implementedBy(i cluster.Implementation) string {
	return k.implemented(i.Appliance) + string(i.ID)
}
func (k Keys) image(name string) string { return k.images() + name }
func (k Keys) allRevisions() string     { return k.prefix() + "revisions/" }

// revisions returns the prefix of the counters at a site.
func (k Keys) revisions(site string) string { return k.allRevisions() + site + "/" }
func (k Keys) revision(appliance, site string) string {
	return k.revisions(site) + appliance
}

// escaped makes a part of a key from a user's name, which may contain any characters.
func escaped(user string) string {
	if user == "" {
		return "%" // no escaped name is equal to this
	}
	return url.PathEscape(user)
}
