package pool

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"croft"
)

// Store keeps the state and says which server acts.
type Store interface {
	// Lead waits until no other server acts, then calls act with a context that ends
	// before another one may, and returns when act has. It says who we are to all that
	// ask. Unavailable: the store does not answer, or we lost the lead.
	Lead(ctx context.Context, me Server, act func(context.Context, Term) error) error
	// WatchLeader calls changed with the server that acts, nil for none, now and after
	// every change, until ctx ends.
	WatchLeader(ctx context.Context, changed func(*Server)) error
}

// Term is the time during which one server acts.
type Term interface {
	// Load reads everything.
	Load(ctx context.Context) (Snapshot, error)
	// Commit writes a batch, in its order: all of it where that is possible in one
	// transaction, else in several, of which each leaves what Load can go on from.
	// Committing a batch again changes nothing. Conflict: another server acts.
	Commit(ctx context.Context, b Batch) error
}

// Server is a process that can act.
type Server struct {
	Name    string `json:"name"`              // for people
	Machine string `json:"machine"`           // those of one machine see each other's processes
	Place   string `json:"place,omitempty"`   // where no two run at once: who comes there takes over from who was
	Address string `json:"address,omitempty"` // where it takes requests
}

// Head holds the numbers given last.
type Head struct {
	Ticket   TicketID   `json:"ticket"`
	Resource ResourceID `json:"resource"`
}

// Snapshot is everything that is kept.
type Snapshot struct {
	Head      Head
	Pools     []Record
	Resources []Resource // by number
	Tickets   []Ticket   // by number
}

// Batch is what one round changes. Where it does not fit one transaction it is written
// in this order: the numbers, which count as given before anything has them; pools,
// before their resources; tickets that ended, before what they had is another's;
// resources, which know their ticket before that knows them; the other tickets; and
// what is gone.
type Batch struct {
	Head      *Head // nil: as it was
	Pools     []Record
	Resources []Resource
	Tickets   []Ticket

	GonePools     []Name
	GoneResources []ResourceID
	GoneTickets   []TicketID
}

// TicketsByEnd are the tickets that ended, and the others.
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

// Empty tells whether there is nothing to write.
func (b *Batch) Empty() bool {
	return b.Head == nil && len(b.Pools)+len(b.Resources)+len(b.Tickets)+len(b.GonePools)+len(b.GoneResources)+
		len(b.GoneTickets) == 0
}

// HookKind says what a command is run for; it is the end of its log's name.
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
	Resource ResourceID // 0 where it is for none
	Command  string
	Env      []string // beside the server's own, KEY=VALUE
	Limit    time.Duration
	Output   OutputForm
}

// OutputForm bounds what is kept of what a command prints.
type OutputForm int

// What is kept of a command's output.
const (
	OutputNone OutputForm = iota
	OutputData            // whole lines up to 512 bytes, or as much of the first
	OutputList            // whole lines up to 256 KiB
)

// Hooks runs commands.
type Hooks interface {
	// Run runs a command to its end and returns what of its output is kept, also with an
	// error, which says how it ended where that was not well. At the limit, or when ctx
	// ends, its whole process group is killed. Unavailable: that was at the limit.
	Run(ctx context.Context, h Hook) ([]byte, error)
	// Sweep ends what an earlier server on this machine left running: all hooks but those
	// of kind HookNew of resources for which spare is true, whose children may have to
	// outlive them. It returns what the unfinished starts of the others had printed.
	Sweep(ctx context.Context, spare func(ResourceID) bool) (map[ResourceID][]byte, error)
	// Forget removes the logs of resources.
	Forget(ids ...ResourceID)
	// Logs names the files with what a resource's hooks printed, of those that exist.
	Logs(id ResourceID) []string
}

// Instances makes resources of croft's own instances.
type Instances interface {
	// Check says what is wrong with the settings. Invalid.
	Check(i Instance) error
	// Start makes an instance, or goes on with the one of this ID, and returns when it is
	// ready. It calls farther whenever the instance is a step nearer to that.
	Start(ctx context.Context, id croft.InstanceID, name string, i Instance, farther func()) (address string,
		facts json.RawMessage, err error)
	// Probe returns nil where the instance runs, or the cloud cannot be asked. ErrLost is in
	// an error that waiting cannot mend.
	Probe(ctx context.Context, id croft.InstanceID) error
	// Destroy returns when nothing is left of the instance.
	Destroy(ctx context.Context, id croft.InstanceID, i Instance) error
	// Watch calls changed now and after something happened to instances, until ctx ends. What
	// it hands over tells of each instance how it was lost, if it was, as of a time.
	Watch(ctx context.Context, changed func(asOf time.Time, lost func(croft.InstanceID) error)) error
}

// ErrLost says that a resource is no longer what was handed out, so that further
// livechecks are in vain.
var ErrLost = errors.New("it is lost")
