// Package cluster declares the types of clusters and decides about them: which site builds a cluster and why, what
// values its template gets, and which step comes next in its life. A cluster is a master and any number of slaves that
// an appliance describes and one site builds. A site is the hosts of this cloud, an OpenStack with Heat, or another
// croft. Everything here is pure: drivers call the sites, a store keeps the records, and cluster/manager connects them.
package cluster

import (
	"slices"
	"time"

	"croft"
)

// State is a stage in the life of a cluster.
type State string

// The states. Only the one manager that holds a cluster changes its state, in one transaction per change.
const (
	Scheduling State = "SCHEDULING" // a site is being chosen, or the image is being copied to it
	Building   State = "BUILDING"   // the site was asked to build, or is about to be
	Ready      State = "READY"      // all members exist
	Resizing   State = "RESIZING"   // the site adds or removes slaves
	Degraded   State = "DEGRADED"   // the master exists, and a slave is missing
	Failed     State = "ERROR"      // it cannot be used, and stays until its user destroys it
	Deleting   State = "DELETING"   // the site removes it
	Deleted    State = "DELETED"    // nothing is left of it; kept for Remembered, so that users can read how it ended
)

// States lists all states in the order in which a cluster passes through them.
var States = []State{Scheduling, Building, Ready, Resizing, Degraded, Failed, Deleting, Deleted}

// Settled reports whether no operation is in progress.
func (s State) Settled() bool {
	return s == Ready || s == Degraded || s == Failed || s == Deleted
}

// Remembered is how long a deleted cluster can still be read.
const Remembered = 24 * time.Hour

// MaxRemembered is the number of deleted clusters of a project that can still be read. Beyond it, the clusters that
// ended first are forgotten before Remembered is over.
const MaxRemembered = 100

// Cluster is the record of a cluster. The cluster keeps its name until it is DELETED.
type Cluster struct {
	ID      croft.ClusterID `json:"id"`      // its UUID
	Name    string          `json:"name"`    // unique in its project
	Project croft.Project   `json:"project"` // the project that it belongs to
	User    string          `json:"user"`    // the user who requested it; only the same user can reuse it

	Appliance      string           `json:"appliance"`                // what it runs
	Implementation ImplementationID `json:"implementation,omitempty"` // empty until a site is chosen
	Revision       int              `json:"revision,omitempty"`       // of the implementation
	Site           string           `json:"site,omitempty"`           // where it is built
	Credential     CredentialID     `json:"credential,omitempty"`     // empty if the site needs none

	// Request.Digest of the request, to recognize a repeated one
	Digest     string         `json:"digest,omitempty"`
	Hints      Hints          `json:"hints"`                // as given
	Parameters map[string]any `json:"parameters,omitempty"` // as given, without the secret ones
	// SSH keys of the users who may log in, as lines of authorized_keys
	Keys   []string `json:"keys,omitempty"`
	Slaves int      `json:"slaves"` // wanted number of slaves
	// number of slaves when it was READY last; a failed resize goes back to it
	Good int `json:"good_slaves"`
	// of the wanted slaves, ascending; an index is never used twice
	Indexes   []int  `json:"indexes"`
	NextIndex int    `json:"next_index"`        // of the next slave
	Removed   []int  `json:"removed,omitempty"` // indexes of slaves that were removed by name
	Sizing    Sizing `json:"sizing,omitzero"`   // the last request for a size to the site

	State    State          `json:"state"`               // state of the cluster
	Step     string         `json:"step,omitempty"`      // the current step, in English
	Error    *Failure       `json:"error,omitempty"`     // why it is in this state
	MasterIP string         `json:"master_ip,omitempty"` // address of the master
	Outputs  map[string]any `json:"outputs,omitempty"`   // outputs of the stack at the site, without the secret ones
	Members  []Member       `json:"hosts"`               // its hosts
	Remote   Remote         `json:"remote"`              // as the site has it
	Attempts []Tried        `json:"attempts,omitempty"`  // failed attempts, oldest first
	Why      []Dropped      `json:"why,omitempty"`       // sites that were not chosen
	Deadline time.Time      `json:"deadline,omitzero"`   // of the build or resize in progress
	Retry    Retry          `json:"retry,omitzero"`      // of a removal
	// since when the site has answered the operation in progress with faults
	FaultSince time.Time `json:"fault_since,omitzero"`
	// since when the site has said that it is done although members are missing
	PartialSince time.Time `json:"partial_since,omitzero"`

	Uses      []Use     `json:"uses"`                // who uses it
	KeepIdle  Seconds   `json:"keep_idle,omitempty"` // seconds that it is kept without uses; 0: forever
	IdleSince time.Time `json:"idle_since,omitzero"` // when it lost its last use
	Expires   time.Time `json:"expires,omitzero"`    // when it is destroyed, whether it is used or not; zero: never
	Warned    time.Time `json:"warned,omitzero"`     // when its end was announced
	// how long the remains of a failed build stay on the site, for inspection
	KeptUntil time.Time `json:"kept_until,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`      // when it became DELETED
	Abandoned bool      `json:"abandoned,omitempty"` // its user gave up the remains on the site
	Created   time.Time `json:"created"`             // when it was requested
	Updated   time.Time `json:"updated"`             // when it last changed

	Sealed map[string]Sealed `json:"sealed,omitempty"` // secret outputs and parameters by name; never shown

	// Generation counts the changes that are visible to users, for If-Match.
	Generation int64 `json:"generation"`
	// Revised is the revision of the stored record, which a write compares. Never stored.
	Revised int64 `json:"-"`
}

// Failure is the error of a cluster.
type Failure struct {
	Code    FailureCode `json:"code"`    // kind of the failure
	Message string      `json:"message"` // at most MaxMessage bytes
	At      time.Time   `json:"at"`      // when it failed
}

// MaxMessage bounds the stored part of a site's reason, in bytes.
const MaxMessage = 2 << 10

// FailureCode classifies a failure.
type FailureCode string

// The codes.
const (
	FailedBuild    FailureCode = "build"    // the site failed to build it
	FailedDeadline FailureCode = "deadline" // the site did not build it in time
	FailedOutputs  FailureCode = "outputs"  // it was built, and its outputs cannot be used
	FailedResize   FailureCode = "resize"   // a resize failed and was undone
	// the site refuses the credential, or the credential now belongs to another project there
	FailedCredential FailureCode = "credential"
	FailedRemoved    FailureCode = "removed"     // it was removed from its site outside of croft
	FailedRoom       FailureCode = "no capacity" // no site has room
	FailedImage      FailureCode = "image"       // its image cannot be copied to the site
	FailedMaster     FailureCode = "master"      // its master is gone
)

// MemberState is the state of a member.
type MemberState string

// The states of members.
const (
	MemberBuilding MemberState = "BUILDING"
	MemberReady    MemberState = "READY"
	MemberGone     MemberState = "GONE" // it is being removed, or was lost
)

// Member is one machine of a cluster. Its ID is computed from cluster, role and index, so it is known before the
// machine exists, and does not change with a resize.
type Member struct {
	// The same through every resize. At the site local, the instance's UUID.
	ID      MemberID `json:"id" format:"uuid"`
	Name    string   `json:"name,omitempty"`           // its host name
	Role    Role     `json:"role" enum:"master,slave"` // master or slave
	Index   int      `json:"index"`                    // of a slave, from 0; 0 of the master
	Address string   `json:"address,omitempty"`        // where it is reached from outside
	// at the site; at the local site the UUID of the instance, which equals ID
	RemoteID string      `json:"remote_id,omitempty"`
	State    MemberState `json:"state" enum:"BUILDING,READY,GONE"` // state of the host
	Step     string      `json:"step,omitempty"`                   // asked, booting, set-up or ready
	Error    string      `json:"error,omitempty"`                  // why it failed
}

// Remote is the state of a cluster on its site.
type Remote struct {
	ID      string `json:"id,omitempty"`      // of the stack; empty until known
	Name    string `json:"name,omitempty"`    // stored before the site is asked
	Project string `json:"project,omitempty"` // at the site, to detect a credential for another project
	Status  string `json:"status,omitempty"`  // as the site has it
	Reason  string `json:"reason,omitempty"`  // as the site gives it
	// Asked is set before the site is asked to build, so that a removal covers whatever the site may have created.
	Asked bool `json:"asked,omitempty"`
	// Counted says that Open is maintained: it counts the build requests that the site has neither accepted nor
	// refused, and that may still take effect. Records of versions before 1.8 do not count them.
	Counted bool `json:"counted,omitempty"`
	// How many requests to build were neither taken nor refused: they may take effect yet.
	Open int `json:"open,omitempty"`
}

// nothing reports whether the site refused all build requests, so that none can take effect any more.
func (r Remote) nothing() bool { return r.Asked && r.Counted && r.Open == 0 && r.ID == "" }

// Tried is a failed build.
type Tried struct {
	Site           string           `json:"site"`           // its name
	Implementation ImplementationID `json:"implementation"` // its UUID
	Error          string           `json:"error"`          // why it failed
	At             time.Time        `json:"at"`             // when it failed
}

// MaxAttempts is the maximum number of builds for one request, each on another site.
const MaxAttempts = 3

// Sizing is the last request for a size to a site.
type Sizing struct {
	Told []int `json:"told,omitempty"` // the indexes of the slaves in the request
	// the site accepted the request; indexes that are not in Told need another request
	Taken bool  `json:"taken,omitempty"`
	Back  bool  `json:"back,omitempty"` // a resize failed, and is being undone
	Good  []int `json:"good,omitempty"` // the indexes when the cluster was READY last

	// Open counts the requests without an answer, the last one sent at Sent: they may still take effect.
	Open int `json:"open,omitempty"`
	// When the last one of those was sent.
	Sent time.Time `json:"sent,omitzero"`
	// Unwanted lists the indexes of unwanted slaves that the site had at the last look.
	Unwanted []int `json:"unwanted,omitempty"`
}

// Retry counts the requests to remove a cluster, and says when the next one is due.
type Retry struct {
	Taken bool      `json:"taken,omitempty"` // the site accepted a removal: from then on, absent means gone
	Tries int       `json:"tries"`           // how often it was tried
	Since time.Time `json:"since"`           // when it was first tried
	Next  time.Time `json:"next"`            // when it is tried next
}

// MaxUses bounds the number of concurrent uses of a cluster.
const MaxUses = 500

// Use is a user's claim on a cluster: a cluster with a use is not idle.
type Use struct {
	ID     UseID     `json:"id" format:"uuid"` // its UUID
	Since  time.Time `json:"since"`            // when it began
	Holder string    `json:"holder"`           // a user
}

// Event is something that happened to a cluster.
type Event struct {
	At      time.Time `json:"at"`                // when it happened
	State   State     `json:"state"`             // state from then on
	Host    string    `json:"host,omitempty"`    // the member concerned
	Message string    `json:"message"`           // one sentence
	Console string    `json:"console,omitempty"` // the last part of the console of a failed member
}

// Account is a user's account on the machines of a cluster, created by the appliance's agent.
type Account struct {
	Cluster  croft.ClusterID `json:"cluster"`
	User     string          `json:"user"`
	Username string          `json:"username"`
	Password Sealed          `json:"password"`
	Created  time.Time       `json:"created"`
}

// Request asks for a cluster.
type Request struct {
	Spec
	Project croft.Project
	User    string
}

// Spec describes a wanted cluster.
type Spec struct {
	// The UUID that the cluster gets. A random one by default.
	ID croft.ClusterID `json:"id,omitempty" format:"uuid"`
	// Lower-case letters, digits and dashes; starts with a letter. Unique in the project.
	Name      string `json:"name" maxLength:"63" minLength:"1"`
	Appliance string `json:"appliance" maxLength:"63" minLength:"1"` // what it runs
	// The number of hosts in addition to the master; 0 by default.
	Slaves int   `json:"slaves,omitempty" maximum:"1000" minimum:"0"`
	Hints  Hints `json:"hints,omitzero"` // where to build it
	// For the template.
	Parameters map[string]any `json:"parameters,omitempty" maxProperties:"256"`
	// Public SSH keys that may log in, as lines of authorized_keys.
	Keys     []string `json:"keys,omitempty" maxItems:"100" maxLength:"16384" minLength:"1"`
	Reuse    Reuse    `json:"reuse,omitempty" enum:"auto,never"`                   // auto or never
	KeepIdle Seconds  `json:"keep_idle,omitempty" maximum:"315360000" minimum:"0"` // seconds
	Expires  Seconds  `json:"expires,omitempty" maximum:"315360000" minimum:"0"`   // seconds after the request
}

// Reuse says whether a request may be given an existing cluster.
type Reuse string

// The ways of reuse.
const (
	// an existing cluster of the same user, appliance and parameters, if it is large enough; so does an empty Reuse
	ReuseAuto  Reuse = "auto"
	ReuseNever Reuse = "never" // always a new cluster
)

// MaxSlaves bounds the size of a cluster.
const MaxSlaves = 1000

// Hints restrict the choice of a site; PreferSites alone is only a preference.
type Hints struct {
	// the only sites to build at
	Sites []string `json:"sites,omitempty" maxItems:"64" maxLength:"63" minLength:"1"`
	// sites not to build at
	ExcludeSites []string `json:"exclude_sites,omitempty" maxItems:"64" maxLength:"63" minLength:"1"`
	// names or IDs
	Credentials []string `json:"credentials,omitempty" maxItems:"64" maxLength:"63" minLength:"1"`
	// the only implementations to build
	Implementations []ImplementationID `json:"implementations,omitempty" format:"uuid" maxItems:"64"`
	// sites to try first
	PreferSites []string `json:"prefer_sites,omitempty" maxItems:"64" maxLength:"63" minLength:"1"`
}

// Settled reports whether no operation is in progress or about to start: the size that the site was last asked for is
// the wanted one. It notices a change that the manager has not seen yet.
func (c Cluster) Settled() bool {
	if c.State == Ready || c.State == Degraded {
		return c.Sizing.Taken && slices.Equal(c.Sizing.Told, c.Indexes)
	}
	return c.State.Settled()
}
