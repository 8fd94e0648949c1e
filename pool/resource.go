package pool

import (
	"encoding/json"
	"time"

	"croft"
)

// ResourceID numbers resources, from 1 without gaps.
type ResourceID int64

// State is a resource's progress.
type State string

// The states of a resource.
//
//	STARTING -> UP -> DELETE_REQUEST -> DELETING -> ENDED
//
// An UP one is RELEASING while it is cleaned between two tickets. A failed start or deletion leads to DELETE_REQUEST.
const (
	Starting      State = "STARTING"
	Up            State = "UP"
	Releasing     State = "RELEASING"
	DeleteRequest State = "DELETE_REQUEST"
	Deleting      State = "DELETING"
	Ended         State = "ENDED"
)

// Resource is one resource of a pool.
type Resource struct {
	ID       ResourceID     `json:"id"`
	Name     string         `json:"name"`
	Pool     Name           `json:"pool"`
	InPool   int            `json:"in_pool"` // smallest free number in the pool, from 0
	State    State          `json:"state"`
	Tags     []Tag          `json:"tags,omitempty"`     // the pool's, at the time it came up
	Counters map[string]int `json:"counters,omitempty"` // smallest free numbers over all pools, from 0

	// given to its owner: the output of its start, or its address
	Data []byte `json:"data,omitzero"`
	// for an instance: a JSON document with the content of Data and more
	Facts json.RawMessage `json:"facts,omitempty"`
	// Instance is the ID of its instance of croft, if it is one: random, and stored before the instance is requested.
	Instance croft.InstanceID `json:"instance,omitempty"`
	// InstanceRevision identifies the record of that instance once it is up; see croft.Instance.CreateRevision. 0: it
	// is not up yet, or an earlier version of croft made it.
	InstanceRevision int64 `json:"instance_revision,omitempty"`

	Ticket    TicketID  `json:"ticket,omitempty"`  // its current ticket
	Sandbox   string    `json:"sandbox,omitempty"` // of its first ticket; never changes afterwards
	Owner     string    `json:"owner,omitempty"`   // of its first ticket; the sandbox belongs to this owner
	Private   bool      `json:"private,omitempty"` // only its first ticket knows the sandbox
	Sandboxed time.Time `json:"sandboxed,omitzero"`
	Released  time.Time `json:"released,omitzero"` // when its last ticket ended
	Releases  int       `json:"releases,omitempty"`

	Created   time.Time `json:"created"`
	CameUp    time.Time `json:"came_up,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	Checked   time.Time `json:"checked,omitzero"` // when the newest livecheck ended
	Failures  int       `json:"failures,omitempty"`
	Deletes   int       `json:"deletes,omitempty"`   // failed attempts to delete it
	NotBefore time.Time `json:"not_before,omitzero"` // earliest time of the next attempt to delete it
	Aborted   bool      `json:"aborted,omitempty"`   // its start failed without being stopped at its limit
	Recipe    string    `json:"recipe,omitempty"`    // see Settings.recipe; empty: an earlier version of croft made it
	Reason    string    `json:"reason,omitempty"`    // why it is or was deleted
	Error     string    `json:"error,omitempty"`     // of the newest operation on it
}

// Live reports whether parts of the resource may still exist. The pool's maximum includes it unless it was given up.
func (r *Resource) Live() bool { return r.State != Ended }

// GivenUp reports whether the start of the resource failed before its limit, and its deletion failed abandonAfter
// times. The deletion is still retried, but the resource does not count for the pool's maximum.
func (r *Resource) GivenUp() bool {
	return r.Aborted && r.Deletes >= abandonAfter && (r.State == DeleteRequest || r.State == Deleting)
}

// box returns the sandbox that used the resource; zero: it is unused.
func (r *Resource) box() box { return box{r.Owner, r.Sandbox} }

// Idle reports whether the resource is up and unassigned.
func (r *Resource) Idle() bool { return r.State == Up && r.Ticket == 0 }

// Free reports whether the resource is idle and was never assigned.
func (r *Resource) Free() bool { return r.Idle() && r.Released.IsZero() }

// Tag is a property of a pool's resources. If several resources fit a ticket, the one with the highest sum of
// priorities over the ticket's tags is assigned.
type Tag struct {
	Name     string `json:"name"`
	Priority int    `json:"priority,omitempty"`
}
