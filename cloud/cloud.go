// Package cloud defines what commands ask of a cloud, as interfaces of a few methods each. A command works alike
// over every implementation: cloudtest holds each of them to one contract. Today there is cloud/direct, over etcd
// and Placement.
package cloud

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"croft"
	"croft/access"
	"croft/actions"
	"croft/audit"
	"croft/cluster"
	"croft/compute"
	"croft/federation"
	"croft/hosts"
	"croft/internal/nearest"
	"croft/objects"
	pools "croft/pool/api"
	"croft/schedule"
	"croft/tenant"
	"croft/usage"
)

// Cloud is a connection to a cloud, with a field for each kind of request. Until Close, the methods of its fields
// may be called concurrently.
type Cloud struct {
	Requests    Requests
	Instances   Instances
	Feed        Feed
	Changes     Changes
	Holds       Holds
	Consoles    Consoles
	Ports       Ports
	Hosts       Hosts
	Aggregates  Aggregates
	Distances   Distances
	Policies    Policies
	Maintenance Maintenance
	Keys        Keys
	Pools       Pools
	Tickets     Tickets
	Projects    Projects
	Usage       Usage
	Users       Users
	Catalogue   Catalogue
	Images      Images
	Objects     Objects
	Definitions Definitions
	Audits      Audits
	Monitor     Monitor
	Tokens      Tokens
	Access      Access
	Actions     Actions
	Backups     Backups
	Partitions  Partitions
	Peers       Peers
	Clusters    Clusters
	Sites       Sites
	Credentials Credentials
	Appliances  Appliances
	SiteImages  SiteImages
	Seals       Seals
	Connection  io.Closer
}

// Close ends the connection.
func (c *Cloud) Close() error { return c.Connection.Close() }

// Requests asks for instances.
type Requests interface {
	// Request claims capacity on a host and orders the instance there, unless it is to hold the claim. NoCapacity: no
	// host fits; the error holds a *schedule.Explanation. Conflict: the ID or the name is taken, or the group has
	// another rule.
	Request(ctx context.Context, r schedule.Request) (schedule.Decision, error)
	// Explain lists the hosts that fit a request, and what each other host lacks. It claims nothing.
	Explain(ctx context.Context, r schedule.Request) (*schedule.Explanation, error)
	// Prepare announces many requests: until end is called, hosts are watched instead of read for each request.
	Prepare(ctx context.Context) (end func())
}

// Instances reads instances.
type Instances interface {
	// Find returns the project's instance with this ID or name. NotFound: also if the ID belongs to an instance of
	// another project.
	Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error)
	// FindByID returns the instance with this ID, of any project that the caller sees. NotFound.
	FindByID(ctx context.Context, id croft.InstanceID) (croft.Status, error)
	// List returns the instances of a project, oldest first; an empty project means all projects.
	List(ctx context.Context, project croft.Project) ([]croft.Status, error)
	// Page returns at most limit instances of a project with names behind this one, by name, and whether there are
	// more. It costs as much as the page is long, however large the cloud is.
	Page(ctx context.Context, project croft.Project, after string, limit int) (page []croft.Status, more bool,
		err error)
	// Watch calls changed after every change of an instance or a host, until ctx ends. Calls may overlap.
	Watch(ctx context.Context, changed func()) error
	// Wait returns once an instance has reached the goal, and calls progress, which may be nil, with each status until
	// then. Unavailable: the deadline of ctx passed. *schedule.Failure: the instance will never reach the goal.
	Wait(ctx context.Context, inst croft.Instance, goal schedule.Goal, progress func(croft.Status)) error
}

// Feed tells which instances change, in an order that can be resumed.
type Feed interface {
	// Follow calls begun with the revision after which no change is missed, then changed with all changes of one
	// revision, one call at a time and in the order of revisions, until ctx ends. A change may come twice. begun is
	// called again where changes were lost: then list again.
	Follow(ctx context.Context, begun func(revision int64), changed func([]croft.Change)) error
}

// Changes changes instances, each named by its ID or by its name in the project. Its methods return when the
// order is written. NotFound; Conflict: the instance changed meanwhile, or its state does not permit the change.
type Changes interface {
	Start(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error)
	Stop(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error)
	Reboot(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error)
	// Rebuild replaces the disk by a new one from the image.
	Rebuild(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error)
	// Recreate schedules a lost instance again, with its name, UUID and spec. NoCapacity: as for Requests.Request.
	Recreate(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error)
	// Keep makes an instance expire after life, from now on; 0: never.
	Keep(ctx context.Context, project croft.Project, idOrName string, life time.Duration) (croft.Instance, error)
	// Destroy removes an instance. force frees claim and name at once if the host does not answer.
	Destroy(ctx context.Context, project croft.Project, idOrName string, force bool) (schedule.Destroyed, error)
}

// Holds uses and releases the claims that are held by requests with Hold, each named by its ID or by its name in the
// project. NotFound; Conflict: it is not held any more.
type Holds interface {
	// Use orders the instance that the claim is held for. It returns when the order is written. Unavailable: the host
	// of the claim is silent or drained.
	Use(ctx context.Context, project croft.Project, idOrName string, u schedule.Use) (croft.Instance, error)
	// ReleaseHold gives the claim back. It returns what it was.
	ReleaseHold(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error)
}

// Consoles reaches the serial consoles of guests. NotFound: the instance has no host. Unavailable: the host does
// not answer, or the connection breaks.
type Consoles interface {
	// Log passes the guest's output to show. With follow it continues with new output, and ends without an error
	// when ctx is canceled.
	Log(ctx context.Context, st croft.Status, follow bool, show func(io.Reader) error) error
	// Attach lets use read and write the console; use may close it. Conflict: the console is already attached.
	Attach(ctx context.Context, st croft.Status, use func(io.ReadWriteCloser) error) error
}

// Ports reaches the network of guests.
type Ports interface {
	// Connect lets use speak with a TCP port of a guest; use may close the connection. NotFound, Conflict: the
	// instance has no address. Unavailable: the port does not answer.
	Connect(ctx context.Context, st croft.Status, port int, use func(io.ReadWriteCloser) error) error
}

// Hosts reads hosts.
type Hosts interface {
	// Records returns the records of the named hosts that exist; without names, of all hosts.
	Records(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
	// List returns all hosts with their capacity and claims, sorted by name. It returns the hosts also with an
	// error that concerns only some of the data.
	List(ctx context.Context) ([]hosts.Host, error)
	// Find is List for one host, with its instances. NotFound.
	Find(ctx context.Context, idOrName string) (hosts.Host, error)
	// Problems describes what is wrong with the store of the cloud, one sentence per problem.
	Problems(ctx context.Context) []string
}

// Maintenance changes hosts, each named by ID or name. NotFound.
type Maintenance interface {
	// Drain keeps new instances away from a host until Enable.
	Drain(ctx context.Context, idOrName string) (hosts.Host, error)
	Enable(ctx context.Context, idOrName string) (hosts.Host, error)
	// Accept lets an agent on another machine, or with another state directory, serve the host.
	Accept(ctx context.Context, idOrName string) (hosts.Host, error)
	// Forget removes a host. With force its instances are lost until somebody recreates or destroys them; Host.Lost
	// names them, also with an error. Conflict: the host is alive or has instances, and force is false.
	Forget(ctx context.Context, idOrName string, force bool) (hosts.Host, error)
	// MoveAll recreates the ephemeral instances of a host on other hosts, and reports the outcome for each.
	MoveAll(ctx context.Context, h hosts.Host) ([]hosts.Moved, error)
	// RemoveMember removes a host's server from etcd. Conflict: too few members would remain.
	RemoveMember(ctx context.Context, h hosts.Host) error
}

// Keys stores public SSH keys of projects, by name.
type Keys = schedule.Keys

// Pools reads the pools that the caller may use, as their manager knows them.
type Pools interface {
	// Pools lists the pools in the order of their file. Stock is nil where it is not for the caller.
	Pools(ctx context.Context) ([]pools.Pool, error)
	// Pool returns a pool. NotFound.
	Pool(ctx context.Context, name string) (pools.Pool, error)
	// Resources lists resources by number, of one pool if it is named; without all, those that have not ended.
	Resources(ctx context.Context, pool string, all bool) ([]pools.Resource, error)
	// Resource returns a resource by its number or name. NotFound.
	Resource(ctx context.Context, idOrName string) (pools.Resource, error)
	// Logs returns what a resource's commands printed. NotFound.
	Logs(ctx context.Context, idOrName string) ([]byte, error)
}

// Tickets opens, reads and closes tickets of pools. Each is named by its number. Unavailable: no manager of pools
// answers in time.
type Tickets interface {
	// Open opens a ticket. The same key gets the same ticket, so whoever does not know whether a ticket was opened asks
	// again with its key. OverQuota; Invalid.
	Open(ctx context.Context, o pools.Opening) (pools.Ticket, error)
	// Ticket returns a ticket, which begins its lease anew. NotFound.
	Ticket(ctx context.Context, id int64) (pools.Ticket, error)
	// Wait returns the ticket once it has a resource, has ended, or can never be served. It outlasts restarts of the
	// manager, until ctx ends. NotFound.
	Wait(ctx context.Context, id int64, w pools.Waiting) (pools.Ticket, error)
	// Close gives a ticket's resource back, or cancels the ticket. Closing twice is no error. NotFound.
	Close(ctx context.Context, id int64) (pools.Ticket, error)
	// Renew begins the lease of a ticket anew. NotFound; Conflict: it has ended, or has no lease.
	Renew(ctx context.Context, id int64) (pools.Ticket, error)
	// Tickets lists tickets, the oldest first.
	Tickets(ctx context.Context, of pools.Selection) (pools.Tickets, error)
}

// Projects manages projects and quotas; tenant.Projects says what each method does, and returns.
type Projects interface {
	// List returns the projects that the caller sees, by name; with names, those of them that have a record.
	List(ctx context.Context, names ...croft.Project) ([]tenant.Tenant, error)
	Create(ctx context.Context, p tenant.Tenant) (tenant.Tenant, error)
	Change(ctx context.Context, p tenant.Tenant) (tenant.Tenant, error)
	Remove(ctx context.Context, name croft.Project) error
	Defaults(ctx context.Context) (tenant.Defaults, error)
	SetDefaults(ctx context.Context, d tenant.Defaults) (tenant.Defaults, error)
	Accounts(ctx context.Context, names ...croft.Project) ([]tenant.Account, error)
	Check(ctx context.Context) ([]tenant.Discrepancy, error)
	Recount(ctx context.Context, name croft.Project) error
}

// Usage is what projects used, by day.
type Usage interface {
	// List returns what a filter chooses of what the caller sees. Invalid.
	List(ctx context.Context, f usage.Filter) (usage.Report, error)
}

// Images reads the catalog of images, and manages the images cached on hosts.
type Images interface {
	// Catalog lists the images that requests may name.
	Catalog(ctx context.Context) (Catalog, error)
	// Pull makes a host download and verify an image, and calls progress meanwhile. name is the image's name for
	// people. Unavailable: the host does not answer.
	Pull(ctx context.Context, host croft.Host, name, reference string, progress func(croft.Progress)) (*compute.Pulled,
		error)
	// Held lists the images cached on a host, most recently used first. Unavailable: the host does not answer.
	Held(ctx context.Context, host croft.Host) ([]compute.Held, error)
	// Remove removes from the cache of a host the image of a reference, or with a SHA-256, and returns it; without
	// either, all that no disk stands on. NotFound: the host does not have it. Unavailable.
	Remove(ctx context.Context, host croft.Host, reference string) ([]compute.Held, error)
}

// Catalog is the images that requests may name.
type Catalog struct {
	Images []Image `json:"images"` // by name
	// Sources are the beginnings of the addresses of other images that tenants may name; where there are none, tenants
	// name those of the catalog alone.
	Sources []string `json:"sources"`
	// SiteImages are images that implementations of appliances name.
	SiteImages []cluster.Image `json:"site_images,omitempty"`
}

// Image is an image of the catalog.
type Image struct {
	Name        string `json:"name"`
	Alias       string `json:"alias,omitempty"` // name of the image that it stands for
	Description string `json:"description,omitempty"`
	User        string `json:"user,omitempty"` // who logs in
	VerifiedBy  string `json:"verified_by"`
	URL         string `json:"url,omitempty"` // where hosts fetch it; for operators
}

// Objects reads and changes properties and tags. A thing is named by its ID, or by its name, in the project where its
// kind belongs to one. Callers see and change what their permissions allow, and nothing tells them of the rest.
type Objects interface {
	// Object returns what is noted about a thing, which may be nothing. NotFound: there is no such thing.
	Object(ctx context.Context, project croft.Project, kind objects.Kind, idOrName string) (objects.Object, error)
	// List returns the objects of a kind that the filter chooses; an empty project means all projects. Things about
	// which nothing is noted are not among them.
	List(ctx context.Context, project croft.Project, kind objects.Kind, f objects.Filter) ([]objects.Object, error)
	// Change changes what is noted about a thing, as a whole or not at all. NotFound; Denied; Invalid, where a limit or
	// the definition forbids the result; Conflict.
	Change(ctx context.Context, project croft.Project, kind objects.Kind, idOrName string, c objects.Change) (
		objects.Object, error)
}

// Definitions governs the properties of objects.
type Definitions interface {
	// Effective returns the definition that applies to a kind.
	Effective(ctx context.Context, kind objects.Kind) (objects.Definition, error)
	// At returns what is set at a place. NotFound: nothing.
	At(ctx context.Context, at objects.Place) (objects.Definition, error)
	// Set replaces the definition at a place, of the same generation. Objects stay as they are. Denied; Conflict.
	Set(ctx context.Context, d objects.Definition) (objects.Definition, error)
	// Remove removes what is set at a place. Denied; NotFound; Conflict.
	Remove(ctx context.Context, at objects.Place) error
	// Check lists the objects of a kind that violate the definition that applies now; an empty project means all
	// projects.
	Check(ctx context.Context, project croft.Project, kind objects.Kind) ([]objects.Breach, error)
}

// Audits compares all records with what exists.
type Audits interface {
	Audit(ctx context.Context) (audit.Report, error)
	// Repair is Audit, and mends what is marked as mendable; each difference has its outcome.
	Repair(ctx context.Context) (audit.Report, error)
}

// Monitor reads data that changes continuously.
type Monitor interface {
	// Mirror returns a copy of all hosts and instances, kept up to date while its Run runs.
	Mirror() Mirror
	// Usable returns an error if the store of the cloud does not answer or is read-only.
	Usable(ctx context.Context) error
	// Providers returns the capacity and the claims of each host.
	Providers(ctx context.Context) ([]croft.Provider, error)
	// Usages returns what the guests of a host use at the moment. Unavailable: the host does not answer.
	Usages(ctx context.Context, host croft.Host) ([]compute.Usage, error)
}

// Mirror is a copy of all hosts and instances.
type Mirror interface {
	// Run keeps the copy up to date until ctx ends, and calls changed after each change.
	Run(ctx context.Context, changed func()) error
	// Ready reports whether everything has been read once.
	Ready() bool
	// Look returns the copy, and an error if records could not be read.
	Look() ([]croft.Host, []croft.Status, error)
}

// Tokens manages the tokens with which machines join the cloud.
type Tokens interface {
	// Invite creates a token. Only the caller gets its secret.
	Invite(ctx context.Context, i Invitation) (Token, error)
	// List returns the valid tokens, without their secrets.
	List(ctx context.Context) ([]Token, error)
	// Revoke revokes a token, named by its name or a unique prefix of it. NotFound; Conflict: the prefix is ambiguous.
	Revoke(ctx context.Context, name string) (Token, error)
}

// LongestInvitation bounds the life of such a token, from a second on: it is a secret in transit.
const LongestInvitation = 7 * 24 * time.Hour

// Invitation describes a token to create.
type Invitation struct {
	Note   string
	Host   string // name or ID of the host that rejoins; empty: new hosts
	Life   time.Duration
	Member bool // hosts may serve etcd, even with strict trust

	// The addresses in use for reaching the cloud are given to joining machines, even loopback addresses.
	SameEtcd, SamePlacement bool
}

// Token is a join token; fields that are not known are empty.
type Token struct {
	Name, Note       string
	Created, Expires time.Time
	Secret           string // the text to join with
}

// Access manages access tokens, with which people and programs call the API. Machines join with Tokens.
type Access interface {
	// Create makes a token. Only the caller gets its secret. Invalid. Denied: the caller may not give this role.
	// Conflict: the project was created or removed meanwhile. NotFound: it has no record.
	Create(ctx context.Context, a NewAccess) (AccessToken, error)
	// List returns the tokens of a project by time of creation, without their secrets; an empty project means all that
	// the caller sees. Expired ones are listed for access.KeptExpired.
	List(ctx context.Context, project croft.Project) ([]AccessToken, error)
	// Revoke ends a token at once, and returns it. NotFound.
	Revoke(ctx context.Context, id access.TokenID) (AccessToken, error)
}

// NewAccess describes an access token to create.
type NewAccess struct {
	User    string        // whom the token stands for
	Project croft.Project // empty only with access.PartitionAdmin
	Role    access.Role
	Note    string
	By      string         // who makes it; empty: the user of this process
	Within  bool           // the maker's own right ends with the project, which has to have a record
	Parent  access.TokenID // the token with which it is made; empty: none
	Life    time.Duration  // access.ShortestTokenLife to access.LongestTokenLife
}

// AccessToken is an access token as its makers see it.
type AccessToken struct {
	ID        access.TokenID `json:"id"`
	Secret    string         `json:"token,omitempty"` // the text to send; known only when the token is made
	User      string         `json:"user"`
	Project   croft.Project  `json:"project,omitempty"`
	Roles     []access.Role  `json:"roles"`
	Note      string         `json:"note,omitempty"`
	Created   time.Time      `json:"created"`
	CreatedBy string         `json:"created_by"`
	Expires   time.Time      `json:"expires"`
}

// Actions is the action log of the cloud.
type Actions interface {
	// List returns a page of what was done, as far as the caller sees it, newest entries first. Invalid.
	List(ctx context.Context, f actions.Filter) (actions.Page, error)
}

// Backups copies all stored data of the cloud.
type Backups interface {
	// Snapshot writes everything in etcd to w and returns the number of bytes.
	Snapshot(ctx context.Context, w io.Writer) (int64, error)
}

// Partitions exchanges what partitions have on record. federation.Service says what each method does, and returns.
type Partitions interface {
	// List returns all partitions that are known here, home first.
	List(ctx context.Context) ([]federation.Partition, error)
	// Find returns a partition by its ID or its alias. NotFound.
	Find(ctx context.Context, idOrAlias string) (federation.Partition, error)
	// Export writes an export of home, and nothing before all of it was read; name is an alias for others, or empty.
	Export(ctx context.Context, name string, w io.Writer) (federation.Header, error)
	// Import shows an export, whole or not at all; alias, unless empty, is the partition's name here from now on.
	// changed is false if that very export is shown already. Invalid. Conflict: a newer one is shown, or the alias is
	// taken.
	Import(ctx context.Context, from io.Reader, alias string) (p federation.Partition, changed bool, err error)
	// Rows calls each with the rows of a kind that were imported of a partition. NotFound.
	Rows(ctx context.Context, idOrAlias string, kind federation.Kind, each func(json.RawMessage) error) error
	// Remove forgets a partition and everything imported of it, and returns what it was. NotFound.
	Remove(ctx context.Context, idOrAlias string) (federation.Partition, error)
}

// Peers manages the clouds with which this one exchanges requests; federation.Service says what each method does. A
// peer is named by its UUID or its alias.
type Peers interface {
	Card(ctx context.Context, name, endpoint string) (federation.Card, error)
	AddPeer(ctx context.Context, n federation.NewPeer) (federation.Partition, error)
	RemovePeer(ctx context.Context, idOrAlias string) (federation.Partition, error)
	Map(ctx context.Context, m federation.Mapping) (federation.Mapping, error)
	Unmap(ctx context.Context, m federation.Mapping) error
	Mappings(ctx context.Context, project croft.Project) ([]federation.Mapping, error)
	Signers(ctx context.Context) ([]federation.Signer, error)
	RetireSigner(ctx context.Context, id string) error
}

// HostCalled returns the host with this ID or, if there is none, with this name. NotFound.
func HostCalled(ctx context.Context, hosts Hosts, idOrName string) (croft.HostID, error) {
	all, err := hosts.Records(ctx)
	if err != nil {
		return "", err
	}
	if _, known := all[croft.HostID(idOrName)]; known {
		return croft.HostID(idOrName), nil
	}
	var names []string
	for _, h := range all {
		if h.Name == idOrName {
			return h.ID, nil
		}
		names = append(names, h.Name)
	}
	slices.Sort(names)
	return "", croft.Errorf(croft.NotFound, "there is no host %q%s", idOrName, nearest.Hint(idOrName, names))
}
