// Package croft holds the nouns of the cloud: hosts, instances, claims, orders
// and observations, their identifiers, and the five kinds of error. It imports
// the standard library only (and UUID parsing), so that every room may import it.
package croft

import (
	"net/netip"
	"time"
)

// Want is what an order asks the agent to make true of one instance.
type Want string

// The three things an order can ask for. WantGone is a tombstone: the only
// order that destroys anything.
const (
	WantRunning Want = "running"
	WantStopped Want = "stopped"
	WantGone    Want = "gone"
)

// State says where an instance stands: on its record as the scheduler left it,
// on its observation as the agent last saw it.
type State string

// States of a record.
const (
	StateScheduling State = "scheduling" // the intent is written; claim and order may not be
	StateScheduled  State = "scheduled"  // claimed and ordered; the observation knows more
	StateDestroying State = "destroying" // a tombstone is out
)

// States of an observation.
const (
	StatePending  State = "pending"  // the agent has the order and waits for a free build slot
	StateFetching State = "fetching" // the image is on its way; Progress counts its bytes
	StateDefining State = "defining" // disk and domain are being made
	StateBooting  State = "booting"  // the guest runs and has no address yet
	StateRunning  State = "running"  // the guest runs and has an address
	StateStopped  State = "stopped"  // the domain exists and is shut off
	StateFailed   State = "failed"   // the last pass ended in Error
	StateRemoving State = "removing" // the tombstone is being carried out
)

// ObservedStates are the states of an observation.
var ObservedStates = []State{
	StatePending, StateFetching, StateDefining, StateBooting, StateRunning, StateStopped, StateFailed, StateRemoving,
}

// Host is a machine that runs the agent: a resource provider of the same UUID.
type Host struct {
	ID        HostID   `json:"id"`
	Name      string   `json:"name"`
	Addresses []string `json:"addresses,omitempty"` // the host's own, for people
	API       string   `json:"api,omitempty"`       // base URL of the agent's HTTP API
	Token     string   `json:"-"`                   // bearer token of that API; stored, never printed
	Location  string   `json:"location,omitempty"`  // path in the tree, such as site1/row2/rack7
	Version   string   `json:"version,omitempty"`   // of croft
	VirtType  string   `json:"virt_type,omitempty"` // kvm or qemu, as probed; sim where nothing is real
	Drained   bool     `json:"drained"`             // no new claims, by an operator's word
	Alive     bool     `json:"alive"`               // the agent's lease lives; derived, never stored
	// its agent knows orders that name a trace; derived from its life, never stored
	Traces bool `json:"-"`

	// when its agent last said so, to a minute; derived, never stored
	Seen       time.Time `json:"seen,omitzero"`
	FormerName string    `json:"former_name,omitempty"` // what it was called before Name
	Problems   []string  `json:"problems,omitempty"`    // what its agent finds wrong with the host, a sentence each
	Place      string    `json:"place,omitempty"`       // of its newest agent: see Agent
}

// Agent is one process that serves a host. Those of one Place follow one another, and
// two of different places that have one host's UUID are one too many: a machine or a
// state directory was copied.
type Agent struct {
	Host  HostID `json:"host"`
	Place string `json:"place,omitempty"` // tells the machine and the state directory from all others
	Name  string `json:"name,omitempty"`  // that the agent gives the host
	API   string `json:"api,omitempty"`
}

// Spec is what was asked for. It does not change during an instance's life.
type Spec struct {
	Resources Resources `json:"resources"`
	// a URL, or an absolute path on the host; may end in #sha256=HEX, #sha512=HEX or #sums=URL
	Image    string   `json:"image"`
	Keys     []string `json:"keys,omitempty"`      // lines of authorized_keys
	UserData []byte   `json:"user_data,omitempty"` // at most MaxUserData bytes

	// where the guest is to find its metadata; MetadataAuto where empty
	Metadata Metadata `json:"metadata,omitempty"`
	// whether the metadata server wants a token; IMDSOptional where empty
	IMDS IMDS              `json:"imds,omitempty"`
	Tags map[string]string `json:"tags,omitempty"` // words of the user's, which the guest can read

	// of the host, by the names it gives them; its usual ones where empty
	Networks []string `json:"networks,omitempty"`
	// private key that the guest's SSH server is to have, in PEM; never printed
	HostKey   string `json:"host_key,omitempty"`
	Ephemeral bool   `json:"ephemeral,omitempty"` // the user can do without it: its disk need not outlive anything
	// what Placement was asked, so that it can be asked again for another host
	Query string `json:"query,omitempty"`

	Affinities []Affinity `json:"affinities,omitempty"` // the groups it is in

	// what is done about a guest that went off unasked; RestartOnFailure where empty
	Restart Restart `json:"restart,omitempty"`
}

// Restart says what the agent does about a guest that is to run and went off without
// having been stopped.
type Restart string

// The restart policies. A failure is everything but a guest that powered itself off: it
// crashed, its process was killed, the host lost power or was rebooted.
const (
	RestartAlways    Restart = "always"     // it is started again
	RestartOnFailure Restart = "on-failure" // it is started again after a failure
	RestartNever     Restart = "never"      // it stays off until it is started by order
)

// End says how a guest went off that its restart policy leaves off.
type End string

// The ends of guests.
const (
	EndGuest   End = "guest"   // the guest powered itself off
	EndFailure End = "failure" // it crashed, was killed, or the host went down
)

// String is the end in words.
func (e End) String() string {
	switch e {
	case EndGuest:
		return "the guest powered itself off"
	case EndFailure:
		return "the guest crashed or was killed, or its host went down"
	}
	return string(e)
}

// Metadata says where a guest is to find its metadata.
type Metadata string

// The sources of metadata. MetadataAuto is the server where the host runs one and
// the instance lets it answer without a token, and a NoCloud disk elsewhere.
const (
	MetadataAuto        Metadata = "auto"
	MetadataServer      Metadata = "server"       // 169.254.169.254, as in EC2 and OpenStack
	MetadataNoCloud     Metadata = "nocloud"      // a disk labelled cidata
	MetadataConfigDrive Metadata = "config-drive" // a disk labelled config-2, as in OpenStack
)

// IMDS says what the metadata server asks of those who read an instance's metadata.
type IMDS string

// With IMDSRequired a reader has to PUT for a session token first, which a program
// in the guest that fetches addresses for others cannot be tricked into.
const (
	IMDSOptional IMDS = "optional"
	IMDSRequired IMDS = "required"
	IMDSOff      IMDS = "off" // the server tells nothing of the instance
)

// MaxUserData is the most user-data an instance may carry, in bytes (64 KiB,
// the limit of the OpenStack compute API).
const MaxUserData = 64 << 10

// Instance is the record of a virtual machine: a consumer of the same UUID.
type Instance struct {
	ID         InstanceID `json:"id"`
	Project    Project    `json:"project"`
	Name       string     `json:"name"` // unique in its project
	Spec       Spec       `json:"spec"`
	State      State      `json:"state"`
	Host       HostID     `json:"host,omitempty"` // empty while scheduling
	Generation int64      `json:"generation"`     // of the newest order
	Rebooted   int64      `json:"rebooted,omitempty"`
	Rebuilt    int64      `json:"rebuilt,omitempty"`
	Session    string     `json:"session,omitempty"`
	// where it is about to be moved; its claim may be there already
	Moving    HostID `json:"moving,omitempty"`
	MovedFrom HostID `json:"moved_from,omitempty"` // the host before; see Former
	// hosts before that one which had an order still when it moved on
	LeftBefore []HostID  `json:"left_before,omitempty"`
	Created    time.Time `json:"created"`

	// Revision is the version of the stored record; a write compares it, so a
	// record changed by somebody else meanwhile is a Conflict. Never stored.
	Revision int64 `json:"-"`
}

// Former are the hosts that may have something of the instance still: nothing is built while
// one of them has an order about it.
func (i Instance) Former() []HostID { return former(i.MovedFrom, i.LeftBefore) }

// ID returns what names the order.
func (o Order) ID() OrderID { return OrderID{o.Host, o.Instance} }

// Former is as that of the record.
func (o Order) Former() []HostID { return former(o.MovedFrom, o.LeftBefore) }

func former(last HostID, before []HostID) []HostID {
	if last == "" {
		return nil
	}
	return append([]HostID{last}, before...)
}

// Places are the hosts on which the instance may have its claim.
func (i Instance) Places() []HostID {
	if i.Moving != "" {
		return []HostID{i.Host, i.Moving}
	}
	return []HostID{i.Host}
}

// Claim is what an instance claims, as Placement has it at one moment.
type Claim struct {
	Instance    InstanceID
	Allocations map[HostID]Resources // empty: it claims nothing
	// Generation is another one after every change, and a change names the one that it builds
	// on; so of two that build on the same only one is made. Nil: it claims nothing.
	Generation *int64
}

// OrderID names the order that a host has about an instance, and its observation.
type OrderID struct {
	Host     HostID     `json:"host"`
	Instance InstanceID `json:"instance"`
}

// Order tells the agent of Host what to do about one instance.
type Order struct {
	Partition  PartitionID `json:"partition"`
	Host       HostID      `json:"host"`
	Instance   InstanceID  `json:"instance"`
	Generation int64       `json:"generation"` // counts up; an agent refuses an older one
	Want       Want        `json:"want"`
	Project    Project     `json:"project"`
	Name       string      `json:"name"`
	Spec       Spec        `json:"spec"`
	Issued     time.Time   `json:"issued"`

	// The generations of the newest orders to reboot and to rebuild. A domain that an
	// earlier generation defined is to be started anew, and made anew from the image;
	// so neither is done twice, nor lost where a later order comes first.
	Rebooted int64 `json:"rebooted,omitempty"`
	Rebuilt  int64 `json:"rebuilt,omitempty"`

	MovedFrom  HostID   `json:"moved_from,omitempty"` // as in the record
	LeftBefore []HostID `json:"left_before,omitempty"`

	Trace string `json:"trace,omitempty"` // the span that ordered it, as W3C's traceparent; only where somebody records

	Revision int64 `json:"-"` // version of the stored order, compared when it is removed
}

// Progress counts the bytes of a transfer; Total is 0 where it is not known.
type Progress struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total,omitempty"`
}

// Observation is what the agent last saw of one instance. Only that agent writes it.
type Observation struct {
	Host       HostID       `json:"host"`
	Instance   InstanceID   `json:"instance"`
	Generation int64        `json:"generation"` // of the order acted on
	State      State        `json:"state"`
	Addresses  []netip.Addr `json:"addresses,omitempty"`
	MAC        string       `json:"mac,omitempty"`
	Progress   *Progress    `json:"progress,omitempty"`
	Error      string       `json:"error,omitempty"`      // one sentence, when State is failed
	ErrorKind  Kind         `json:"error_kind,omitempty"` // of Error
	// how it went off, when State is stopped although it is to run
	Ended   End       `json:"ended,omitempty"`
	Updated time.Time `json:"updated"`
	Events  []Event   `json:"events,omitempty"` // how the newest boot came about, in order

	// What the guest itself reported; nobody has checked it.
	CloudInit *CloudInit `json:"cloud_init,omitempty"`
	Password  string     `json:"password,omitempty"` // as posted: encrypted with the instance's key
}

// Event is a step of an instance's way to its address, and when it was done.
type Event struct {
	Name EventName `json:"name"`
	At   time.Time `json:"at"`
}

// EventName names a step.
type EventName string

// The steps, in their order. A boot after the first has no image fetched and no
// domain defined.
const (
	EventClaimed EventName = "claimed" // the resources are taken and the order is written
	EventImage   EventName = "image"   // the image is on the host
	EventDefined EventName = "defined" // disk and domain are made
	EventRunning EventName = "running" // the domain runs
	EventAddress EventName = "address" // the guest has taken its address
)

// CloudInit is how the first boot's set-up ended, in the guest's own words.
type CloudInit struct {
	State CloudInitState `json:"state"`
	At    time.Time      `json:"at"`
	Error string         `json:"error,omitempty"` // when State is CloudInitFailed
}

// CloudInitState is the outcome that a guest reports.
type CloudInitState string

// The outcomes of a guest's set-up.
const (
	CloudInitDone   CloudInitState = "done"
	CloudInitFailed CloudInitState = "failed"
)

// Status joins the three views of one instance, as `schedule show` prints them.
type Status struct {
	Instance    Instance     `json:"instance"`
	Order       *Order       `json:"order,omitempty"`
	Observation *Observation `json:"observation,omitempty"`
	Host        *Host        `json:"host,omitempty"`
}
