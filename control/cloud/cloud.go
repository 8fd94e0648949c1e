// Package cloud holds the services behind the operations of the API: those of the rooms, and what stores and hosts
// provide, as interfaces of a few methods each. Package cloud/direct joins them over etcd and Placement, and package
// cloudtest checks the API against one contract.
package cloud

import (
	"context"
	"io"
	"time"

	"croft"
	"croft/cluster/registry"
	"croft/cluster/requests"
	"croft/compute"
	"croft/control/api"
	"croft/control/federation"
	"croft/hosts"
	"croft/hosts/audit"
	"croft/schedule"
	"croft/schedule/backups"
	"croft/schedule/images"
	"croft/schedule/resize"
	"croft/schedule/volumes"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/usage"
)

// Cloud is a connection to a cloud, with a field for each kind of request. Until Close, the methods of its fields
// may be called concurrently.
type Cloud struct {
	Scheduler   *schedule.Scheduler // requests, shows and changes instances
	Instances   Instances
	Consoles    Consoles
	Ports       Ports
	Aggregates  Aggregates
	Distances   Distances
	Policies    Policies
	NamedSizes  NamedSizes
	Fleet       *hosts.Fleet
	Etcd        Etcd
	Keys        Keys
	Projects    tenant.Projects
	Usage       Usage
	Claims      Claims
	Images      Images
	Auditor     *audit.Auditor
	Monitor     Monitor
	Tokens      Tokens
	Access      Access
	Federation  *federation.Service
	Clusters    *requests.Service
	Sites       registry.Sites
	Credentials registry.Credentials
	Appliances  registry.Appliances
	SiteImages  registry.SiteImages
	Volumes     *volumes.Manager
	Backups     *backups.Manager
	Catalog     *images.Manager // images of the cloud's catalog
	Sizes       *resize.Manager // changes the sizes of instances
	Connection  io.Closer
}

// Close ends the connection.
func (c *Cloud) Close() error { return c.Connection.Close() }

// Instances lists the instances of projects and tells which instances change.
type Instances interface {
	// Page returns at most limit instances of a project whose names sort after this one, by name, and whether there are
	// more. Its cost depends only on the length of the page, not on the size of the cloud.
	Page(ctx context.Context, project croft.Project, after string, limit int) (page []croft.Status, more bool,
		err error)
	// Overview returns the instances of a project by name, or of all if it is empty, for readers that change nothing:
	// without orders and user-data, and of their hosts only what lists show. Callers must not change the statuses. It
	// costs little in a process that follows.
	Overview(ctx context.Context, project croft.Project) ([]*croft.Status, error)
	// Some returns those of the named instances that exist, in this order.
	Some(ctx context.Context, ids []croft.InstanceID) ([]croft.Status, error)
	// Follow calls begun with the revision from which no change is missed. It then calls changed with all changes of
	// one revision, one call at a time and in the order of revisions, until ctx ends. A change may be reported twice.
	// If changes were lost, it makes this first call again: then list again.
	Follow(ctx context.Context, begun func(revision int64), changed func([]croft.Change)) error
}

// Consoles reaches the serial consoles, the screens and the agents of guests. NotFound: the instance has no host.
// Unavailable: the host does not answer, or the connection breaks.
type Consoles interface {
	// Log passes the guest's output to show. With follow, it continues with new output, and returns no error when ctx
	// is canceled.
	Log(ctx context.Context, st croft.Status, follow bool, show func(io.Reader) error) error
	// Attach lets use read and write the console; use may close it. With takeOver it ends the attachment of another
	// client, which is a Conflict otherwise.
	Attach(ctx context.Context, st croft.Status, takeOver bool, use func(io.ReadWriteCloser) error) error
	// AttachScreen is Attach for the screen, by the protocol of VNC. Conflict: the machine has no screen, too.
	AttachScreen(ctx context.Context, st croft.Status, takeOver bool, use func(io.ReadWriteCloser) error) error
	// Screen passes a PNG of what the screen shows to show. Conflict: the guest is off, or has no screen.
	Screen(ctx context.Context, st croft.Status, show func(io.Reader) error) error
	// Run runs a command in the guest through its agent, after same has confirmed that the guest which was reached is
	// the instance's. Conflict: the guest is off. Invalid: it does not run the command. Unavailable: it has no agent,
	// or that does not answer.
	Run(ctx context.Context, st croft.Status, command compute.GuestCommand, same func() error) (compute.GuestResult,
		error)
}

// Ports reaches the network of guests.
type Ports interface {
	// Connect lets use communicate with a TCP port of a guest; use may close the connection. NotFound, Conflict: the
	// instance has no address. Unavailable: the port does not answer.
	Connect(ctx context.Context, st croft.Status, port int, use func(io.ReadWriteCloser) error) error
}

// Etcd is the cloud's store, and the authority of hosts in it.
type Etcd interface {
	// Problems describes current and imminent problems, one sentence each.
	Problems(ctx context.Context) []string
}

// Keys stores public SSH keys of projects, by name.
type Keys = schedule.Keys

// Usage reads what projects used, by day.
type Usage interface {
	// List returns the usage of a scope that the filter chooses.
	List(ctx context.Context, of access.Scope, f usage.Filter) (usage.Report, error)
	// Capacity returns what all hosts offered on the days of the filter.
	Capacity(ctx context.Context, f usage.Filter) ([]usage.Day, error)
}

// Images manages the images cached on hosts.
type Images interface {
	// Pull makes a host download and verify an image, and calls progress meanwhile. name is the image's name for
	// messages. Unavailable: the host does not answer.
	Pull(ctx context.Context, host croft.Host, name, reference string, progress func(croft.Progress)) (*compute.Pulled,
		error)
	// Held lists the images cached on a host, most recently used first. Unavailable: the host does not answer.
	Held(ctx context.Context, host croft.Host) ([]compute.Held, error)
	// Remove removes an image from a host's cache, chosen by its reference or its SHA-256, and returns it; without
	// either, it removes all images that no disk is based on. NotFound: the host does not have it. Unavailable.
	Remove(ctx context.Context, host croft.Host, reference string) ([]compute.Held, error)
}

// Monitor reads data that changes all the time.
type Monitor interface {
	// History returns what an instance used in the last day, as its host measured it. NotFound: it is on no host yet,
	// or that has measured nothing. Unavailable: the host does not answer.
	History(ctx context.Context, st croft.Status) (compute.UsageHistory, error)
	// Usages returns the current resource use of a host's guests. Unavailable: the host does not answer.
	Usages(ctx context.Context, host croft.Host) ([]compute.Usage, error)
}

// Tokens manages the tokens with which machines join the cloud.
type Tokens interface {
	// Invite creates a token. Only its caller ever sees the secret.
	Invite(ctx context.Context, in api.NewInvitation, life time.Duration) (api.Invitation, error)
	// List returns the valid tokens, without their secrets.
	List(ctx context.Context) ([]api.Invitation, error)
	// Revoke revokes a token, named by its name or a unique prefix of it. NotFound; Conflict: the prefix is ambiguous.
	Revoke(ctx context.Context, name string) (api.Invitation, error)
}

// Access manages access tokens, which people and programs use to call the API. Machines join with Tokens.
type Access interface {
	// Create creates a token. Only its caller ever sees the secret. Invalid. Denied: the caller may not give this role.
	// Conflict: the project was created or removed meanwhile. NotFound: the project has no record.
	Create(ctx context.Context, a NewAccess) (api.AccessToken, error)
	// List returns the tokens of a project by time of creation, without their secrets; an empty project means all
	// tokens that the caller sees. Expired tokens stay in the list for access.KeptExpired.
	List(ctx context.Context, project croft.Project) ([]api.AccessToken, error)
	// Revoke ends a token at once, and returns it. NotFound.
	Revoke(ctx context.Context, id access.TokenID) (api.AccessToken, error)
}

// NewAccess describes an access token to create.
type NewAccess struct {
	User    string        // user that the token represents
	Project croft.Project // empty only with access.PartitionAdmin
	Role    access.Role
	Note    string
	By      string         // user who creates it; empty: the user of this process
	Within  bool           // the creator's own right ends with the project, which must have a record
	Parent  access.TokenID // token that creates this one; empty: none
	Life    time.Duration  // access.ShortestTokenLife to access.LongestTokenLife
}

// Aggregates keeps named sets of hosts, which requests may restrict their hosts to.
type Aggregates interface {
	// List returns the aggregates by name.
	List(ctx context.Context) ([]croft.Aggregate, error)
	// Find returns an aggregate. NotFound.
	Find(ctx context.Context, name string) (croft.Aggregate, error)
	// Create creates an aggregate. Conflict: there is one with this name. NotFound: a host does not exist. Invalid.
	Create(ctx context.Context, a croft.Aggregate) (croft.Aggregate, error)
	// Change changes an aggregate. NotFound: the aggregate, or a host to be added, does not exist. Conflict: the
	// aggregate has another generation. Invalid.
	Change(ctx context.Context, name string, c croft.AggregateChange) (croft.Aggregate, error)
	// Remove removes an aggregate if it has the given generation; nil accepts any. Its hosts stay. NotFound; Conflict.
	Remove(ctx context.Context, name string, generation *int64) error
}

// Distances manages stated distances between aggregates, locations and hosts. Requests may name a type of distance.
// Hosts are given by name or UUID. Callers who are not operators see the types, and the distances between public
// aggregates only.
type Distances interface {
	// List returns the stated distances of all types, by type.
	List(ctx context.Context) ([]croft.Distances, error)
	// Between returns the distance of a type between two places, whether it is stated or calculated. NotFound: a place
	// does not exist, or the distance is not known. Invalid.
	Between(ctx context.Context, kind, a, b string) (croft.Between, error)
	// Set states a distance, which replaces the stated distance of this pair, and returns the new generation of the
	// type's distances. NotFound: a place does not exist. Conflict: the distances of the type have another generation;
	// nil accepts any. Invalid.
	Set(ctx context.Context, kind string, d croft.Distance, generation *int64) (int64, error)
	// Remove removes a stated distance, even if its places no longer exist. NotFound; Conflict.
	Remove(ctx context.Context, kind, a, b string, generation *int64) error
}

// Policies keeps the policies by which CRUSH chooses hosts, for the whole cloud.
type Policies interface {
	// List returns the policies by name.
	List(ctx context.Context) ([]croft.CrushPolicy, error)
	// Find returns a policy. NotFound.
	Find(ctx context.Context, name string) (croft.CrushPolicy, error)
	// Set stores a policy, and replaces the policy of the same name if that has the given
	// generation. Generation 0 means that no such policy exists; nil accepts any. Instances stay where they are.
	// Conflict: the policy has another generation.
	Set(ctx context.Context, p croft.CrushPolicy, generation *int64) (croft.CrushPolicy, error)
	// Remove removes a policy if it has the given generation; nil accepts any. Instances stay where they are. NotFound;
	// Conflict.
	Remove(ctx context.Context, name string, generation *int64) error
}

// NamedSizes keeps the named sizes of instances, for the whole cloud.
type NamedSizes interface {
	// List returns the sizes by name.
	List(ctx context.Context) ([]croft.Size, error)
	// Find returns a size. NotFound.
	Find(ctx context.Context, name string) (croft.Size, error)
	// Default returns the default size, or the built-in one, which has no name.
	Default(ctx context.Context) (croft.Size, error)
	// Create stores a size, unless there is the same one. Conflict: the name is taken.
	Create(ctx context.Context, s croft.Size) (croft.Size, error)
	// Change changes a size. NotFound. Conflict: the new name is taken.
	Change(ctx context.Context, name string, to croft.SizeChange) (croft.Size, error)
	// Remove removes a size. Instances keep what they have. NotFound.
	Remove(ctx context.Context, name string) error
}

// Claims is the client of Placement, as far as operations need it.
type Claims interface {
	// ResourceClasses lists the resource classes by name.
	ResourceClasses(ctx context.Context) ([]croft.ResourceClass, error)
	// Traits lists the traits by name.
	Traits(ctx context.Context) ([]croft.Trait, error)
	// PutTrait creates a custom trait. It does nothing if the trait exists.
	PutTrait(ctx context.Context, t croft.Trait) error
	// RemoveTrait removes a custom trait. NotFound. Conflict: a host has it.
	RemoveTrait(ctx context.Context, t croft.Trait) error
	// Providers describes every provider.
	Providers(ctx context.Context) ([]croft.Provider, error)
	// Provider describes one provider. NotFound.
	Provider(ctx context.Context, id croft.HostID) (croft.Provider, error)
}
