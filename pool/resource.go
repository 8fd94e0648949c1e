package pool

import (
	"encoding/json"
	"time"

	"croft"
)

// ResourceID numbers resources, from 1 without gaps.
type ResourceID int64

// State says how far a resource got.
type State string

// The states of a resource.
//
//	STARTING -> UP -> DELETE_REQUEST -> DELETING -> ENDED
//
// An UP one is RELEASING while it is cleaned between two tickets. A start that failed
// leads to DELETE_REQUEST, and so does a delete that failed.
const (
	Starting      State = "STARTING"
	Up            State = "UP"
	Releasing     State = "RELEASING"
	DeleteRequest State = "DELETE_REQUEST"
	Deleting      State = "DELETING"
	Ended         State = "ENDED"
)

// Resource is one piece of a pool's stock.
type Resource struct {
	ID       ResourceID     `json:"id"`
	Name     string         `json:"name"`
	Pool     Name           `json:"pool"`
	InPool   int            `json:"in_pool"` // smallest free number of the pool, from 0
	State    State          `json:"state"`
	Tags     []Tag          `json:"tags,omitempty"`     // of the pool, as they were when it came up
	Counters map[string]int `json:"counters,omitempty"` // smallest free numbers of all pools, from 0

	// what its owner gets: what starting it printed, or its address
	Data     []byte           `json:"data,omitzero"`
	Facts    json.RawMessage  `json:"facts,omitempty"`    // the same and more as a document, where it is an instance
	Instance croft.InstanceID `json:"instance,omitempty"` // of croft, where it is one

	Ticket    TicketID  `json:"ticket,omitempty"`  // that has it
	Sandbox   string    `json:"sandbox,omitempty"` // of the first ticket, for good
	Owner     string    `json:"owner,omitempty"`   // of that ticket: the sandbox is theirs alone
	Private   bool      `json:"private,omitempty"` // nobody but that ticket knows the sandbox
	Sandboxed time.Time `json:"sandboxed,omitzero"`
	Released  time.Time `json:"released,omitzero"` // when the last ticket gave it back
	Releases  int       `json:"releases,omitempty"`

	Created   time.Time `json:"created"`
	CameUp    time.Time `json:"came_up,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	Checked   time.Time `json:"checked,omitzero"` // when the newest livecheck ended
	Failures  int       `json:"failures,omitempty"`
	Deletes   int       `json:"deletes,omitempty"`   // attempts that failed
	NotBefore time.Time `json:"not_before,omitzero"` // of the next attempt
	Aborted   bool      `json:"aborted,omitempty"`   // starting it failed by itself, and not at its limit
	Reason    string    `json:"reason,omitempty"`    // why it has to go, or went
	Error     string    `json:"error,omitempty"`     // of what was last done to it
}

// Live tells whether anything may be left of it: it counts for the pool's maximum.
func (r *Resource) Live() bool { return r.State != Ended }

// box is the sandbox that it was used in; that of no name where it was not.
func (r *Resource) box() box { return box{r.Owner, r.Sandbox} }

// Idle tells whether it is up and nobody has it.
func (r *Resource) Idle() bool { return r.State == Up && r.Ticket == 0 }

// Free tells whether it is idle and nobody ever had it.
func (r *Resource) Free() bool { return r.Idle() && r.Released.IsZero() }

// Tag is a word for what a pool's resources are. Of several that fit a ticket, the one
// with the highest sum of priorities over the ticket's tags is taken.
type Tag struct {
	Name     string `json:"name"`
	Priority int    `json:"priority,omitempty"`
}
