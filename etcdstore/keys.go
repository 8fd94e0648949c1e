package etcdstore

import (
	"strconv"
	"strings"

	"croft"
	"croft/etcdstore/actionlog"
	"croft/etcdstore/aggregates"
	"croft/etcdstore/clusters"
	"croft/etcdstore/partitions"
	"croft/etcdstore/policies"
	"croft/etcdstore/pools"
	"croft/etcdstore/properties"
	"croft/etcdstore/tenants"
	"croft/objects"
)

// Every key that croft stores is listed in this file. It builds them all but those of the rooms below this one, each of
// which has a keys.go.
//
//	/croft/home                                    partition and schema version, minted once
//	/croft/low/<member>                            present under a lease while the disk of a member of etcd is nearly full
//	/croft/partitions/<partition>                  another partition that is known here: its alias
//	/croft/<partition>/imported/head               which import is shown of that partition
//	/croft/<partition>/imported/begun/<import>     an import that is not shown, or no more
//	/croft/<partition>/imported/rows/<import>/<kind>/<number>
//	                                               a row of an import
//	/croft/<partition>/hosts/<host>                the host's record
//	/croft/<partition>/alive/<host>                since when, under the agent's lease, and its schema version
//	/croft/<partition>/seen/<host>                 when the agent last reported to be alive, to a minute
//	/croft/<partition>/agents/<host>               the agent that serves the host, under its lease
//	/croft/<partition>/twins/<host>/<place>        another agent with its UUID, on standby
//	/croft/<partition>/turn                        held by the caretaker
//	/croft/<partition>/drained/<host>              present while an operator keeps new claims away
//	/croft/<partition>/aggregates/<name>           hosts that an operator put together
//	/croft/<partition>/distances/<type>            distances that operators state between aggregates, locations and hosts
//	/croft/<partition>/policies/<name>             a policy by which CRUSH chooses hosts
//	/croft/<partition>/crush/last                  how many numbers hosts and locations were given for CRUSH
//	/croft/<partition>/crush/hosts/<host>          a host's number, until it is forgotten
//	/croft/<partition>/crush/locations/<name>      a location's number, by the name of its bucket
//	/croft/<partition>/sessions/<session>          present under a scheduler's lease
//	/croft/<partition>/instances/<instance>        the record
//	/croft/<partition>/userdata/<instance>         its user-data, as given, while it has a record
//	/croft/<partition>/names/<project>/<name>      the instance that has the name
//	/croft/<partition>/macs/<mac>/<instance>       present while the instance has a network interface with that MAC
//	/croft/<partition>/orders/<host>/<instance>    written by the scheduler, read by that agent
//	/croft/<partition>/observed/<host>/<instance>  written by that agent alone
//	/croft/<partition>/groups/<project>/<group>/<rule>/<host>/<instance>
//	                                               the name of a member of the group, on that host
//	/croft/<partition>/seats/<project>/<group>/<clause>/<location>/<seat>
//	                                               the instance that has a seat in the group: a number up to the
//	                                               clause's limit, or the instance; dots in the location are slashes
//	/croft/<partition>/keys/<project>/<name>       a public SSH key of the project
//	/croft/<partition>/projects/<project>          a project: parent, members, limits
//	/croft/<partition>/below/<project>/<project>   present for each project below another
//	/croft/<partition>/quota/default               limits of projects that have none of their own
//	/croft/<partition>/quota/used/<project>        what it and the projects below it use
//	/croft/<partition>/quota/stored/<project>      what it and the projects below it store
//	/croft/<partition>/quota/unsettled/<project>/<record>/<charged or repaid>
//	                                               a change of what it uses, until it is counted
//	/croft/<partition>/quota/recorded              until when the history of usage is complete, and who records it
//	/croft/<partition>/usage/now/<project>/<born>  what it uses now, and used today
//	/croft/<partition>/usage/days/<project>/<born>/<date>
//	                                               what it used on a day before
//	/croft/<partition>/tokens/<project>/<token>    an access token: whom it stands for, and the hash of its secret
//	/croft/<partition>/objects/<kind>/<project>/<id>
//	                                               properties and tags of a thing, while it exists
//	/croft/<partition>/objects/host/<host>         the same of a host, which has no project
//	/croft/<partition>/definitions/<level>/<kind>  what governs the properties of a kind
//	/croft/<partition>/actions/<project>/<time>-<nonce>-<count>
//	                                               entries of its action log that were written at once; - is no project
//	/croft/<partition>/actions-ended/<project>     when a project of this name was removed
//	/croft/<partition>/peers/known/<partition>     a peer: its alias, endpoint, public keys, its users' roles
//	/croft/<partition>/peers/mappings/<project>/<partition>/<project>
//	                                               the role that members of a project of a peer have in a project
//	/croft/<partition>/peers/signers/<key>         a public key of a server of the API, and where that is
//	/croft/<partition>/assertions/<partition>/<nonce>
//	                                               present while an assertion of a peer that was used would count
//	/croft/<partition>/invitations/<name>          what a token grants a joining host, sealed, until its expiry
//	/croft/<partition>/authority                   authority of hosts to trust, in PEM
//	/croft/<partition>/joins/<host>                addresses of its join server and of its gate
//	/croft/<partition>/control/<host>              the same, for programs of the previous version
//	/croft/<partition>/joined/<host>               that it joined, and the expiry of its certificates
//	/croft/<partition>/members/<host>              addresses of its etcd and Placement
//	/croft/<partition>/placement/<kind>/<id>       the embedded Placement: kinds as in placement/ledger/store.go
//	/croft/<partition>/placement/head              written by every transaction of Placement that writes
//	/croft/<partition>/pools/head                  the numbers given last: to tickets, resources, transactions
//	/croft/<partition>/pools/leader                the server that acts for the pools, under its lease
//	/croft/<partition>/pools/pools/<pool>          its settings, operator's orders and statistics
//	/croft/<partition>/pools/resources/<resource>  a resource; kept for a while after its end
//	/croft/<partition>/pools/tickets/<ticket>      a ticket; kept for a while after its end
//	/croft/<partition>/clusters/records/<cluster>  the record of a cluster; kept for a while after its end
//	/croft/<partition>/clusters/events/<cluster>/<number>
//	                                               something that happened to it
//	/croft/<partition>/clusters/holders/<cluster>  present under the lease of the manager that acts on it
//	/croft/<partition>/clusters/accounts/<cluster>/<user>
//	                                               an account on it; users' names are escaped in keys of clusters
//	/croft/<partition>/clusters/owned/<project>/names/<name>
//	                                               the living cluster that has the name
//	/croft/<partition>/clusters/owned/<project>/made/<appliance>/<user>/<cluster>
//	                                               present for each living cluster: requests compare the latest one
//	/croft/<partition>/clusters/owned/<project>/credentials/<user>/<name>
//	                                               the credential that has the name
//	/croft/<partition>/clusters/owned/<project>/appliances/<name>
//	                                               present for each appliance of a project
//	/croft/<partition>/clusters/used/<kind>/<name>/<cluster>
//	                                               present for each living cluster that has a site, a credential or an
//	                                               implementation
//	/croft/<partition>/clusters/sites/<name>       a site where clusters can be built
//	/croft/<partition>/clusters/credentials/<id>   a credential, its secret sealed
//	/croft/<partition>/clusters/appliances/<name>  what clusters are for
//	                                               <name> is @<project>:<name> for an appliance of a project
//	/croft/<partition>/clusters/implementations/<id>
//	                                               how a site builds an appliance
//	/croft/<partition>/clusters/implemented/<appliance>/<id>
//	                                               present for each implementation, to find those of an appliance
//	/croft/<partition>/clusters/revisions/<site>/<appliance>
//	                                               the number of its latest implementation
//	/croft/<partition>/clusters/images/<name>      an image that is brought to sites
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
func (k keys) sessions() string              { return k.prefix + "sessions/" }
func (k keys) session(s string) string       { return k.sessions() + s }
func (k keys) instances() string             { return k.prefix + "instances/" }
func (k keys) instance(i croft.InstanceID) string {
	return k.instances() + string(i)
}
func (k keys) allUserData() string                { return k.prefix + "userdata/" }
func (k keys) userData(i croft.InstanceID) string { return k.allUserData() + string(i) }
func (k keys) names() string                      { return k.prefix + "names/" }
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

// Group keys are built so that key ranges answer what a rule asks: members on this host, members on others,
// members by another rule.
func (k keys) groups() groupKeys { return groupKeys(k) }

func (k keys) allSSHKeys() string                         { return k.prefix + "keys/" }
func (k keys) sshKeys(p croft.Project) string             { return k.allSSHKeys() + string(p) + "/" }
func (k keys) sshKey(p croft.Project, name string) string { return k.sshKeys(p) + name }

// properties is the key of what is noted about a host.
func (k keys) properties(h croft.HostID) string {
	return properties.Keys(k.prefix).Object(objects.Ref{Kind: objects.Host, ID: string(h)})
}

func (k keys) aggregates() aggregates.Keys { return aggregates.Keys(k.prefix) }

// policies has the keys of CRUSH policies, and of the numbers of hosts.
func (k keys) policies() policies.Keys { return policies.Keys(k.prefix) }

// tenants has the keys of projects, and of what they use.
func (k keys) tenants() tenants.Keys { return tenants.Keys(k.prefix) }

// owned has the keys of a project that others store.
func (k keys) owned(p croft.Project) tenants.Owned {
	return tenants.Owned{
		Kept: []tenants.Part{{Prefix: k.names() + string(p) + "/", Noun: "instance"},
			{Prefix: clusters.Keys(k.prefix).Owned(p), Noun: "cluster record"}},
		End: actionlog.Keys(k.prefix).End(p),
		Rest: []tenants.Part{{Prefix: k.sshKeys(p), Noun: "SSH key"}, {Prefix: k.tenants().TokensOf(p), Noun: "token"},
			{Prefix: properties.Keys(k.prefix).Project(objects.Image, p), Noun: "described image"},
			{Prefix: partitions.PeerKeys(k.prefix).MappingsOf(p), Noun: "project mapping"}}}
}

func (k keys) trust() trustKeys { return trustKeys(k) }

func (k keys) members() string                  { return k.prefix + "members/" }
func (k keys) etcdMember(h croft.HostID) string { return k.members() + string(h) }

// pools has the keys of the managers of pools.
func (k keys) pools() pools.Keys { return pools.Keys(k.prefix + "pools/") }

// trustKeys are the keys of who is trusted, and of hosts that join.
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
func (k groupKeys) member(p croft.Project, m croft.Member) string {
	return k.host(p, m.Affinity, m.Host) + string(m.Instance)
}

// Seat keys are built so that a key answers whether a number is taken, and key ranges whether a member is elsewhere.
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
