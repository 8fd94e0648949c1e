package api

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"croft"
)

// The states of a ticket.
const (
	TicketOpen   = "OPEN" // waits for a resource, or has one
	TicketClosed = "CLOSED"
	TicketFailed = "FAILED" // its resource broke or was taken away
)

// Ticket is the right to one resource.
type Ticket struct {
	// Its number, unique over all projects.
	ID int64 `json:"id"`
	// OPEN: it waits for a resource, or has one. CLOSED: it was closed. FAILED: its resource was lost.
	State   string   `json:"state" enum:"OPEN,CLOSED,FAILED"`
	Owner   string   `json:"owner,omitempty"`   // the name of the token that opened it
	Project string   `json:"project,omitempty"` // owner; empty: no project
	Tags    []string `json:"tags"`              // tags that its resource must have
	Sandbox string   `json:"sandbox,omitempty"` // resources that share a sandbox serve one user
	// closes the ticket when it has not been used for this long; 0: never
	TTL    Seconds   `json:"ttl,omitempty"`
	Opened time.Time `json:"opened"`          // when it was opened
	Served time.Time `json:"served,omitzero"` // when it got its resource
	// When it is closed, unless it is used before.
	Expires  time.Time `json:"expires,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`      // when it was closed
	Reason   string    `json:"reason,omitempty"`    // why it ended, unless its owner closed it
	WaitsFor string    `json:"waits_for,omitempty"` // what a waiting ticket waits for, as a sentence
	Never    bool      `json:"never,omitempty"`     // no pool can serve it as configured
	Resource *Resource `json:"resource,omitempty"`  // its current or former resource
}

// Ready reports whether the ticket is open and has its resource.
func (t *Ticket) Ready() bool { return t.State == TicketOpen && !t.Served.IsZero() }

// Waiting reports whether the ticket is open and has no resource yet.
func (t *Ticket) Waiting() bool { return t.State == TicketOpen && t.Served.IsZero() }

// Err returns nil if the ticket has its resource, else why not. NoCapacity: no pool can ever serve it;
// Unavailable: it waits; Conflict: it ended.
func (t *Ticket) Err() error {
	switch {
	case t.Ready():
		return nil
	case t.Waiting() && t.Never:
		return croft.Errorf(croft.NoCapacity, "ticket %d waits in vain: %s", t.ID, t.WaitsFor)
	case t.Waiting():
		return croft.Errorf(croft.Unavailable, "ticket %d waits still: %s", t.ID, t.WaitsFor)
	case t.State == TicketFailed:
		return croft.Errorf(croft.Conflict, "ticket %d failed: %s", t.ID, t.Reason)
	case t.Reason != "":
		return croft.Errorf(croft.Conflict, "ticket %d is closed: %s", t.ID, t.Reason)
	}
	return croft.Errorf(croft.Conflict, "ticket %d is closed", t.ID)
}

// ParseTicketID reads the number of a ticket. Invalid.
func ParseTicketID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, croft.Errorf(croft.Invalid, "%q is not a ticket number: use a whole number from 1", text)
	}
	return id, nil
}

// Resource is one resource of a pool.
type Resource struct {
	// Its number, unique over all pools.
	ID   int64  `json:"id"`
	Name string `json:"name"` // name of the resource
	Pool string `json:"pool"` // its pool
	// STARTING, UP, RELEASING, DELETE_REQUEST, DELETING, ENDED
	State  string `json:"state" enum:"STARTING,UP,RELEASING,DELETE_REQUEST,DELETING,ENDED"`
	InPool int    `json:"id_in_pool"`     // its number in the pool
	Tags   []Tag  `json:"tags,omitempty"` // tags that tickets may ask for
	// For operators and in pools of the own projects.
	Counters map[string]int `json:"named_counters,omitempty"`
	// What it hands out: text, or an object whose field base64 has bytes that are not UTF-8. In single tickets alone,
	// for members; operators see it in lists too.
	Data Text `json:"data,omitempty"`
	// if the resource is an instance of croft: a JSON document with the content of Data and more
	Facts    json.RawMessage `json:"facts,omitempty"`
	Instance string          `json:"instance,omitempty"` // ID of the instance of croft
	// The ticket that has it.
	Ticket int64 `json:"ticket,omitempty"`
	// For operators.
	Sandbox string `json:"sandbox,omitempty"`
	// How often it was given back.
	Releases int       `json:"releases"`
	Created  time.Time `json:"created"`          // when it was ordered
	CameUp   time.Time `json:"came_up,omitzero"` // when it was ready
	// When its first ticket got it.
	Sandboxed time.Time `json:"sandboxed,omitzero"`
	// When it was last given back.
	Released time.Time `json:"released,omitzero"`
	Checked  time.Time `json:"checked,omitzero"`        // when it was last checked
	Failures int       `json:"failed_checks,omitempty"` // checks that failed since the last success
	Ended    time.Time `json:"ended,omitzero"`          // when it was gone
	// Why it goes, or went; for operators.
	Reason string `json:"reason,omitempty"`
	// Of what was last done with it; for operators.
	Error string `json:"error,omitempty"`
}

// Tag is a property of a resource that tickets can request.
type Tag struct {
	Name string `json:"name"` // name of the tag
	// Of several resources that fit, the one whose wanted tags have the highest sum is taken.
	Priority int `json:"priority,omitempty"`
}

// Pool is the settings and the state of a pool.
type Pool struct {
	Name        string `json:"name"`                  // unique in the cloud
	Description string `json:"description,omitempty"` // for people
	Project     string `json:"project,omitempty"`     // owner
	// tickets of all projects may get its resources
	Shared   bool   `json:"shared,omitempty"`
	Mode     string `json:"mode" enum:"active,paused,drained,removed"` // active, paused, drained, removed
	Tags     []Tag  `json:"tags,omitempty"`                            // tags that its resources have
	OnDemand []Tag  `json:"tags_on_demand,omitempty"`                  // tags of resources that are started on demand
	Free     int    `json:"free"`                                      // up and never used

	*Stock // nil: hidden from the caller, for example of another project's shared pool; the manager always sets it
}

// Size is a change of a pool's size.
type Size struct {
	Max Change `json:"max,omitzero"` // the most resources; null: the value in the file again
	// how many are to be starting or free; null: the value in the file again
	MaxPrealloc Change `json:"max_prealloc,omitzero"`
}

// Change is a new value of a number: in JSON a whole number, or null for Reset. The zero value, which JSON omits, keeps
// the present one.
type Change struct {
	To    int
	Given bool
	Reset bool // back to the value in the file
}

// To returns the change to a number.
func To(n int) Change { return Change{To: n, Given: true} }

// MarshalJSON implements json.Marshaler.
func (c Change) MarshalJSON() ([]byte, error) {
	if c.Reset || !c.Given {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(c.To), 10), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Change) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*c = Change{Given: true, Reset: true}
		return nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return fmt.Errorf("%.40s is neither a whole number nor null", text)
	}
	*c = To(n)
	return nil
}

// Stock is the number of a pool's resources in each state, and the outcome of its starts.
type Stock struct {
	// The most resources that it may have.
	Max int `json:"max"`
	// The most of them that may be starting.
	MaxStarting int `json:"max_starting"`
	// How many are to be starting or free.
	MaxPrealloc int `json:"max_prealloc"`
	// The sizes in the file, if an operator has set others.
	InFile *FileSize `json:"in_file,omitempty"`

	Up int `json:"up"` // resources that are ready
	// Up, and without a ticket.
	Ready    int `json:"ready"`
	Taken    int `json:"taken"`    // resources that tickets have
	Starting int `json:"starting"` // resources that are being started
	// Being cleaned between two tickets.
	Releasing     int `json:"releasing"`
	DeleteRequest int `json:"delete_request"` // resources that are going to be removed
	Deleting      int `json:"deleting"`       // resources that are being removed
	// failed to start, and could not be deleted in many attempts; not counted in Max
	GivenUp int `json:"given_up,omitempty"`
	Waiting int `json:"waiting"` // tickets that it could serve

	// First is the number of the first resource that was made after the pool came to belong to its present project
	// alone; 0: unknown.
	First int64 `json:"first_resource,omitempty"`

	Stats     Stats     `json:"stats"`                    // of its starts
	BackOff   time.Time `json:"no_start_before,omitzero"` // after failed starts
	LastError string    `json:"last_error,omitempty"`     // of the newest start, while the pool lacks resources for it

	LastFailure *StartFailure `json:"last_failure,omitempty"` // the newest start that failed
}

// FileSize is the size that the file gives a pool.
type FileSize struct {
	Max         int `json:"max"`          // the most resources
	MaxPrealloc int `json:"max_prealloc"` // how many are to be starting or free
}

// StartFailure is a start that failed.
type StartFailure struct {
	Resource int64     `json:"resource"`        // its name
	At       time.Time `json:"at"`              // when it failed
	Error    string    `json:"error,omitempty"` // why; only admins get it if a command printed it
}

// Stats are statistics of a pool's starts. Averages are moving: the newest start has a weight of one fifth.
type Stats struct {
	Attempted   time.Time `json:"last_attempt_to_start,omitzero"` // when a start was last attempted
	Succeeded   time.Time `json:"last_successful_start,omitzero"` // when a start last succeeded
	SuccessRate float64   `json:"startup_success_rate"`           // share of starts that succeeded, 0 to 1
	// Seconds.
	StartTime Seconds `json:"startup_time_avg"`
	Starts    int64   `json:"starts"`   // starts that were attempted
	Failures  int64   `json:"failures"` // starts that failed
	// Tickets.
	Served int64 `json:"served"`
}

// Seconds is a duration, in JSON a number of seconds.
type Seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f > maxSeconds || f < -maxSeconds {
		return fmt.Errorf("%.40s is not a number of seconds", text)
	}
	*s = Seconds(f * float64(time.Second))
	return nil
}

// maxSeconds is the longest time.Duration.
const maxSeconds = float64(math.MaxInt64 / int64(time.Second))

// Text is the output of a command: in JSON a string, or {"base64": ...} if it is not UTF-8.
type Text []byte

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.Valid(t) {
		return json.Marshal(string(t))
	}
	return json.Marshal(struct {
		Base64 []byte `json:"base64"`
	}{t})
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '{' {
		var wrapped struct {
			Base64 []byte `json:"base64"`
		}
		err := json.Unmarshal(text, &wrapped)
		*t = wrapped.Base64
		return err
	}
	var s string
	err := json.Unmarshal(text, &s)
	*t = Text(s)
	return err
}

// Opening is the request for a ticket.
type Opening struct {
	Tags []string `json:"tags"` // a resource must have all of them
	// resources already used in another sandbox are excluded; empty: a new sandbox
	Sandbox string `json:"sandbox,omitempty"`
	// closes the ticket when it has not been used for this long; 0: the pool's setting
	TTL Seconds `json:"ttl,omitempty"`
	// the same key returns the same ticket, so that a retry opens no second one
	Key string `json:"key,omitempty"`
	// the owner of the ticket, whose quota applies; only admins may set it
	Project string `json:"project,omitempty"`
	// the expected identity of the project; empty: its present identity
	ProjectID string `json:"project_id,omitempty"`
}

// Failure is the body of an error.
type Failure struct {
	Error string `json:"error"`          // a sentence
	Kind  string `json:"kind,omitempty"` // invalid, not found, conflict, no capacity, over quota, unavailable

	Refusal *Refusal `json:"refusal,omitempty"` // set if Kind is over quota
}

// Refusal names the quota that denies a project another ticket. As an error it is croft.OverQuota.
type Refusal struct {
	Resource  string `json:"resource"` // the limited resource
	Limit     int64  `json:"limit"`
	Used      int64  `json:"used"`
	Requested int64  `json:"requested"`
	Project   string `json:"project"` // the project whose limit it is: the requesting project or one above it
	Of        string `json:"of"`      // the requesting project

	sentence string
}

// Error implements error.
func (r *Refusal) Error() string { return r.sentence }

// Unwrap returns the error's kind.
func (r *Refusal) Unwrap() error { return croft.OverQuota }

// Selection chooses tickets for a list. The zero value selects all tickets that are not closed.
type Selection struct {
	All     bool   // include closed tickets that are still remembered
	Limit   int    // return only this many, the newest; 0: no limit
	Project string // only tickets of this project; empty: all tickets that the caller may see
}

// Tickets is the answer to a request for tickets.
type Tickets struct {
	Tickets []Ticket `json:"tickets"`
	Open    int      `json:"open"`    // number of all open tickets
	Waiting int      `json:"waiting"` // number of open tickets without a resource
}

// Deletion is the answer to a request to delete resources.
type Deletion struct {
	Deleted []int64 `json:"deleted"` // resources whose deletion was requested
}
