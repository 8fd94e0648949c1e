package pool

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Store keeps the state and elects the leader.
type Store interface {
	// Lead waits until no other server leads, then calls act with a context that ends before another server may
	// lead, and returns when act has. It publishes me as the leader. Unavailable: the store does not answer, or
	// the lead was lost.
	Lead(ctx context.Context, me Server, act func(context.Context, Term) error) error
	// WatchLeader calls changed with the server that leads, nil for none, now and after every change, until ctx ends.
	WatchLeader(ctx context.Context, changed func(*Server)) error
}

// Term is the time during which one server leads.
type Term interface {
	// Load reads everything.
	Load(ctx context.Context) (Snapshot, error)
	// Commit writes a batch in its order: in one transaction if possible, else in several, each of which leaves a state
	// from which Load can continue. Committing a batch again changes nothing. Conflict: another server leads.
	Commit(ctx context.Context, b Batch) error
}

// Server is a process that can lead.
type Server struct {
	Name    string `json:"name"`    // for people
	Machine string `json:"machine"` // servers of one machine see each other's processes
	// Directory identifies its directory, in which at most one server runs at a time: the next one takes over.
	Directory string `json:"place,omitempty"`
	Address   string `json:"address,omitempty"` // where it listens
}

// Head holds the highest numbers given.
type Head struct {
	Ticket   TicketID   `json:"ticket"`
	Resource ResourceID `json:"resource"`
}

// Snapshot is the stored state.
type Snapshot struct {
	Head      Head
	Pools     []Record
	Resources []Resource // by number
	Tickets   []Ticket   // by number
}

// Batch is the changes of one round. If it does not fit one transaction it is written in this order: the numbers, which
// are reserved before anything has them; pools, before their resources; ended tickets, before their resources are
// reassigned; resources, which name their ticket before it names them; the other tickets; and removed records.
type Batch struct {
	Head      *Head // nil: unchanged
	Pools     []Record
	Resources []Resource
	Tickets   []Ticket

	GonePools     []Name
	GoneResources []ResourceID
	GoneTickets   []TicketID
}

// TicketsByEnd returns the ended tickets, and the others.
func (b *Batch) TicketsByEnd() (ended, open []Ticket) {
	for _, t := range b.Tickets {
		if t.State == TicketOpen {
			open = append(open, t)
		} else {
			ended = append(ended, t)
		}
	}
	return ended, open
}

// Empty reports whether there is nothing to write.
func (b *Batch) Empty() bool {
	return b.Head == nil && len(b.Pools)+len(b.Resources)+len(b.Tickets)+len(b.GonePools)+len(b.GoneResources)+
		len(b.GoneTickets) == 0
}

// HookKind is what a command is run for; it is the suffix of its log's name.
type HookKind string

// The hooks.
const (
	HookNew       HookKind = "alloc"
	HookLivecheck HookKind = "watch"
	HookRelease   HookKind = "release"
	HookDelete    HookKind = "terminate"
	HookList      HookKind = "list"
)

// Hook is a command to be run.
type Hook struct {
	Kind     HookKind
	Resource ResourceID // 0: it is for none
	Command  string
	Env      []string // KEY=VALUE, beside the server's own
	Limit    time.Duration
	Output   OutputForm
}

// OutputForm bounds the output that is kept of a command.
type OutputForm int

// The forms.
const (
	OutputNone OutputForm = iota
	OutputData            // whole lines up to 512 bytes, or as much of the first
	OutputList            // whole lines up to 256 KiB
)

// Hooks runs commands.
type Hooks interface {
	// Run runs a command to its end and returns the kept output, also with an error, which says how the command failed.
	// At the limit, or when ctx ends, its whole process group is killed. Unavailable: it was killed at the limit.
	Run(ctx context.Context, h Hook) ([]byte, error)
	// Sweep ends what an earlier server on this machine left running, except hooks of kind HookNew of resources
	// for which spare is true, whose children may have to outlive them. It returns the output of the other
	// unfinished starts.
	Sweep(ctx context.Context, spare func(ResourceID) bool) (map[ResourceID][]byte, error)
	// Forget removes the logs of resources.
	Forget(ids ...ResourceID)
	// Logs names the existing files with the output of a resource's hooks.
	Logs(id ResourceID) []string
}

// Instances makes resources of croft's own instances. Clients may choose the IDs of instances, so an ID alone proves
// nothing: all methods ignore an instance that was not made for the resource.
type Instances interface {
	// Check checks the settings. Invalid.
	Check(i Instance) error
	// Start makes the resource's instance, or continues with it, and returns when it is ready. It calls farther
	// whenever the instance makes progress. Conflict: another instance has the resource's ID of an instance.
	Start(ctx context.Context, r Resource, i Instance, farther func()) (Started, error)
	// Probe returns nil if the resource's instance runs, or the cloud does not answer. An error that waiting cannot
	// mend wraps ErrLost.
	Probe(ctx context.Context, r Resource, i Instance) error
	// Destroy returns when nothing is left of the resource's instance.
	Destroy(ctx context.Context, r Resource, i Instance) error
	// Watch calls changed now and after instances changed, until ctx ends. lost returns how the instance of a
	// resource was lost, if it was, as of the time asOf.
	Watch(ctx context.Context, changed func(asOf time.Time, lost func(Resource, Instance) error)) error
}

// Started is an instance that is ready.
type Started struct {
	Address  string
	Facts    json.RawMessage
	Revision int64 // identifies its record; see Resource.InstanceRevision
}

// ErrLost says that a resource is no longer what was handed out, so that further livechecks are useless.
var ErrLost = errors.New("it is lost")
