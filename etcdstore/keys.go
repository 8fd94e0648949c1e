package etcdstore

import (
	"strconv"
	"strings"

	"croft"
	"croft/etcdstore/actionlog"
	"croft/etcdstore/aggregates"
	"croft/etcdstore/backups"
	"croft/etcdstore/clusters"
	"croft/etcdstore/images"
	"croft/etcdstore/partitions"
	"croft/etcdstore/policies"
	"croft/etcdstore/pools"
	"croft/etcdstore/properties"
	"croft/etcdstore/tenants"
	"croft/etcdstore/volumes"
	"croft/tenant/objects"
)

// This file lists every key that croft stores. It builds all keys except the keys of the packages below this one, each
// of which has a keys.go.
//
//	/croft/home                                    partition and schema version, minted once
//
// /croft/low/<member> present under a lease while the disk of a member of etcd is nearly full
//
//	/croft/partitions/<partition>                  another partition that is known here: its alias
//	/croft/<partition>/imported/head               the visible import of that partition
//	/croft/<partition>/imported/begun/<import>     an import that is not or no longer visible
//	/croft/<partition>/imported/rows/<import>/<kind>/<number>
//	                                               a row of an import
//	/croft/<partition>/hosts/<host>                the host's record
//	/croft/<partition>/alive/<host>                time since when, and schema version of the agent, under its lease
//	/croft/<partition>/seen/<host>                 when the agent was last alive, in minutes
//	/croft/<partition>/agents/<host>               the agent that serves the host, under its lease
//	/croft/<partition>/twins/<host>/<place>        another agent with its UUID, on standby
//	/croft/<partition>/turn                        held by the caretaker
//	/croft/<partition>/drained/<host>              present while an operator drains the host
//	/croft/<partition>/dead/<host>                 that the host was declared dead, or that its fence began
//	/croft/<partition>/aggregates/<name>           an aggregate of hosts
//	/croft/<partition>/distances/<type>            stated distances between aggregates, locations and hosts
//	/croft/<partition>/policies/<name>             a CRUSH policy
//	/croft/<partition>/sizes/all                   the named sizes of instances
//	/croft/<partition>/crush/last                  count of numbers assigned to hosts and locations for CRUSH
//	/croft/<partition>/crush/hosts/<host>          a host's number, until it is forgotten
//	/croft/<partition>/crush/locations/<name>      a location's number, by the name of its bucket
//	/croft/<partition>/sessions/<session>          present under a scheduler's lease
//	/croft/<partition>/instances/<instance>        the record
//	/croft/<partition>/userdata/<instance>         its user-data, unchanged, while it has a record
//	/croft/<partition>/names/<project>/<name>      the instance that has the name
//	/croft/<partition>/macs/<mac>/<instance>       present while the instance has a network interface with that MAC
//	/croft/<partition>/addresses/<address>/<host>  the instance that has a chosen address on that host
//	/croft/<partition>/orders/<host>/<instance>    written by the scheduler, read by that agent
//	/croft/<partition>/observed/<host>/<instance>  written only by that agent
//	/croft/<partition>/storages/<name>             a shared storage: its UUID and path, and the host that founded it
//	/croft/<partition>/volumes/records/<host>/<volume>
//	                                               a volume: its record, and the order about it for its host's agent, or its keeper's
//	/croft/<partition>/volumes/names/<project>/<name>
//	                                               the volume that has the name, as host and UUID
//	/croft/<partition>/volumes/attached/<instance>/<volume>
//	                                               the volume's host; present while it is attached to the instance;
//	                                               also of a snapshot of the instance
//	/croft/<partition>/volumes/lost/<instance>/<volume>
//	                                               the host of a snapshot that the instance lost with that host
//	/croft/<partition>/volumes/snapshots/<project>/<instance>/<name>
//	                                               the snapshot that has the name, as host and UUID
//	/croft/<partition>/backups/stores/<name>       where backups are kept; the access to it is sealed
//	/croft/<partition>/backups/records/<project>/<name>
//	                                               a backup of an instance
//	/croft/<partition>/backups/schedules/<project>/<name>
//	                                               when backups are made, and which are kept
//	/croft/<partition>/backups/jobs/<host>/<job>   what a host's agent is to do with a store; access sealed for it
//	/croft/<partition>/images/records/<image>      an image of the catalog
//	/croft/<partition>/images/names/<project>/<name>
//	                                               the image that has the name
//	/croft/<partition>/images/public/<name>        the public image that has the name
//	/croft/<partition>/images/shared/<project>/<image>
//	                                               the UUID of a project that an image is shared with
//	/croft/<partition>/images/copies/<host>/<image>
//	                                               the order for a copy of an image, and what the host reports of it
//	/croft/<partition>/groups/<project>/<group>/<rule>/<host>/<instance>
//	                                               the name of a member of the group, on that host
//	/croft/<partition>/seats/<project>/<group>/<clause>/<location>/<seat>
//	                                               the instance that has a seat in the group: a number up to the
//	                                               clause's limit, or the instance; dots in the location are slashes
//	/croft/<partition>/keys/<project>/<name>       a public SSH key of the project
//	/croft/<partition>/projects/<project>          a project: parent, members, limits
//	/croft/<partition>/below/<project>/<project>   present for each project below another
//	/croft/<partition>/quota/default               limits of projects that set none
//	/croft/<partition>/quota/used/<project>        usage of the project and those below it
//	/croft/<partition>/quota/stored/<project>      stored records of the project and those below it
//	/croft/<partition>/quota/unsettled/<project>/<record>/<charged or repaid>
//	                                               a change of its usage, until it is counted
//	/croft/<partition>/quota/recorded              time up to which the history of usage is complete, and its recorder
//	/croft/<partition>/usage/now/<project>/<born>  its current usage, and today's
//	/croft/<partition>/usage/days/<project>/<born>/<date>
//	                                               its usage on an earlier day
//	/croft/<partition>/usage/capacity              what the hosts offer now, and offered today
//	/croft/<partition>/usage/offered/<date>        what they offered on an earlier day
//	/croft/<partition>/tokens/<project>/<token>    an access token: its user, and the hash of its secret
//	/croft/<partition>/page/sessions/<holder>/<session>
//	                                               a browser that is logged in, under a lease: its sealed credentials
//	/croft/<partition>/page/links/<link>           a one-time link of croft page, under a lease
//	/croft/<partition>/objects/<kind>/<project>/<id>
//	                                               properties and tags of an object, while it exists
//	/croft/<partition>/objects/host/<host>         the same for a host, which has no project
//	/croft/<partition>/definitions/<level>/<kind>  definitions of the properties of a kind
//	/croft/<partition>/actions/<project>/<time>-<nonce>-<count>
//
// entries of its action log, written together; - stands for no project
//
//	/croft/<partition>/actions-ended/<project>     when a project of this name was removed
//	/croft/<partition>/peers/known/<partition>     a peer: its alias, endpoint, public keys, its users' roles
//	/croft/<partition>/peers/mappings/<project>/<partition>/<project>
//	                                               the role that a peer's project has in a project
//	/croft/<partition>/peers/signers/<key>         a public key of an API server, and its address
//	/croft/<partition>/assertions/<partition>/<nonce>
//	                                               present while a used assertion of a peer would be valid
//	/croft/<partition>/invitations/<name>          sealed grant of a join token, until its expiry
//	/croft/<partition>/authority                   authority of hosts to trust, in PEM
//	/croft/<partition>/joins/<host>                addresses of its join server and of its gate
//	/croft/<partition>/control/<host>              the same, for programs of the previous version
//	/croft/<partition>/joined/<host>               when it joined, and the expiry of its certificates
//	/croft/<partition>/members/<host>              addresses of its etcd and Placement
//	/croft/<partition>/placement/<kind>/<id>       the embedded Placement: kinds as in placement/ledger/store.go
//	/croft/<partition>/placement/head              written by every writing transaction of Placement
//	/croft/<partition>/pools/head                  the last numbers of tickets, resources and transactions
//	/croft/<partition>/pools/leader                the leading server of pools, under its lease
//	/croft/<partition>/pools/pools/<pool>          its settings, operator's orders and statistics
//	/croft/<partition>/pools/resources/<resource>  a resource; kept for some time after its end
//	/croft/<partition>/pools/tickets/<ticket>      a ticket; kept for some time after its end
//	/croft/<partition>/clusters/records/<cluster>  the record of a cluster; kept for some time after its end
//	/croft/<partition>/clusters/events/<cluster>/<number>
//	                                               an event of the cluster
//	/croft/<partition>/clusters/holders/<cluster>  present under the lease of the manager that acts on it
//	/croft/<partition>/clusters/accounts/<cluster>/<user>
//	                                               an account on it; users' names are escaped in keys of clusters
//	/croft/<partition>/clusters/owned/<project>/names/<name>
//	                                               the living cluster that has the name
//	/croft/<partition>/clusters/owned/<project>/made/<appliance>/<user>/<cluster>
//	                                               present for each living cluster; requests compare the latest one
//	/croft/<partition>/clusters/owned/<project>/credentials/<user>/<name>
//	                                               the credential that has the name
//	/croft/<partition>/clusters/owned/<project>/appliances/<name>
//	                                               present for each appliance of a project
//	/croft/<partition>/clusters/used/<kind>/<name>/<cluster>
//
// present for each living cluster that uses a site, a credential or an
//
//	                                               implementation
//	/croft/<partition>/clusters/sites/<name>       a site where clusters can be built
//	/croft/<partition>/clusters/credentials/<id>   a credential, its secret sealed
//	/croft/<partition>/clusters/appliances/<name>  an appliance of clusters;
//	                                               <name> is @<project>:<name> for an appliance of a project
//	/croft/<partition>/clusters/implementations/<id>
//	                                               how a site builds an appliance
//	/croft/<partition>/clusters/implemented/<appliance>/<id>
//	                                               present for each implementation of the appliance
//	/croft/<partition>/clusters/revisions/<site>/<appliance>
//	                                               the number of its latest implementation
//	/croft/<partition>/clusters/images/<name>      an image that is copied to sites
const (
	root    = "/croft/"
	homeKey = root + "home"
)

// keys builds the keys of one partition.
type keys struct{ prefix string } // /croft/<partition>/

func keysOf(p croft.PartitionID) keys { return keys{root + string(p) + "/"} }

func (k keys) hosts() string                 { return k.prefix + "hosts/" }
func (k keys) host(h croft.HostID) string    { return k.hosts() + string(h) }
func (k keys) allAlive() string              { return k.prefix + "alive/" }
func (k keys) alive(h croft.HostID) string   { return k.allAlive() + string(h) }
func (k keys) allSeen() string               { return k.prefix + "seen/" }
func (k keys) seen(h croft.HostID) string    { return k.allSeen() + string(h) }
func (k keys) agent(h croft.HostID) string   { return k.prefix + "agents/" + string(h) }
func (k keys) allTwins() string              { return k.prefix + "twins/" }
func (k keys) twins(h croft.HostID) string   { return k.allTwins() + string(h) + "/" }
func (k keys) turn() string                  { return k.prefix + "turn" }
func (k keys) allDrained() string            { return k.prefix + "drained/" }
func (k keys) drained(h croft.HostID) string { return k.allDrained() + string(h) }
func (k keys) allDead() string               { return k.prefix + "dead/" }
func (k keys) dead(h croft.HostID) string    { return k.allDead() + string(h) }
func (k keys) storages() string              { return k.prefix + "storages/" }
func (k keys) storage(name string) string    { return k.storages() + name }
func (k keys) sessions() string              { return k.prefix + "sessions/" }
func (k keys) session(s string) string       { return k.sessions() + s }
func (k keys) instances() string             { return k.prefix + "instances/" }
func (k keys) instance(i croft.InstanceID) string {
	return k.instances() + string(i)
}
func (k keys) allUserData() string                  { return k.prefix + "userdata/" }
func (k keys) pageSessions(holder string) string    { return k.prefix + "page/sessions/" + holder + "/" }
func (k keys) pageSession(holder, id string) string { return k.pageSessions(holder) + id }
func (k keys) pageLink(id string) string            { return k.prefix + "page/links/" + id }
func (k keys) userData(i croft.InstanceID) string   { return k.allUserData() + string(i) }
func (k keys) names() string                        { return k.prefix + "names/" }
func (k keys) name(p croft.Project, name string) string {
	return k.names() + string(p) + "/" + name
}
func (k keys) macs(mac string) string       { return k.prefix + "macs/" + mac + "/" }
func (k keys) allOrders() string            { return k.prefix + "orders/" }
func (k keys) orders(h croft.HostID) string { return k.allOrders() + string(h) + "/" }
func (k keys) order(h croft.HostID, i croft.InstanceID) string {
	return k.orders(h) + string(i)
}
func (k keys) allObserved() string              { return k.prefix + "observed/" }
func (k keys) observedOn(h croft.HostID) string { return k.allObserved() + string(h) + "/" }
func (k keys) observed(h croft.HostID, i croft.InstanceID) string {
	return k.observedOn(h) + string(i)
}

// Group keys have a structure in which key ranges answer the questions of rules: members on this host, members on other
// hosts, members with another rule.
func (k keys) groups() groupKeys { return groupKeys(k) }

func (k keys) allSSHKeys() string             { return k.prefix + "keys/" }
func (k keys) sshKeys(p croft.Project) string { return k.allSSHKeys() + string(p) + "/" }

// properties returns the key of a host's properties.
func (k keys) properties(h croft.HostID) string {
	return properties.Keys(k.prefix).Object(objects.Ref{Kind: objects.Host, ID: string(h)})
}

func (k keys) aggregates() aggregates.Keys { return aggregates.Keys(k.prefix) }

// policies returns the keys of CRUSH policies, and of the numbers of hosts.
func (k keys) policies() policies.Keys { return policies.Keys(k.prefix) }

// tenants returns the keys of projects, and of their usage.
func (k keys) tenants() tenants.Keys { return tenants.Keys(k.prefix) }

// owned returns the keys of a project that other packages store.
func (k keys) owned(p croft.Project) tenants.Owned {
	return tenants.Owned{
		Kept: []tenants.Part{{Prefix: k.names() + string(p) + "/", Noun: "instance"},
			{Prefix: clusters.Keys(k.prefix).Owned(p), Noun: "cluster record"},
			{Prefix: k.volumes().Names(p), Noun: "volume"}, {Prefix: k.volumes().Snapshots(p), Noun: "snapshot"},
			{Prefix: k.backups().Of(p), Noun: "backup"}, {Prefix: k.backups().Schedules(p), Noun: "backup schedule"},
			{Prefix: images.Keys(k.prefix).Names(p), Noun: "image"}},
		End: actionlog.Keys(k.prefix).End(p),
		Rest: []tenants.Part{{Prefix: k.sshKeys(p), Noun: "SSH key"}, {Prefix: k.tenants().TokensOf(p), Noun: "token"},
			{Prefix: properties.Keys(k.prefix).Project(objects.Image, p), Noun: "described image"},
			{Prefix: partitions.PeerKeys(k.prefix).MappingsOf(p), Noun: "project mapping"}}}
}

func (k keys) trust() trustKeys { return trustKeys(k) }

func (k keys) members() string                  { return k.prefix + "members/" }
func (k keys) etcdMember(h croft.HostID) string { return k.members() + string(h) }

// volumes returns the keys of volumes.
func (k keys) volumes() volumes.Keys { return volumes.Keys(k.prefix) }

// backups returns the keys of backups.
func (k keys) backups() backups.Keys { return backups.Keys(k.prefix) }

// pools returns the keys of the managers of pools.
func (k keys) pools() pools.Keys { return pools.Keys(k.prefix + "pools/") }

// trustKeys are the keys of the authorities, and of hosts that join.
type trustKeys keys

func (k trustKeys) invitations() string           { return k.prefix + "invitations/" }
func (k trustKeys) invitation(name string) string { return k.invitations() + name }

func (k trustKeys) authority() string                { return k.prefix + "authority" }
func (k trustKeys) joins() string                    { return k.prefix + "joins/" }
func (k trustKeys) join(h croft.HostID) string       { return k.joins() + string(h) }
func (k trustKeys) formerJoins() string              { return k.prefix + "control/" }
func (k trustKeys) formerJoin(h croft.HostID) string { return k.formerJoins() + string(h) }
func (k trustKeys) allJoined() string                { return k.prefix + "joined/" }
func (k trustKeys) joined(h croft.HostID) string     { return k.allJoined() + string(h) }

// groupKeys are the keys of groups and their members.
type groupKeys keys

func (k groupKeys) all() string { return k.prefix + "groups/" }
func (k groupKeys) group(p croft.Project, group string) string {
	return k.all() + string(p) + "/" + group + "/"
}
func (k groupKeys) rule(p croft.Project, a croft.Affinity) string {
	return k.group(p, a.Group) + string(a.Rule) + "/"
}
func (k groupKeys) host(p croft.Project, a croft.Affinity, h croft.HostID) string {
	return k.rule(p, a) + string(h) + "/"
}
func (k groupKeys) member(p croft.Project, m croft.GroupMember) string {
	return k.host(p, m.Affinity, m.Host) + string(m.Instance)
}

// Seat keys have a structure in which a single key answers whether a number is taken, and key ranges whether a member
// is in another location.
func (k groupKeys) allSeats() string { return k.prefix + "seats/" }
func (k groupKeys) seats(p croft.Project, group string) string {
	return k.allSeats() + string(p) + "/" + group + "/"
}
func (k groupKeys) clause(p croft.Project, s croft.Seat) string {
	return k.seats(p, s.Group) + s.Clause + "/"
}
func (k groupKeys) location(p croft.Project, s croft.Seat) string {
	return k.clause(p, s) + strings.ReplaceAll(s.Location, "/", ".") + "/"
}
func (k groupKeys) seat(p croft.Project, s croft.Seat) string {
	if s.Counted() {
		return k.location(p, s) + strconv.Itoa(s.Number)
	}
	return k.location(p, s) + string(s.Instance)
}
