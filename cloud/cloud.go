// Package cloud says what commands ask of a cloud, in interfaces of a few methods each. It promises that a command
// works alike over every implementation: cloudtest holds each of them to one contract. Today there is cloud/direct,
// over etcd and Placement.
package cloud

import (
	"context"
	"io"
	"time"

	"croft"
	"croft/audit"
	"croft/compute"
	"croft/hosts"
	"croft/schedule"
)

// Cloud is a connection to a cloud, a field for each kind of question. Every method of a field may be called at any
// time until Close, by several goroutines at once.
type Cloud struct {
	Requests    Requests
	Instances   Instances
	Changes     Changes
	Consoles    Consoles
	Hosts       Hosts
	Maintenance Maintenance
	Keys        Keys
	Images      Images
	Audits      Audits
	Monitor     Monitor
	Tokens      Tokens
	Backups     Backups
	Connection  io.Closer
}

// Close ends the connection.
func (c *Cloud) Close() error { return c.Connection.Close() }

// Requests asks for instances.
type Requests interface {
	// Request claims room on a host and orders the instance there. NoCapacity: no host fits; the error holds a
	// *schedule.Explanation. Conflict: the ID or the name is taken, or a group has another rule.
	Request(ctx context.Context, r schedule.Request) (schedule.Decision, error)
	// Explain says which hosts fit a request, and what each of the others lacks. It claims nothing.
	Explain(ctx context.Context, r schedule.Request) (*schedule.Explanation, error)
	// Prepare announces many requests: until end is called, hosts are watched rather than read for each of them.
	Prepare(ctx context.Context) (end func())
}

// Instances reads instances.
type Instances interface {
	// Find returns the instance with this ID, or this name in the project. NotFound.
	Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error)
	// List returns the instances of a project in the order of their creation, of all projects where it is empty.
	List(ctx context.Context, project croft.Project) ([]croft.Status, error)
	// Watch calls changed whenever an instance or a host changed, until ctx ends. Calls may overlap.
	Watch(ctx context.Context, changed func()) error
	// Wait returns once an instance has reached the goal, and calls progress, which may be nil, with each of its
	// statuses until then. Unavailable: ctx reached its deadline. A *schedule.Failure: it never will.
	Wait(ctx context.Context, inst croft.Instance, goal schedule.Goal, progress func(croft.Status)) error
}

// Changes changes instances, each named by its ID or by its name in the project. They return when the order is
// written. NotFound; Conflict: it changed meanwhile, or cannot be done in its state.
type Changes interface {
	Start(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error)
	Stop(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error)
	Reboot(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error)
	// Rebuild replaces the disk by a new one of the image.
	Rebuild(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error)
	// Destroy removes an instance. force frees claim and name at once where its host is silent.
	Destroy(ctx context.Context, project croft.Project, idOrName string, force bool) (schedule.Destroyed, error)
}

// Consoles reaches the serial consoles of guests. NotFound: the instance is on no host. Unavailable: the host does
// not answer, or stops to.
type Consoles interface {
	// Log has show read what the guest has written. With follow it goes on with what the guest writes, and
	// ends without an error when ctx is canceled.
	Log(ctx context.Context, st croft.Status, follow bool, show func(io.Reader) error) error
	// Attach has use read and write the console itself; use may close it. Conflict: somebody else is attached.
	Attach(ctx context.Context, st croft.Status, use func(io.ReadWriteCloser) error) error
}

// Hosts reads hosts.
type Hosts interface {
	// Records returns the records of the named hosts that exist, of all where none is named.
	Records(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
	// List returns all hosts with what they offer and what is claimed of it, sorted by name. It returns the
	// hosts beside an error that concerns a part of what is known of them.
	List(ctx context.Context) ([]hosts.Host, error)
	// Find is List for one host, with its instances. NotFound.
	Find(ctx context.Context, idOrName string) (hosts.Host, error)
	// Problems says in a sentence each what is wrong with the store of the cloud.
	Problems(ctx context.Context) []string
}

// Maintenance changes hosts, each named by ID or name. NotFound.
type Maintenance interface {
	// Drain keeps new instances away from a host until Enable.
	Drain(ctx context.Context, idOrName string) (hosts.Host, error)
	Enable(ctx context.Context, idOrName string) (hosts.Host, error)
	// Accept lets an agent on another machine, or with another state directory, serve the host.
	Accept(ctx context.Context, idOrName string) (hosts.Host, error)
	// Forget removes a host. Conflict: it is alive or has instances, and force is false.
	Forget(ctx context.Context, idOrName string, force bool) (hosts.Host, error)
	// MoveAll makes the ephemeral instances of a host anew on others, and says what became of each instance.
	MoveAll(ctx context.Context, h hosts.Host) ([]hosts.Moved, error)
	// RemoveMember takes a host's server out of etcd. Conflict: the others would be too few.
	RemoveMember(ctx context.Context, h hosts.Host) error
}

// Keys keeps public SSH keys of projects, by name.
type Keys = schedule.Keys

// Images reaches the images that hosts keep.
type Images interface {
	// Pull has a host fetch and verify an image, and calls progress meanwhile. name is what people call the image.
	// Unavailable: the host does not answer.
	Pull(ctx context.Context, host croft.Host, name, reference string, progress func(croft.Progress)) (*compute.Pulled,
		error)
}

// Audits compares all that is recorded with what there is.
type Audits interface {
	Audit(ctx context.Context) (audit.Report, error)
	// Mend mends one difference that is marked as mendable.
	Mend(ctx context.Context, d audit.Difference) error
}

// Monitor reads what changes all the time.
type Monitor interface {
	// Mirror returns a copy of all hosts and instances, which is kept up to date while it runs.
	Mirror() Mirror
	// Usable returns an error where the store of the cloud does not answer or takes no writes.
	Usable(ctx context.Context) error
	// Providers returns what each host offers and what is claimed of it.
	Providers(ctx context.Context) ([]croft.Provider, error)
	// Usages asks a host what its guests use at the moment. Unavailable: it does not answer.
	Usages(ctx context.Context, host croft.Host) ([]compute.Usage, error)
}

// Mirror is a copy of all hosts and instances.
type Mirror interface {
	// Run keeps the copy up to date until ctx ends, and calls changed after each change.
	Run(ctx context.Context, changed func()) error
	// Ready says that all has been read once.
	Ready() bool
	// Look returns the copy, and an error about records that could not be read.
	Look() ([]croft.Host, []croft.Status, error)
}

// Tokens are what other machines join the cloud with.
type Tokens interface {
	// Invite makes a token. Its secret is known to the caller alone.
	Invite(ctx context.Context, i Invitation) (Token, error)
	// List returns the valid tokens, without their secrets.
	List(ctx context.Context) ([]Token, error)
	// Revoke ends a token, named by its name or a unique beginning of it. NotFound; Conflict: several begin so.
	Revoke(ctx context.Context, name string) (Token, error)
}

// Invitation says what a token is for.
type Invitation struct {
	Note   string
	Host   string // name or ID of the host that joins again; empty: new hosts
	Life   time.Duration
	Member bool // hosts may serve etcd, also where trust is strict

	// The addresses that were used to reach the cloud are meant to be used by others, loopback addresses too.
	SameEtcd, SamePlacement bool
}

// Token is a token, without what is not known of it.
type Token struct {
	Name, Note       string
	Created, Expires time.Time
	Secret           string // the text to join with
}

// Backups copies all that the cloud has stored.
type Backups interface {
	// Snapshot writes all that etcd holds to w and returns the number of bytes.
	Snapshot(ctx context.Context, w io.Writer) (int64, error)
}
