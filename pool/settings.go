package pool

import (
	"slices"
	"time"

	"croft"
)

// Settings are the settings of one pool in pools.yaml.
type Settings struct {
	Name        Name   `json:"name"`
	Description string `json:"description,omitempty"`
	// Project owns the pool: only its tickets may get the pool's resources. Shared: tickets of all projects may.
	Project croft.Project `json:"project,omitempty"`
	Shared  bool          `json:"shared,omitempty"`

	// Shell commands; either Commands.New or Instance is set.
	Commands Commands  `json:"commands,omitzero"`
	Limits   Limits    `json:"limits"`
	Instance *Instance `json:"instance,omitempty"`

	Max         int           `json:"max"`          // live resources
	MaxStarting int           `json:"max_starting"` // starting resources
	MaxPrealloc int           `json:"max_prealloc"` // starting, or up and never used
	StartDelay  time.Duration `json:"start_delay,omitempty"`

	LivecheckPeriod   time.Duration `json:"livecheck_period"`
	LivecheckAttempts int           `json:"livecheck_attempts"`
	ListPeriod        time.Duration `json:"list_period"`

	Tags     []Tag    `json:"tags,omitempty"`
	OnDemand []Tag    `json:"tags_on_demand,omitempty"`
	Counters []string `json:"named_counters,omitempty"`

	ReuseTime  time.Duration `json:"reuse_opportunity_time,omitempty"` // 0: no reuse
	ReuseCount int           `json:"reuse_max_count,omitempty"`        // 0: unlimited
	// since the first ticket opened on it; 0: unlimited
	ReuseMaxTime time.Duration `json:"reuse_max_time,omitempty"`
	// Renew keeps unassigned resources in accordance with the settings: resources that were made in another way are
	// replaced, and those beyond Max or MaxPrealloc are deleted.
	Renew bool `json:"renew,omitempty"`

	TTL         time.Duration `json:"ttl,omitempty"` // for tickets that set none
	NamePattern string        `json:"name_pattern"`
}

// Commands are a pool's shell commands. New and Delete are set together; the others may be empty.
type Commands struct {
	New       string `json:"new,omitempty"`
	Delete    string `json:"delete,omitempty"`
	Livecheck string `json:"livecheck,omitempty"`
	Release   string `json:"release,omitempty"`
	List      string `json:"list,omitempty"`
}

// Limits are the time limits of the commands, or of the same steps for an instance.
type Limits struct {
	New       time.Duration `json:"new"`
	Delete    time.Duration `json:"delete"`
	Livecheck time.Duration `json:"livecheck"`
	Release   time.Duration `json:"release"`
	List      time.Duration `json:"list"`
}

// Instance configures resources that are instances of croft.
type Instance struct {
	Resources string    `json:"resources"` // a query in the syntax of schedule
	Image     string    `json:"image,omitempty"`
	UserData  string    `json:"user_data,omitempty"`
	Keys      []string  `json:"keys,omitempty"`
	Networks  []string  `json:"networks,omitempty"`
	Open      []string  `json:"open,omitempty"` // ports, as for schedule
	Project   string    `json:"project,omitempty"`
	Restart   string    `json:"restart,omitempty"` // as for schedule
	Ready     Readiness `json:"ready"`
}

// Readiness is the condition for an instance to be up.
type Readiness string

// When an instance is ready: it has an address, its SSH server answers there, or it has reported that its set-up
// is done.
const (
	ReadyAddress   Readiness = "address"
	ReadySSH       Readiness = "ssh"
	ReadyCloudInit Readiness = "cloud-init"
)

// IsFor reports whether tickets of a project may get the pool's resources. Tickets without a project, which clients of
// the manager open, may get resources of any pool.
func (s *Settings) IsFor(p croft.Project) bool { return p == "" || s.Shared || p == s.Project }

// AllTags returns the tags of the pool's resources, which include the on-demand tags.
func (s *Settings) AllTags() []Tag { return slices.Concat(s.Tags, s.OnDemand) }

// Prealloc returns the size of the warm stock: 0 if the pool starts resources on demand.
func (s *Settings) Prealloc() int {
	if len(s.OnDemand) > 0 {
		return 0
	}
	return s.MaxPrealloc
}

// checks reports whether resources of the pool have a livecheck. For an instance, its state always counts as one.
func (s *Settings) checks() bool { return s.Commands.Livecheck != "" || s.Instance != nil }
