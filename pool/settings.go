package pool

import (
	"slices"
	"time"
)

// Settings are what pools.yaml says of one pool.
type Settings struct {
	Name        Name   `json:"name"`
	Description string `json:"description,omitempty"`

	// Shell commands; of Commands.New and Instance one is set.
	Commands Commands  `json:"commands,omitzero"`
	Limits   Limits    `json:"limits"`
	Instance *Instance `json:"instance,omitempty"`

	Max         int           `json:"max"`          // resources that have not ended
	MaxStarting int           `json:"max_starting"` // of them starting
	MaxPrealloc int           `json:"max_prealloc"` // starting, or up and never used
	StartDelay  time.Duration `json:"start_delay,omitempty"`

	LivecheckPeriod   time.Duration `json:"livecheck_period"`
	LivecheckAttempts int           `json:"livecheck_attempts"`
	ListPeriod        time.Duration `json:"list_period"`

	Tags     []Tag    `json:"tags,omitempty"`
	OnDemand []Tag    `json:"tags_on_demand,omitempty"`
	Counters []string `json:"named_counters,omitempty"`

	ReuseTime    time.Duration `json:"reuse_opportunity_time,omitempty"` // 0: nothing is used again
	ReuseCount   int           `json:"reuse_max_count,omitempty"`        // 0: any number of times
	ReuseMaxTime time.Duration `json:"reuse_max_time,omitempty"`         // since the first ticket; 0: any

	TTL         time.Duration `json:"ttl,omitempty"` // of tickets that have none of their own
	NamePattern string        `json:"name_pattern"`
}

// Commands are what a pool does by the shell. New and Delete come together; the others
// may be empty.
type Commands struct {
	New       string `json:"new,omitempty"`
	Delete    string `json:"delete,omitempty"`
	Livecheck string `json:"livecheck,omitempty"`
	Release   string `json:"release,omitempty"`
	List      string `json:"list,omitempty"`
}

// Limits are how long each command, or its like for an instance, may take.
type Limits struct {
	New       time.Duration `json:"new"`
	Delete    time.Duration `json:"delete"`
	Livecheck time.Duration `json:"livecheck"`
	Release   time.Duration `json:"release"`
	List      time.Duration `json:"list"`
}

// Instance makes the pool's resources instances of croft.
type Instance struct {
	Resources string    `json:"resources"` // a query of schedule
	Image     string    `json:"image,omitempty"`
	UserData  string    `json:"user_data,omitempty"`
	Keys      []string  `json:"keys,omitempty"`
	Networks  []string  `json:"networks,omitempty"`
	Project   string    `json:"project,omitempty"`
	Restart   string    `json:"restart,omitempty"` // as for schedule
	Ready     Readiness `json:"ready"`
}

// Readiness says when an instance is up.
type Readiness string

// When an instance is ready: it has an address, its SSH server answers there, or it has
// reported that its set-up is done.
const (
	ReadyAddress   Readiness = "address"
	ReadySSH       Readiness = "ssh"
	ReadyCloudInit Readiness = "cloud-init"
)

// AllTags are both kinds of tags: what a resource of the pool will have.
func (s *Settings) AllTags() []Tag { return slices.Concat(s.Tags, s.OnDemand) }

// Prealloc is how many are to be warm: none where the pool starts on demand.
func (s *Settings) Prealloc() int {
	if len(s.OnDemand) > 0 {
		return 0
	}
	return s.MaxPrealloc
}

// checks tells whether there is a livecheck: an instance's state always is one.
func (s *Settings) checks() bool { return s.Commands.Livecheck != "" || s.Instance != nil }
