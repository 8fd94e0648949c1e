package pool

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Store keeps the state and elects the leader.
type Store interface {
	// Lead waits until no other server leads, then calls act with a context that ends before another server may lead,
	// and returns when act has returned. It publishes me as the leader. Unavailable: the store does not answer, or the
	// lead was lost.
	Lead(ctx context.Context, me Server, act func(context.Context, Term) error) error
	// WatchLeader calls changed with the leading server, or nil if none leads, now and after every change, until ctx
	// ends.
	WatchLeader(ctx context.Context, changed func(*Server)) error
}

// Term is the period in which one server leads.
type Term interface {
	// Load reads the whole state.
	Load(ctx context.Context) (Snapshot, error)
	// Commit writes a batch in its order: in one transaction if possible, else in several, each of which leaves a state
	// from which Load can continue. Committing the same batch again changes nothing. Conflict: another server leads.
	Commit(ctx context.Context, b Batch) error
}

// Server is a process that can lead.
type Server struct {
	Name    string `json:"name"`    // shown to users
	Machine string `json:"machine"` // servers on one machine see each other's processes
	// Directory identifies the server's directory. At most one server at a time runs in a directory, and the next one
	// takes over.
	Directory string `json:"place,omitempty"`
	Address   string `json:"address,omitempty"` // address on which it listens
}

// Head holds the highest numbers assigned so far.
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

// Batch holds the changes of one round. If it does not fit one transaction it is written in this order: the head, which
// reserves numbers before records use them; pools, before their resources; ended tickets, before their resources are
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

// HookKind is the purpose of a command; it is the suffix of its log's name.
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
	Resource ResourceID // 0: the hook is not for one resource
	Command  string
	Env      []string // KEY=VALUE, in addition to the server's environment
	Limit    time.Duration
	Output   OutputForm
}

// OutputForm is how much of a command's output is kept.
type OutputForm int

// The forms.
const (
	OutputNone OutputForm = iota
	OutputData            // whole lines up to 512 bytes; if the first line is longer, its first 512 bytes
	OutputList            // whole lines up to 256 KiB
)

// Hooks runs commands.
type Hooks interface {
	// Run runs a command to its end and returns the kept output, also with an error, which says how the command failed.
	// At the limit, or when ctx ends, its whole process group is killed. Unavailable: it was killed at the limit.
	Run(ctx context.Context, h Hook) ([]byte, error)
	// Sweep ends the hooks that an earlier server on this machine left running, except hooks of kind HookNew of
	// resources for which spare is true, whose children may have to outlive them. It returns the output of the other
	// unfinished starts.
	Sweep(ctx context.Context, spare func(ResourceID) bool) (map[ResourceID][]byte, error)
	// Forget removes the logs of resources.
	Forget(ids ...ResourceID)
	// Logs returns the names of the existing files with the output of a resource's hooks.
	Logs(id ResourceID) []string
}

// Instances makes resources that are croft's own instances. Clients may choose the IDs of instances, so an ID alone
// proves nothing: all methods ignore an instance that was not made for the resource.
type Instances interface {
	// Check checks the settings. Invalid.
	Check(i Instance) error
	// Start makes the resource's instance, or continues an earlier start, and returns when it is ready. It calls
	// farther whenever the instance makes progress. Conflict: an instance that was not made for the resource has the
	// ID.
	Start(ctx context.Context, r Resource, i Instance, farther func()) (Started, error)
	// Probe returns nil if the resource's instance runs, or the cloud does not answer. An error that is permanent wraps
	// ErrLost.
	Probe(ctx context.Context, r Resource, i Instance) error
	// Destroy returns when the resource's instance is completely removed.
	Destroy(ctx context.Context, r Resource, i Instance) error
	// Watch calls changed now and after instances changed, until ctx ends. lost returns why the instance of a resource
	// is lost as of the time asOf; nil: it is not.
	Watch(ctx context.Context, changed func(asOf time.Time, lost func(Resource, Instance) error)) error
}

// Started is an instance that is ready.
type Started struct {
	Address  string
	Facts    json.RawMessage
	Revision int64 // identifies its record; see Resource.InstanceRevision
}

// ErrLost is the error of a resource that no longer has the state that it had when it was handed out, so that further
// livechecks are useless.
var ErrLost = errors.New("it is lost")
