package pool

import "time"

// Mode is the operator's setting of a pool.
type Mode string

// The modes. A drained pool deletes unassigned resources; the others keep them.
const (
	Active  Mode = ""
	Paused  Mode = "paused"  // neither starts resources nor hands them out
	Drained Mode = "drained" // like Paused, and deletes idle resources
)

// Record is the stored record of a pool; its resources have their own records.
type Record struct {
	// Settings are from the last file that has the pool, so that its resources can be deleted after the pool was
	// removed from the file.
	Settings Settings `json:"settings"`
	// Former holds the newest settings of the other kind, commands or an instance: resources that were made with them
	// are deleted with them.
	Former *Settings `json:"former,omitempty"`
	Mode   Mode      `json:"mode,omitempty"`
	// Resized: an operator replaced sizes of the file; Settings has the sizes in force. nil: they are the file's.
	Resized *Resized `json:"resized,omitempty"`
	// missing from the file: the pool's remaining resources are deleted as they become idle
	Removed  bool  `json:"removed,omitempty"`
	Position int   `json:"position"` // in the file
	Stats    Stats `json:"stats,omitzero"`

	// First is the number of the first resource that the pool's project may see: resources with smaller numbers were
	// made when the pool of this name belonged to another project, or was shared. 0: an earlier version of croft made
	// the pool.
	First ResourceID `json:"first,omitempty"`

	Created   time.Time `json:"created"`
	LastStart time.Time `json:"last_start,omitzero"`
	Failed    int       `json:"failed,omitempty"`     // consecutive failed starts
	NotBefore time.Time `json:"not_before,omitzero"`  // earliest time of the next start, after failures
	LastError string    `json:"last_error,omitempty"` // of the newest failed start
	// Full: the newest start failed only because the cloud has no room, or the project's quota is used up.
	Full bool `json:"full,omitempty"`
	// Unproven counts resources in a row that came up and failed their first livecheck.
	Unproven int       `json:"unproven,omitempty"`
	Listed   time.Time `json:"listed,omitzero"` // time of the last search for orphans

	LastFailure *Failure `json:"last_failure,omitempty"` // kept when later starts succeed
}

// Failure is a start that failed.
type Failure struct {
	Resource ResourceID `json:"resource"`
	At       time.Time  `json:"at"`
	Error    string     `json:"error"`
}

// Stats are moving averages over the pool's starts; the newest has a weight of one fifth.
type Stats struct {
	Attempted   time.Time     `json:"last_attempt_to_start,omitzero"`
	Succeeded   time.Time     `json:"last_successful_start,omitzero"`
	SuccessRate float64       `json:"startup_success_rate"`
	StartTime   time.Duration `json:"startup_time_avg"` // of successful starts
	Starts      int64         `json:"starts,omitempty"`
	Failures    int64         `json:"failures,omitempty"`
	Served      int64         `json:"served,omitempty"` // tickets
}

// weight is the weight of the newest value in a moving average.
const weight = 0.2

// started records an attempt to start a resource and its duration.
func (s *Stats) started(ok bool, took time.Duration, now time.Time) {
	value := 0.0
	if ok {
		value = 1
	}
	if s.Attempted.IsZero() {
		s.SuccessRate = value
	} else {
		s.SuccessRate += weight * (value - s.SuccessRate)
	}
	s.Attempted = now
	s.Starts++
	if !ok {
		s.Failures++
		return
	}
	if s.Succeeded.IsZero() {
		s.StartTime = took
	} else {
		s.StartTime += time.Duration(weight * float64(took-s.StartTime))
	}
	s.Succeeded = now
}

// revoke turns the newest successful start into a failed one in the average, because the started resource does not
// work.
func (s *Stats) revoke() {
	s.SuccessRate = max(0, s.SuccessRate-weight)
	if s.Starts <= 1 {
		s.SuccessRate = 0
	}
}

// PoolStatus is a pool with its counts.
type PoolStatus struct {
	Record
	Counts  Counts
	Waiting int // tickets that this pool could serve
}

// Hindrance returns the error of the newest start if the pool still lacks resources because of it; empty: it lacks
// none.
func (p *PoolStatus) Hindrance() string {
	c, s := p.Counts, &p.Settings
	short := c.Free < s.Prealloc() && c.Live() < s.Max || p.Waiting > 0
	if p.Failed > 0 && short {
		return p.LastError
	}
	return ""
}

// Name is the pool's name.
func (p *PoolStatus) Name() Name { return p.Settings.Name }

// Counts are numbers of resources.
type Counts struct {
	Up            int `json:"up"`    // ready and assigned
	Ready         int `json:"ready"` // unassigned: free, kept, failing and outdated
	Free          int `json:"free"`  // warm: every ticket for the pool may get one
	Kept          int `json:"kept"`  // used; can only serve another ticket of their sandbox
	Failing       int `json:"failing"`
	Outdated      int `json:"outdated"`
	Taken         int `json:"taken"`
	Starting      int `json:"starting"`
	DeleteRequest int `json:"delete_request"`
	Deleting      int `json:"deleting"`
	Releasing     int `json:"releasing"`
	GivenUp       int `json:"given_up"` // see Resource.GivenUp; not included in the two fields before it
}

// Live is the number of resources that the maximum limits.
func (c Counts) Live() int {
	return c.Up + c.Starting + c.DeleteRequest + c.Deleting + c.Releasing
}

// add adds a resource of a pool n times: 1 adds it, -1 removes it.
func (c *Counts) add(s *Settings, r *Resource, n int) {
	if r.GivenUp() {
		c.GivenUp += n
		return
	}
	switch r.State {
	case Starting:
		c.Starting += n
	case Releasing:
		c.Releasing += n
	case DeleteRequest:
		c.DeleteRequest += n
	case Deleting:
		c.Deleting += n
	case Up:
		c.Up += n
		if r.Ticket != 0 {
			c.Taken += n
			return
		}
		c.Ready += n
		switch {
		case s.warm(r):
			c.Free += n
		case !r.usable():
			c.Failing += n
		case !r.Free():
			c.Kept += n
		default:
			c.Outdated += n
		}
	}
}
