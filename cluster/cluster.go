// Package cluster holds the nouns of clusters and decides about them: which site builds a cluster and why, what its
// template is told, and what comes next in its life. A cluster is a master and any number of slaves that an appliance
// describes and one site builds: the hosts of this cloud, an OpenStack with Heat, or another croft. Everything here is
// pure; drivers reach the sites, a store keeps the records, and cluster/manager joins them.
package cluster

import (
	"time"

	"croft"
)

// State is where a cluster is in its life.
type State string

// The states. A cluster is changed only by the one manager that holds it, one transaction for each change.
const (
	Scheduling State = "SCHEDULING" // a site is being chosen, or its image is brought there
	Building   State = "BUILDING"   // the site was asked, or is about to be
	Ready      State = "READY"      // all members are there
	Resizing   State = "RESIZING"   // the site makes it larger or smaller
	Degraded   State = "DEGRADED"   // the master is there, and a slave is missing
	Failed     State = "ERROR"      // it cannot be used; it stays until its user destroys it
	Deleting   State = "DELETING"   // it is being removed from its site
	Deleted    State = "DELETED"    // nothing of it is left; kept for Remembered, so that its end can be read
)

// States lists all states in the order of a life.
var States = []State{Scheduling, Building, Ready, Resizing, Degraded, Failed, Deleting, Deleted}

// Settled reports whether nothing is under way that ends by itself.
func (s State) Settled() bool {
	return s == Ready || s == Degraded || s == Failed || s == Deleted
}

// Remembered is how long a cluster that was deleted can still be read.
const Remembered = 24 * time.Hour

// MaxRemembered is how many deleted clusters of a project can still be read. Those that ended first are forgotten
// sooner.
const MaxRemembered = 100

// Cluster is the record of a cluster. The name belongs to the cluster until it is DELETED.
type Cluster struct {
	ID      croft.ClusterID `json:"id"`
	Name    string          `json:"name"` // unique in its project
	Project croft.Project   `json:"project"`
	User    string          `json:"user"` // who asked for it; reuse is for the same user alone

	Appliance      string           `json:"appliance"`
	Implementation ImplementationID `json:"implementation,omitempty"` // empty until one is chosen
	Revision       int              `json:"revision,omitempty"`       // of the implementation
	Site           string           `json:"site,omitempty"`
	Credential     CredentialID     `json:"credential,omitempty"` // empty where the site needs none

	Digest     string         `json:"digest,omitempty"`     // of the request, to know it again; see Request.Digest
	Hints      Hints          `json:"hints"`                // as given
	Parameters map[string]any `json:"parameters,omitempty"` // as given, but for hidden ones, which are in Sealed
	Keys       []string       `json:"keys,omitempty"`       // of those who may log in, as lines of authorized_keys
	Slaves     int            `json:"slaves"`               // wanted
	Good       int            `json:"good_slaves"`          // as it last was READY with; to go back to
	// of the slaves that are wanted, ascending; never used twice
	Indexes   []int  `json:"indexes"`
	NextIndex int    `json:"next_index"`        // of the next slave
	Removed   []int  `json:"removed,omitempty"` // indexes that were taken out by name
	Sizing    Sizing `json:"sizing,omitzero"`   // what the site was told of that

	State    State          `json:"state"`
	Step     string         `json:"step,omitempty"` // what happens now, in English
	Error    *Failure       `json:"error,omitempty"`
	MasterIP string         `json:"master_ip,omitempty"`
	Outputs  map[string]any `json:"outputs,omitempty"` // of the site, but for secret ones, which are in Sealed
	Members  []Member       `json:"hosts"`
	Remote   Remote         `json:"remote"`
	Attempts []Tried        `json:"attempts,omitempty"` // that failed, oldest first
	Why      []Dropped      `json:"why,omitempty"`      // sites that were not chosen
	Deadline time.Time      `json:"deadline,omitzero"`  // of the build or resize that is under way
	Retry    Retry          `json:"retry,omitzero"`     // of a removal that the site refused
	// FaultSince is since when the site responds with faults to what is under way; PartialSince since when it says that
	// it is done, and members are missing.
	FaultSince   time.Time `json:"fault_since,omitzero"`
	PartialSince time.Time `json:"partial_since,omitzero"`

	Uses      []Use         `json:"uses"`
	KeepIdle  time.Duration `json:"keep_idle,omitempty"` // how long it stays without uses; 0: for ever
	IdleSince time.Time     `json:"idle_since,omitzero"` // since when it has no use
	Expires   time.Time     `json:"expires,omitzero"`    // when it is destroyed whoever uses it; zero: never
	Warned    time.Time     `json:"warned,omitzero"`     // when its end was announced
	KeptUntil time.Time     `json:"kept_until,omitzero"` // until when what failed stays on the site, to be looked at
	Ended     time.Time     `json:"ended,omitzero"`      // when it became DELETED
	Abandoned bool          `json:"abandoned,omitempty"` // its user gave up what is left on the site
	Created   time.Time     `json:"created"`
	Updated   time.Time     `json:"updated"`

	Sealed map[string]Sealed `json:"sealed,omitempty"` // secret outputs and parameters by name; never printed

	// Generation counts the changes that users see, for If-Match.
	Generation int64 `json:"generation"`
	// Revised is the version of the stored record. A write compares it. Never stored.
	Revised int64 `json:"-"`
}

// Failure says what is wrong with a cluster.
type Failure struct {
	Code    FailureCode `json:"code"`
	Message string      `json:"message"` // at most MaxMessage bytes
	At      time.Time   `json:"at"`
}

// MaxMessage bounds what is kept of the reason that a site gives, in bytes.
const MaxMessage = 2 << 10

// FailureCode classifies a failure.
type FailureCode string

// The codes.
const (
	FailedBuild      FailureCode = "build"       // the site could not build it
	FailedDeadline   FailureCode = "deadline"    // the site did not build it in time
	FailedOutputs    FailureCode = "outputs"     // it was built, and its outputs cannot be used
	FailedResize     FailureCode = "resize"      // a resize failed and was taken back
	FailedCredential FailureCode = "credential"  // the site refuses the credential, or shows it another project
	FailedRemoved    FailureCode = "removed"     // somebody removed it from its site
	FailedRoom       FailureCode = "no capacity" // no site has room
	FailedImage      FailureCode = "image"       // its image cannot be brought to the site
	FailedMaster     FailureCode = "master"      // its master is gone
)

// MemberState is how far a member is.
type MemberState string

// The states of members.
const (
	MemberBuilding MemberState = "BUILDING"
	MemberReady    MemberState = "READY"
	MemberGone     MemberState = "GONE" // it is being removed, or was lost
)

// Member is one machine of a cluster. Its ID follows from cluster, role and index, so it is known before the machine
// is, and stays through every resize.
type Member struct {
	ID       MemberID    `json:"id"`
	Name     string      `json:"name,omitempty"`
	Role     Role        `json:"role"`
	Index    int         `json:"index"` // of a slave, from 0; 0 of the master
	Address  string      `json:"address,omitempty"`
	RemoteID string      `json:"remote_id,omitempty"` // at the site; of a local one the instance's UUID, the same as ID
	State    MemberState `json:"state"`
	Step     string      `json:"step,omitempty"` // asked, booting, set-up, ready
	Error    string      `json:"error,omitempty"`
}

// Remote is what the site has of a cluster.
type Remote struct {
	ID      string `json:"id,omitempty"`      // of the stack; empty until it is known
	Name    string `json:"name,omitempty"`    // written before the site is asked
	Project string `json:"project,omitempty"` // at the site, so that a credential for another one is noticed
	Status  string `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Asked is set before the site is asked to build, so that a site is asked to remove whatever it may have begun.
	Asked bool `json:"asked,omitempty"`
	// Counted says that Open counts the requests to build that the site has neither taken nor refused: they may take
	// effect yet. Records of versions before 1.8 do not count them.
	Counted bool `json:"counted,omitempty"`
	Open    int  `json:"open,omitempty"`
}

// nothing reports whether the site refused all that it was asked to build, so that nothing of it can come.
func (r Remote) nothing() bool { return r.Asked && r.Counted && r.Open == 0 && r.ID == "" }

// Tried is a build that failed.
type Tried struct {
	Site           string           `json:"site"`
	Implementation ImplementationID `json:"implementation"`
	Error          string           `json:"error"`
	At             time.Time        `json:"at"`
}

// MaxAttempts is how many builds are tried for one request, each on another site.
const MaxAttempts = 3

// Sizing is what a site was last told of the size of a cluster.
type Sizing struct {
	Told  []int `json:"told,omitempty"`  // the indexes of the slaves
	Taken bool  `json:"taken,omitempty"` // it took the request; what Told is not, has to be told
	Back  bool  `json:"back,omitempty"`  // a resize failed, and is being taken back
	Good  []int `json:"good,omitempty"`  // the indexes that it last was READY with

	// Open counts requests without an answer, the last one at Sent: they may take effect yet.
	Open int       `json:"open,omitempty"`
	Sent time.Time `json:"sent,omitzero"`
	// Unwanted lists the indexes of slaves that the site had although they were not wanted, when it was last looked at.
	Unwanted []int `json:"unwanted,omitempty"`
}

// Retry counts how often the site was asked to remove a cluster, and when it is asked again.
type Retry struct {
	Taken bool      `json:"taken,omitempty"` // it took the request once: what is absent since then is gone
	Tries int       `json:"tries"`
	Since time.Time `json:"since"`
	Next  time.Time `json:"next"`
}

// MaxUses bounds the uses that a cluster has at a time.
const MaxUses = 500

// Use is somebody's interest in a cluster: it is not idle while it has one.
type Use struct {
	ID     UseID     `json:"id"`
	Since  time.Time `json:"since"`
	Holder string    `json:"holder"` // a user
}

// Event is something that happened to a cluster.
type Event struct {
	At      time.Time `json:"at"`
	State   State     `json:"state"`             // from then on
	Host    string    `json:"host,omitempty"`    // the member that it is about
	Message string    `json:"message"`           // one sentence
	Console string    `json:"console,omitempty"` // the end of the console of a member that failed
}

// Account is a user's account on the machines of a cluster, made by the appliance's agent.
type Account struct {
	Cluster  croft.ClusterID `json:"cluster"`
	User     string          `json:"user"`
	Username string          `json:"username"`
	Password Sealed          `json:"password"`
	Created  time.Time       `json:"created"`
}

// Request asks for a cluster.
type Request struct {
	ID         croft.ClusterID `json:"id,omitempty"` // empty: a new one
	Name       string          `json:"name"`
	Project    croft.Project   `json:"project"`
	User       string          `json:"user"`
	Appliance  string          `json:"appliance"`
	Slaves     int             `json:"slaves"`
	Hints      Hints           `json:"hints"`
	Parameters map[string]any  `json:"parameters,omitempty"`
	Keys       []string        `json:"keys,omitempty"` // public SSH keys, as lines of authorized_keys
	Reuse      Reuse           `json:"reuse,omitempty"`
	KeepIdle   time.Duration   `json:"keep_idle,omitempty"`
	Expires    time.Duration   `json:"expires,omitempty"` // from now on; 0: never
}

// Reuse says whether a request may get a cluster that is there already.
type Reuse string

// The ways of reuse.
const (
	ReuseAuto  Reuse = ""      // one of the same user, appliance and parameters that is large enough
	ReuseNever Reuse = "never" // always a new one
)

// MaxSlaves bounds the size of a cluster.
const MaxSlaves = 1000

// Hints narrow the choice of a site; only PreferSites is a wish.
type Hints struct {
	Sites           []string           `json:"sites,omitempty"`
	ExcludeSites    []string           `json:"exclude_sites,omitempty"`
	Credentials     []string           `json:"credentials,omitempty"` // names or IDs
	Implementations []ImplementationID `json:"implementations,omitempty"`
	PreferSites     []string           `json:"prefer_sites,omitempty"`
}
