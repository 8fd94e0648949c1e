package pool

import (
	"time"

	"croft"
)

// Name is the name of a pool.
type Name string

// TicketID numbers tickets, from 1 without gaps.
type TicketID int64

// TicketState is a ticket's progress.
type TicketState string

// The states of a ticket. An open ticket waits for a resource or has one.
const (
	TicketOpen   TicketState = "OPEN"
	TicketClosed TicketState = "CLOSED" // by its owner, or when its lease ran out
	TicketFailed TicketState = "FAILED" // its resource broke, or was taken away
)

// Ticket is the right to one resource. It keeps Resource when it ends, so that its owner can still look up the
// resource.
type Ticket struct {
	ID    TicketID    `json:"id"`
	State TicketState `json:"state"`
	Tags  []string    `json:"tags,omitempty"` // sorted; the resource has all of them
	// of its owner; resources used in another sandbox are excluded
	Sandbox  string        `json:"sandbox"`
	Private  bool          `json:"private,omitempty"`  // only this ticket knows the sandbox
	Resource ResourceID    `json:"resource,omitempty"` // 0: the ticket waits, or never had a resource
	Owner    string        `json:"owner,omitempty"`    // the client that opened it, if known
	Project  croft.Project `json:"project,omitempty"`  // the owner, which is charged for it; empty: no project
	// ProjectID is the identity of Project: a later project of the same name does not get its tickets. Empty: the
	// project had no record, or the program that opened the ticket does not know identities.
	ProjectID croft.ProjectID `json:"project_id,omitempty"`
	Key       string          `json:"key,omitempty"` // chosen by its owner
	// closes the ticket when it has not been used for this long; 0: never
	TTL     time.Duration `json:"ttl,omitempty"`
	Opened  time.Time     `json:"opened"`
	Served  time.Time     `json:"served,omitzero"` // when it got its resource
	Renewed time.Time     `json:"renewed,omitzero"`
	Ended   time.Time     `json:"ended,omitzero"`   // when it was closed or failed
	Reason  string        `json:"reason,omitempty"` // why, unless its owner closed it
}

// Waiting reports whether the ticket is open and has no resource yet.
func (t *Ticket) Waiting() bool { return t.State == TicketOpen && t.Resource == 0 }

// Ready reports whether the ticket is open and has its resource.
func (t *Ticket) Ready() bool { return t.State == TicketOpen && t.Resource != 0 }

// box is a sandbox. Sandboxes of two owners differ even with the same name.
type box struct{ owner, name string }

func (t *Ticket) box() box { return box{t.holder(), t.Sandbox} }

// Of reports whether the ticket belongs to the project with this name and identity. A ticket without an identity
// belongs to the present project of that name while it is open, because it ends with its project; once it has ended,
// its project is unknown.
func (t *Ticket) Of(name croft.Project, id croft.ProjectID) bool {
	return t.Project == name && (t.ProjectID == id || t.ProjectID == "" && t.State == TicketOpen)
}

// holder returns the owner of the ticket's sandbox and key: its project, if it has one. Names of other owners contain
// no slash.
func (t *Ticket) holder() string {
	if t.ProjectID != "" {
		return "project/" + string(t.Project) + "/" + string(t.ProjectID)
	}
	if t.Project != "" {
		return "project/" + string(t.Project)
	}
	return t.Owner
}

// ticketKey is an owner's key of a ticket.
type ticketKey struct{ owner, key string }

func (t *Ticket) key() ticketKey { return ticketKey{t.holder(), t.Key} }

// Expires returns when the ticket is closed unless it is used before; zero: never.
func (t *Ticket) Expires() time.Time {
	if t.TTL == 0 || t.State != TicketOpen {
		return time.Time{}
	}
	return t.Renewed.Add(t.TTL)
}

// TicketStatus is a ticket as its owner sees it.
type TicketStatus struct {
	Ticket
	// Has is the ticket's current or former resource; nil: it never had one, or the resource is forgotten.
	Has *Resource
	// Waits describes in a sentence what an open ticket without a resource waits for.
	Waits string
	// Never says that no pool can serve the ticket as configured.
	Never bool
}
