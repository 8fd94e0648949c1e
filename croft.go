// Package croft holds the nouns of the cloud: hosts, instances, claims, orders and observations, their identifiers, and
// the kinds of error. It imports only the standard library and a UUID parser, so that every package may import it.
package croft

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"croft/internal/lazyregexp"
)

// Want is the goal of an order for one instance.
type Want string

// The goals of an order. WantGone is a tombstone: the only order that destroys anything. WantLeft is for an instance
// that was lost with its host: if the host returns, it keeps the guest off and the disks, until an operator removes
// them.
const (
	WantRunning Want = "running"
	WantStopped Want = "stopped"
	WantGone    Want = "gone"
	WantLeft    Want = "left"
	// WantLeaving stops the guest once the host of Order.Move asks for its disk, and gives it; nothing is removed.
	WantLeaving Want = "leaving"
	// WantArriving fetches the disk from the host of Order.Move and defines the domain; the guest does not start.
	WantArriving Want = "arriving"
)

// Withdrawn reports whether an order with this goal takes the instance away from the host.
func (w Want) Withdrawn() bool { return w == WantGone || w == WantLeft }

// Carries reports whether a goal is part of a move with the disk. Such an order never makes or removes a disk.
func (w Want) Carries() bool { return w == WantLeaving || w == WantArriving }

// State is the state of an instance: on its record as the scheduler wrote it, on its observation as the agent
// last saw it.
type State string

// States of a record.
const (
	StateScheduling State = "scheduling" // the intent is written; claim and order may not be
	StateScheduled  State = "scheduled"  // claimed and ordered; the observation knows more
	StateHeld       State = "held"       // claimed until it expires, and not ordered
	StateDestroying State = "destroying" // a tombstone is written
	StateLost       State = "lost"       // its host was forgotten; the record waits for Recreate or Destroy
)

// States of an observation.
const (
	StatePending  State = "pending"  // the agent has the order and waits for a free build slot
	StateFetching State = "fetching" // the image is being downloaded; Progress counts its bytes
	StateDefining State = "defining" // disk and domain are being created
	StateBooting  State = "booting"  // the guest runs and has no address yet
	StateRunning  State = "running"  // the guest runs and has an address
	StateStopped  State = "stopped"  // the domain exists and is shut off
	StateFailed   State = "failed"   // the last pass ended in Error
	StateRemoving State = "removing" // the tombstone is being carried out
	// it is off while its disk is copied to another host; Progress counts its bytes
	StateMoving State = "moving"
)

// ObservedStates are the states of an observation.
var ObservedStates = []State{
	StatePending, StateFetching, StateDefining, StateBooting, StateRunning, StateStopped, StateFailed, StateRemoving,
	StateMoving,
}

// Host is a machine that runs the agent: a resource provider of the same UUID.
type Host struct {
	ID        HostID   `json:"id" format:"uuid"`    // its UUID
	Name      string   `json:"name"`                // its host name
	Addresses []string `json:"addresses,omitempty"` // of the host itself, for people
	API       string   `json:"api,omitempty"`       // base URL of the agent's HTTP API
	Token     string   `json:"-"`                   // bearer token of that API; stored, never printed
	Location  string   `json:"location,omitempty"`  // path in the tree, such as site1/row2/rack7
	Version   string   `json:"version,omitempty"`   // version of croft
	VirtType  string   `json:"virt_type,omitempty"` // kvm or qemu, as probed; sim for a simulated hypervisor
	Drained   bool     `json:"drained"`             // an operator keeps new claims away
	Alive     bool     `json:"alive"`               // the agent's lease is valid; derived, never stored
	// its agent makes volumes; derived from its life key, never stored
	Volumes bool `json:"-"`
	// its agent resizes instances; derived from its life key, never stored
	Resizes bool `json:"-"`
	// its agent has copies of images, and makes instances from those of the cloud's catalog; derived likewise
	Images bool `json:"-"`
	// its agent accepts orders that name a trace; derived from its life key, never stored
	Traces bool `json:"-"`
	// its agent releases the claim here of an instance that moved away, once nothing of the instance is left here;
	// derived, never stored
	Vacates bool `json:"-"`
	// its agent takes part in moves with the disk; derived from its life key, never stored
	Carries bool `json:"-"`

	// when its agent last reported to be alive, to a minute; derived, never stored
	Seen       time.Time `json:"seen,omitzero"`
	FormerName string    `json:"former_name,omitempty"` // its name before Name
	Problems   []string  `json:"problems,omitempty"`    // found by its agent, one sentence each
	// what its agent found wrong with the machine, by the checks of croft doctor; left out: it has not checked yet, or
	// its version does not
	Findings []Finding `json:"findings,omitzero"`
	Place    string    `json:"place,omitempty"` // Place of its newest agent
	// identifies the running system of its newest agent: two hosts with the same value are agents on one machine
	Boot string `json:"boot,omitempty"`
	// the projects that may use each further network, by the network's name; see AdmitsTo
	Networks map[string][]Project `json:"networks,omitempty"`
	// the ranges of the addresses that its usual network gives to guests, as FIRST-LAST; none: it gives none
	GuestAddresses []string `json:"guest_addresses,omitempty"`
	// its guests are simulated: they run no cloud-init and report no result of it
	NoSetUp bool `json:"no_set_up,omitempty"`
	// public key for the access to stores of backups, in base64; empty: its agent makes no backups
	BackupKey string `json:"backup_key,omitempty"`
	// the declaration that it is dead; derived from another key
	Death *Death `json:"death,omitempty"`
	// the shared storage that it mounts now
	Storages []HostStorage `json:"storages,omitempty"`
	// the architectures of the machines that it runs; only x86_64 if empty
	Arch []Arch `json:"arch,omitempty"`
}

// Runs returns why the host runs no machines of an architecture; nil: it does. NoCapacity.
func (h Host) Runs(a Arch) error {
	if slices.Contains(h.Arch, a.Known()) || len(h.Arch) == 0 && a.Known() == ArchX86 {
		return nil
	}
	return Errorf(NoCapacity, "runs no %s machines", a.Known())
}

// Finding is a fault of a host's machine that a check of croft doctor found.
type Finding struct {
	// warn: the host works, slower or with restrictions; fail: something does not work
	Level string `json:"level" enum:"warn,fail"`
	Check string `json:"check"`        // one or two words, the same in every release
	Found string `json:"found"`        // what is wrong
	Do    string `json:"do,omitempty"` // advice; left out: none
}

// The levels of findings.
const (
	FindingWarn = "warn"
	FindingFail = "fail"
)

// MaxFindings is the maximum number of findings in the record of a host.
const MaxFindings = 32

// HostStorage is a shared storage that a host mounts.
type HostStorage struct {
	ID   StorageID `json:"id" format:"uuid"` // its UUID
	Name string    `json:"name"`             // its name, the same on all hosts
}

// Mounts returns the shared storage that the host mounts under a name or UUID; false: it mounts none of it.
func (h Host) Mounts(nameOrID string) (HostStorage, bool) {
	for _, m := range h.Storages {
		if m.Name == nameOrID || string(m.ID) == nameOrID {
			return m, true
		}
	}
	return HostStorage{}, false
}

// CanKeep reports whether the host can make, attach and remove a volume on shared storage now.
func (h Host) CanKeep(v Volume) bool {
	_, mounted := h.Mounts(string(v.Storage))
	return mounted && h.Alive && h.Volumes
}

// Storage is the record of a directory that several hosts mount: a sharing resource provider of the same UUID.
type Storage struct {
	ID      StorageID `json:"id"`
	Name    string    `json:"name"`    // unique in the cloud
	Path    string    `json:"path"`    // the same on all hosts, because the headers of disks name it
	Founder HostID    `json:"founder"` // the host that gives the directory its identity
	Founded bool      `json:"founded,omitempty"`
	Created time.Time `json:"created"`

	Revision int64 `json:"-"` // version of the stored record, compared by each change
}

// The special values of InstanceSettings.Storage.
const (
	StorageLocal  = "local"  // on the host of the instance
	StorageShared = "shared" // on any shared storage
)

// IsDead reports whether the host was declared dead. One that returns starts nothing until it is taken back.
func (h Host) IsDead() bool { return h.Death != nil && !h.Death.Declared.IsZero() }

// Death is the record of fencing a host: that it was declared dead, or that this has started. While it exists, the host
// gets no orders to run anything, and its agent starts nothing.
type Death struct {
	Begun    time.Time `json:"begun"`             // when the fence began
	Declared time.Time `json:"declared,omitzero"` // when the host was declared dead; zero: not yet
	// how it is known that the host is off
	How FenceResult `json:"how,omitempty" enum:"fenced,confirmed"`
	// it was drained before, and stays so when it is taken back
	Drained bool `json:"drained,omitempty"`

	// Revision is the version of the record, and CreateRevision its identity: a later fence of the host has another
	// one. Never stored.
	Revision       int64 `json:"-"`
	CreateRevision int64 `json:"-"`
}

// FenceResult says how it is known that a host is off.
type FenceResult string

// The ways in which a host is known to be off.
const (
	FencedOff    FenceResult = "fenced"    // the fence agent switched it off, and reported it as off afterwards
	ConfirmedOff FenceResult = "confirmed" // an operator confirmed it
)

// HostCalled returns the host with this UUID or, if it is missing, the host with this name. NotFound. Conflict:
// several hosts have the name, as when a machine that lost its state directory joins again.
func HostCalled(all iter.Seq[Host], idOrName string) (Host, error) {
	var found []Host
	id, _ := ParseHostID(idOrName) // not a UUID: it is a name
	for h := range all {
		if id != "" && h.ID == id {
			return h, nil
		}
		if h.Name == idOrName {
			found = append(found, h)
		}
	}
	switch len(found) {
	case 0:
		return Host{}, Errorf(NotFound, "there is no host %q", idOrName)
	case 1:
		return found[0], nil
	}
	var ids []string
	for _, h := range found {
		ids = append(ids, string(h.ID))
	}
	slices.Sort(ids)
	return Host{}, Errorf(Conflict, "%d hosts are called %s: give the UUID, one of %s", len(found), idOrName,
		strings.Join(ids, ", "))
}

// SeenEvery is the interval at which an agent writes the time to Host.Seen.
const SeenEvery = time.Minute

// ClockDifference returns the least amount by which a host's clock is ahead of now, the time of another machine;
// negative: behind. It is 0 if the clocks agree within the precision of Seen, which may be two minutes old, and for a
// silent host.
func (h Host) ClockDifference(now time.Time) time.Duration {
	if !h.Alive || h.Seen.IsZero() {
		return 0
	}
	switch ahead := h.Seen.Sub(now); {
	case ahead > 0:
		return ahead
	case ahead < -2*SeenEvery:
		return ahead + SeenEvery
	}
	return 0
}

// Agent is one process that serves a host. Agents with the same Place succeed one another. Two agents with the
// same host UUID and different Places are a fault: a machine or a state directory was copied.
type Agent struct {
	Host  HostID `json:"host"`
	Place string `json:"place,omitempty"` // identifies the machine and the state directory
	Name  string `json:"name,omitempty"`  // name of the host as the agent reports it
	API   string `json:"api,omitempty"`
}

// Spec is the user's request. It does not change after the first order, except for Peers.
type Spec struct {
	Resources Resources `json:"resources"`
	// a URL, or an absolute path on the host; may end in #sha256=HEX, #sha512=HEX or #sums=URL
	Image string `json:"image"`
	// the name under which the request asked for the image; empty: its address, or not recorded
	ImageName string `json:"image_name,omitempty"`
	// a tenant chose the address of the image, so the host may fetch it only from the internet: every address that it
	// connects to for the image is checked
	ImagePublic bool `json:"image_public,omitempty"`
	// the ISO of Machine.ISO, in the form of Image; nil: it has no CD drive
	ISO *ISO `json:"iso,omitempty"`

	GuestSettings
	InstanceSettings

	// private key of the guest's SSH server, in PEM; never printed
	HostKey string `json:"host_key,omitempty"`
	// the name, at that time, of the size that its resources come from; empty: none
	Size string `json:"size,omitempty"`
	// the query to Placement, to repeat it for another host
	Query string `json:"query,omitempty"`

	Near []Near  `json:"near,omitempty"` // locations, hosts and aggregates to be near to, or far from
	In   []Bound `json:"in,omitempty"`   // aggregates and locations that it must be in, or not in
	// filters of properties and tags of hosts: its host must match at least one filter of Where, and none of WhereNot
	Where    []string `json:"where,omitempty"`
	WhereNot []string `json:"where_not,omitempty"`
	// the disks that the request named, to recognize the same request: a volume, NAME:SIZE of one that it created, or
	// @ID of the backup that its disk is made from
	Disks []string `json:"disks,omitempty"`
	// the policy, in its version at that time, by which CRUSH chose its host; nil: not chosen by CRUSH
	Policy *CrushPolicy `json:"policy,omitempty"`

	// private SSH key that all members of its cluster share, in PEM; never printed
	ClusterKey string `json:"cluster_key,omitempty"`
	Peers      []Peer `json:"peers,omitempty"` // the members of its cluster, once their addresses are known
}

// ISO is the image of a CD. Specs share it: replace it to change it.
type ISO struct {
	Image  string `json:"image"`            // as Spec.Image
	Public bool   `json:"public,omitempty"` // as Spec.ImagePublic
}

// GuestSettings are the settings of a guest that a request for an instance and the use of a held claim have.
type GuestSettings struct {
	// Public SSH keys that may log in, as lines of authorized_keys.
	Keys []string `json:"keys,omitempty" maxItems:"100" maxLength:"16384" minLength:"1"`
	// At most 64 KiB, in base64. Lists leave it out.
	UserData []byte `json:"user_data,omitempty" maxLength:"87384"`
	// Where it finds its metadata; auto if empty.
	Metadata Metadata `json:"metadata,omitempty" enum:"auto,server,nocloud,config-drive"`
	// Whether the metadata server wants a token; optional if empty.
	IMDS IMDS `json:"imds,omitempty" enum:"optional,required,off"`
	// Readable by the guest.
	Tags map[string]string `json:"tags,omitempty" maxProperties:"256"`
	// When to boot a guest that went off without an order; on-failure if empty.
	Restart Restart `json:"restart,omitempty" enum:"always,on-failure,never,elsewhere,elsewhere:disk,elsewhere:image,elsewhere:backup"`
}

// Explicit returns the settings with their defaults for empty fields, so that equal settings are equal values.
func (g GuestSettings) Explicit() GuestSettings {
	g.Metadata = cmp.Or(g.Metadata, MetadataAuto)
	g.IMDS = cmp.Or(g.IMDS, IMDSOptional)
	g.Restart = cmp.Or(g.Restart, RestartOnFailure)
	return g
}

// InstanceSettings are the settings of an instance that only the request for it has.
type InstanceSettings struct {
	// Networks of the hosts by name; the host's default networks if empty.
	Networks []string `json:"networks,omitempty" maxItems:"16"`
	// The IPv4 address that it has on the usual network of its host; the host's choice if empty.
	FixedAddress string `json:"fixed_address,omitempty" maxLength:"15"`
	// Ports that guests of other projects reach, as protocol and port: tcp/80 or udp/53.
	Open []string `json:"open,omitempty" maxItems:"32"`
	// It may be recreated on another host, so its disk may be lost.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Where its disk lies: local, shared, or the name of a shared storage; local if empty.
	Storage string `json:"storage,omitempty" maxLength:"63"`
	// The groups that it joins.
	Affinities []Affinity `json:"affinities,omitempty" maxItems:"16"`
	// Volumes that cloud-init mounts in the guest.
	Mounts []Mount `json:"mounts,omitempty" maxItems:"16"`
	// Its kind of virtual machine: its host must be able to run it.
	Machine Machine `json:"machine,omitzero"`
}

// Restart is the policy for a guest that should run and went off without an order to stop.
type Restart string

// The restart policies. A failure is everything except a guest that powered itself off: a crash, a killed
// process, a host that lost power or rebooted.
const (
	RestartAlways    Restart = "always"     // start it again
	RestartOnFailure Restart = "on-failure" // start it again after a failure
	RestartNever     Restart = "never"      // leave it off until an order starts it
	// start it again; and on another host if its host is declared dead: with its disk if that is on shared storage,
	// else from its image
	RestartElsewhere Restart = "elsewhere"
	// the same, but only with its disk; an instance whose disk is lost stays lost
	RestartElsewhereDisk Restart = "elsewhere:disk"
	// the same as RestartElsewhere for an instance that must not have its disk on shared storage
	RestartElsewhereImage Restart = "elsewhere:image"
	// the same as RestartElsewhere, but from its last backup instead of its image
	RestartElsewhereBackup Restart = "elsewhere:backup"
)

// Elsewhere reports whether the policy recreates the instance on another host if its host is declared dead. onShared:
// its disk is on shared storage.
func (r Restart) Elsewhere(onShared bool) bool {
	switch r {
	case RestartElsewhere, RestartElsewhereImage, RestartElsewhereBackup:
		return true
	case RestartElsewhereDisk:
		return onShared
	}
	return false
}

// End is the way in which a guest went off that its restart policy leaves off.
type End string

// The ends of guests.
const (
	EndGuest   End = "guest"   // the guest powered itself off
	EndFailure End = "failure" // it crashed, was killed, or the host went down
)

// String describes the end in words.
func (e End) String() string {
	switch e {
	case EndGuest:
		return "the guest powered itself off"
	case EndFailure:
		return "the guest crashed or was killed, or its host went down"
	}
	return string(e)
}

// Metadata is the source from which a guest reads its metadata.
type Metadata string

// The sources of metadata. MetadataAuto uses the server if the host runs one and the instance allows it to answer
// without a token, and a NoCloud disk otherwise.
const (
	MetadataAuto        Metadata = "auto"
	MetadataServer      Metadata = "server"       // 169.254.169.254, as in EC2 and OpenStack
	MetadataNoCloud     Metadata = "nocloud"      // a disk labelled cidata
	MetadataConfigDrive Metadata = "config-drive" // a disk labelled config-2, as in OpenStack
)

// IMDS is the requirement of the metadata server for readers of an instance's metadata.
type IMDS string

// IMDSRequired: a reader must first PUT for a session token. This prevents server-side request forgery: a program in
// the guest that fetches URLs for its clients cannot be tricked into fetching metadata.
const (
	IMDSOptional IMDS = "optional"
	IMDSRequired IMDS = "required"
	IMDSOff      IMDS = "off" // the server reveals nothing about the instance
)

// MaxUserData is the maximum size of user-data in bytes (64 KiB, the limit of the OpenStack compute API).
const MaxUserData = 64 << 10

// Instance is the record of a virtual machine: a consumer of the same UUID.
type Instance struct {
	ID      InstanceID `json:"id"`
	Project Project    `json:"project"`
	Name    string     `json:"name"` // unique in its project
	// the cluster that it is part of; only the cluster stops and destroys it; empty: none
	Cluster    ClusterID `json:"cluster,omitempty"`
	Spec       Spec      `json:"spec"`
	State      State     `json:"state"`
	Host       HostID    `json:"host,omitempty"` // empty while scheduling
	Generation int64     `json:"generation"`     // of the newest order
	Rebooted   int64     `json:"rebooted,omitempty"`
	Rebuilt    int64     `json:"rebuilt,omitempty"`
	Resized    int64     `json:"resized,omitempty"`
	// its CD drive is empty for good, although its spec has an ISO
	Ejected bool `json:"ejected,omitempty"`
	// the backup that its disks are made from; nil: none
	Backup *FromBackup `json:"backup,omitempty"`
	// the request to resize it that is about to claim, or has claimed but not ordered yet; nil: none
	Resizing *Resizing `json:"resizing,omitempty"`
	Session  string    `json:"session,omitempty"`
	// the target of a move that is about to happen; its claim may be there already
	Moving HostID `json:"moving,omitempty"`
	// the disk is being copied to Moving: Host has an order to leave, and Moving one to arrive
	Copying bool `json:"copying,omitempty"`
	// why the last move with the disk ended where it began, for operators; empty: it did not
	Unmoved   string `json:"unmoved,omitempty"`
	MovedFrom HostID `json:"moved_from,omitempty"` // the previous host; see Former
	// hosts before MovedFrom that still had an order when the instance moved on
	LeftBefore []HostID  `json:"left_before,omitempty"`
	Created    time.Time `json:"created"`
	Seats      []Seat    `json:"seats,omitempty"` // in its groups, from the order on
	// when the caretaker destroys it, or releases a held claim; zero: never
	Expires time.Time `json:"expires,omitzero"`
	// it is neither destroyed, nor is its disk replaced, until the protection ends; it has no expiry meanwhile
	Protected bool `json:"protected,omitempty"`
	// the expiry for which the hook has run; it runs again for a later expiry
	Announced time.Time `json:"announced,omitzero"`
	// hosts that its policy chose before Host, and why each was refused then; at most MaxRefusals
	Refused []Refusal `json:"refused,omitempty"`
	// how the instance was lost, until it is scheduled again; nil: not lost
	Lost *Loss `json:"lost,omitempty"`
	// the shared storage with its disk, of which it claims DISK_GB; empty: its host has the disk
	Storage StorageID `json:"storage,omitempty"`
	// hosts that were declared dead while they had the instance: the lock of its disk may be taken from them
	TakesFrom []HostID `json:"takes_from,omitempty"`

	// MadeFor names the object for which croft itself created the instance, such as a resource of a pool. Clients
	// cannot set it, which distinguishes an instance that a client created with the same ID. Empty: a client requested
	// the instance.
	MadeFor string `json:"made_for,omitempty"`

	// BasedOn has the generations on which the choice of the host is based: of aggregates, by name, and of distances,
	// by DistancesKey; 0: none of this name exists. The transaction of the first order, and of a move, compares them.
	// Never stored.
	BasedOn map[string]int64 `json:"-"`
	// Volumes are the volumes that the request attaches to it, and the ones that are attached to it already. The
	// transaction of the first order compares and attaches them. Never stored.
	Volumes []Volume `json:"-"`
	// PropertiesGeneration is the generation of the host's properties, if filters use them; 0: the host has no
	// properties. Compared like BasedOn. Never stored.
	PropertiesGeneration *int64 `json:"-"`

	// Revision is the version of the stored record. A write compares it: Conflict if the record changed in the
	// meantime. Never stored.
	Revision int64 `json:"-"`
	// CreateRevision identifies the record: an instance that later gets the same ID has a different one. Never stored.
	CreateRevision int64 `json:"-"`
}

// Resizing is a request to resize an instance. Until it ends, its project is charged for the larger of both sizes.
type Resizing struct {
	Resources Resources `json:"resources"` // what the instance is to have
	// of the process that resizes it; once it has ended, a caretaker undoes the request
	Session string `json:"session"`
}

// Charged returns the resources that an instance's project is charged for: the resources that it has, or of each class
// the larger amount while it is being resized.
func (i Instance) Charged() Resources {
	if i.Resizing == nil {
		return i.Spec.Resources
	}
	return i.Spec.Resources.Larger(i.Resizing.Resources)
}

// Loss describes how an instance was lost with its host. Host and HostName are for operators.
type Loss struct {
	At       time.Time `json:"at"`                  // when the operator declared the host gone
	Host     HostID    `json:"host,omitempty"`      // UUID of the host
	HostName string    `json:"host_name,omitempty"` // name of the host
	Reason   string    `json:"reason"`              // names no host
	// the CreateRevision of the Death of the host, which must not have ended when the instance is marked as lost; 0:
	// the host is being forgotten. Never stored.
	Death int64 `json:"-"`
}

// ExpirySoon is the time before its expiry from which an instance is reported to expire soon.
const ExpirySoon = time.Hour

// Former returns the hosts that may still have state of the instance. No host builds it while one of them has an order
// for it.
func (i Instance) Former() []HostID { return former(i.MovedFrom, i.LeftBefore) }

// ID returns the identifier of the order.
func (o Order) ID() OrderID { return OrderID{o.Host, o.Instance} }

// Former returns the same hosts as Instance.Former.
func (o Order) Former() []HostID { return former(o.MovedFrom, o.LeftBefore) }

func former(last HostID, before []HostID) []HostID {
	if last == "" {
		return nil
	}
	return append([]HostID{last}, before...)
}

// AllocationsOn returns what the instance claims while it is on a host.
func (i Instance) AllocationsOn(host HostID) map[HostID]Resources {
	if i.Storage == "" {
		return map[HostID]Resources{host: i.Spec.Resources}
	}
	own := maps.Clone(i.Spec.Resources)
	delete(own, DiskGB)
	return map[HostID]Resources{host: own, i.Storage.Provider(): i.KeptClaim()}
}

// KeptClaim returns what the instance claims of its shared storage, also while it is lost.
func (i Instance) KeptClaim() Resources { return Resources{DiskGB: i.Spec.Resources[DiskGB]} }

// Places returns the hosts on which the instance may have its claim.
func (i Instance) Places() []HostID {
	if i.Moving != "" {
		return []HostID{i.Host, i.Moving}
	}
	return []HostID{i.Host}
}

// Same reports whether a record is unchanged: the same instance, state, host, order, move, session and protection.
func (i Instance) Same(was Instance) bool {
	return i.ID == was.ID && i.State == was.State && i.Host == was.Host && i.Generation == was.Generation &&
		i.Moving == was.Moving && i.Session == was.Session && i.Protected == was.Protected
}

// Claim is the allocations of an instance, as read from Placement at one moment.
type Claim struct {
	Instance    InstanceID
	Allocations map[HostID]Resources // empty: no allocations
	// Generation changes with every change of the claim. A change names the generation that it builds on, so only one
	// of two changes based on the same generation succeeds. Nil: no claim.
	Generation *int64
	// Version distinguishes the claim from an earlier one of the same UUID, whose generations start at the same number.
	// Empty: this Placement has no versions.
	Version string
}

// Covers reports whether a claim has everything that a candidate has, on the same hosts. A claim that covers the
// resources of its consumer may stay if Placement refuses to make it smaller: OpenStack's refuses every change on a
// host that has become smaller than its use.
func (c Claim) Covers(wanted Candidate) bool {
	for host, amounts := range wanted.Allocations {
		for class, amount := range amounts {
			if c.Allocations[host][class] < amount {
				return false
			}
		}
	}
	return true
}

// Permit reports whether a claim may be released, and on which hosts; none: on all. Allocations on other hosts stay. It
// is called after the claim was read, and the claim is released only if it is unchanged since. So a permit for one
// instance never releases the claim of another instance that gets the same UUID later, however long its caller is
// suspended in between. An error prevents the release.
type Permit func(ctx context.Context) (on []HostID, err error)

// IfSame permits the release of an instance's claim on its host and on the target of its move, if fence finds the
// record unchanged. Afterwards inst is the record as stored. Conflict: it changed.
func IfSame(inst *Instance, fence func(context.Context, Instance) (Instance, error)) Permit {
	return func(ctx context.Context) ([]HostID, error) {
		now, err := fence(ctx, *inst)
		if err == nil && !now.Same(*inst) {
			err = Errorf(Conflict, "instance %s was changed by another request", inst.ID)
		}
		*inst = now
		return inst.Places(), err
	}
}

// On permits the release of a claim on these hosts; none: on all.
func On(hosts ...HostID) Permit {
	return func(context.Context) ([]HostID, error) { return hosts, nil }
}

// OrderID names the order of a host for an instance, and its observation.
type OrderID struct {
	Host     HostID     `json:"host"`
	Instance InstanceID `json:"instance"`
}

// Order tells the agent of Host what to do about one instance.
type Order struct {
	Partition  PartitionID `json:"partition"`
	Host       HostID      `json:"host"`
	Instance   InstanceID  `json:"instance"`
	Generation int64       `json:"generation"` // increases; an agent refuses an older one
	Want       Want        `json:"want"`
	Project    Project     `json:"project"`
	Name       string      `json:"name"`
	Spec       Spec        `json:"spec"`
	Issued     time.Time   `json:"issued"`

	// The generations of the newest orders to reboot and to rebuild. A domain defined by an earlier generation is
	// restarted, or rebuilt from the image. So neither is done twice, nor lost if a later order arrives first.
	Rebooted int64 `json:"rebooted,omitempty"`
	Rebuilt  int64 `json:"rebuilt,omitempty"`
	// the generation of the newest order with another size: a domain defined by an earlier one gets the spec's
	Resized int64 `json:"resized,omitempty"`
	Ejected bool  `json:"ejected,omitempty"` // as in the record
	// with WantStopped: the power is cut at once, and the guest is not asked to shut down
	Cut bool `json:"cut,omitempty"`

	// the backup from which a domain that an earlier generation defined gets its disks; nil: none
	Backup *FromBackup `json:"backup,omitempty"`

	MovedFrom  HostID   `json:"moved_from,omitempty"` // as in the record
	LeftBefore []HostID `json:"left_before,omitempty"`
	// of WantLeaving and WantArriving, and of the tombstone for what a move that ended has copied; nil for others
	Move *Move `json:"move,omitempty"`
	// the volumes that moved away with the instance: their copies here end with the order
	Left []VolumeID `json:"left,omitempty"`

	Storage   StorageID `json:"storage,omitempty"` // as in the record
	TakesFrom []HostID  `json:"takes_from,omitempty"`

	Trace string `json:"trace,omitempty"` // span that wrote the order, as W3C traceparent; only if traces are recorded

	// the volumes that are attached to the instance when the order is read; not stored with it
	Volumes []VolumeID `json:"volumes,omitempty"`

	// HostDeath is the CreateRevision of the Death of the host when the order was read; 0: it has none. Never stored.
	HostDeath int64 `json:"-"`
	Revision  int64 `json:"-"` // version of the stored order, compared when it is removed
	// revision at which the order was first stored: its identity, because an order for a later instance with the same
	// UUID has another one
	CreateRevision int64 `json:"-"`
}

// CD returns the ISO that is to be in the CD drive; nil: the drive is to be empty, or there is none.
func (o Order) CD() *ISO {
	if o.Ejected {
		return nil
	}
	return o.Spec.ISO
}

// FromBackup orders that the disks of an instance are made from a backup. Records and orders share it: replace it to
// change it.
type FromBackup struct {
	ID   string `json:"id"`   // UUID of the backup
	Name string `json:"name"` // of the backup, in the instance's project
	// of the order that it was first in; 0: it was not restored, and the disks are the former ones
	Generation int64  `json:"generation"`
	InPlace    bool   `json:"in_place,omitempty"` // the instance has other disks, which stay until these are verified
	OwnDisk    bool   `json:"own_disk,omitempty"` // only the instance's own disk is restored, not its volumes
	Error      string `json:"error,omitempty"`    // why it was not restored
}

// Restores reports whether the disks of a domain that was defined by an order of a generation are to be made from the
// backup; 0: of a domain that is not defined yet.
func (o Order) Restores(defined int64) bool {
	return o.Backup != nil && o.Backup.Generation > o.Rebuilt && o.Backup.Generation > defined
}

// Move is what the two hosts of a move with the disk know about it.
type Move struct {
	Host HostID `json:"host"` // the other one
	Then Want   `json:"then"` // the goal on the host where the instance is at the end
	// Key is what the target shows the source in addition to its certificate. Each move has another one. Secret.
	Key string `json:"key,omitempty"`
	// the volumes of the instance that move along, as recorded when the move began
	Volumes []Volume `json:"volumes,omitempty"`
}

// Progress counts the bytes of a transfer; Total is 0 if unknown.
type Progress struct {
	Done  int64 `json:"done"`            // bytes
	Total int64 `json:"total,omitempty"` // bytes; 0: unknown
}

// Observation is what the agent last saw of one instance. Only that agent writes it.
type Observation struct {
	Host       HostID     `json:"host"`
	Instance   InstanceID `json:"instance"`
	Generation int64      `json:"generation"` // of the order acted on
	// the CreateRevision of the order; 0: from a program of schema 1.7 or older
	OrderCreated int64 `json:"order_created,omitempty"`
	// the HostDeath of the order: an agent that does not know that its host was declared dead stores nothing
	HostDeath int64        `json:"host_death,omitempty"`
	State     State        `json:"state"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	MAC       string       `json:"mac,omitempty"`
	Progress  *Progress    `json:"progress,omitempty"`
	Error     string       `json:"error,omitempty"`      // one sentence, if State is failed
	ErrorKind Kind         `json:"error_kind,omitempty"` // of Error
	// how it went off, if State is stopped although it should run
	Ended   End       `json:"ended,omitempty"`
	Updated time.Time `json:"updated"`
	Events  []Event   `json:"events,omitempty"` // steps of the newest boot, in order

	// Reported by the guest itself and not verified.
	CloudInit *CloudInit `json:"cloud_init,omitempty"`
	Password  string     `json:"password,omitempty"` // as posted: encrypted with the instance's key
}

// Event is a step of an instance's start, and its time.
type Event struct {
	Name EventName `json:"name"` // what happened
	At   time.Time `json:"at"`   // when it happened
}

// EventName names a step.
type EventName string

// The steps, in order. A boot after the first fetches no image and defines no domain.
const (
	EventClaimed EventName = "claimed" // the resources are claimed and the order is written
	EventImage   EventName = "image"   // the image is on the host
	EventDefined EventName = "defined" // disk and domain are created
	EventRunning EventName = "running" // the domain runs
	EventAddress EventName = "address" // the guest has acquired its address
)

// CloudInit is the result of cloud-init at a boot, as reported by the guest.
type CloudInit struct {
	State CloudInitState `json:"state"`           // whether cloud-init runs, is done or failed
	At    time.Time      `json:"at"`              // when it was reported
	Error string         `json:"error,omitempty"` // if State is CloudInitFailed
	// It was reported before the guest was last started; the guest has not reported since.
	Earlier bool `json:"earlier,omitempty"`
}

// Current reports whether the guest reported c since it was last started. A nil report is not current.
func (c *CloudInit) Current() bool { return c != nil && !c.Earlier }

// CloudInitState is the result reported by a guest.
type CloudInitState string

// The results of cloud-init.
const (
	CloudInitDone   CloudInitState = "done"
	CloudInitFailed CloudInitState = "failed"
)

// Volume is the record of a disk that outlives instances: a consumer of the same UUID. It is also the order about the
// volume for the agent of its host, which alone writes MadeGB and Error.
type Volume struct {
	ID      VolumeID `json:"id"`
	Project Project  `json:"project"`
	Name    string   `json:"name"` // unique in its project
	// the host that has its file or, on shared storage, its keeper: the host whose agent makes, attaches and removes it
	Host HostID `json:"host"`
	// the shared storage with its file, where it claims DISK_GB; empty: its host has the file
	Storage StorageID `json:"storage,omitempty"`
	// keepers that were declared dead while they had it: the lock of its file may be taken from them
	TakesFrom []HostID `json:"takes_from,omitempty"`
	SizeGB    int64    `json:"size_gb"` // charged to the project
	// claimed of its provider; the agent gives the volume this size; less than SizeGB while a request for it is made
	ClaimedGB int64 `json:"claimed_gb,omitempty"`
	MadeGB    int64 `json:"made_gb,omitempty"` // size of its file; 0: not made yet
	// the instance that it is attached to; empty: none
	Instance  InstanceID `json:"instance,omitempty"`
	Detaching bool       `json:"detaching,omitempty"` // it is to be detached from Instance
	Removing  bool       `json:"removing,omitempty"`  // the order to remove its file
	Error     string     `json:"error,omitempty"`     // why its agent cannot do what the record orders, in one sentence
	Session   string     `json:"session,omitempty"`   // of the request that SizeGB is for, while it is not claimed
	// the volume in the backup that it was first made from; empty: it was made empty
	CopyOf  VolumeID  `json:"copy_of,omitempty"`
	Created time.Time `json:"created"`
	// the record of a snapshot of an instance, which is kept like a volume's; nil: it is a volume's
	Snapshot *Snapshot `json:"snapshot,omitempty"`

	Revision       int64 `json:"-"` // version of the stored record, compared by each change
	CreateRevision int64 `json:"-"` // identifies the record
}

// Snapshot is the part of a record that only snapshots have. Copies of the record share it: replace it to change it.
type Snapshot struct {
	// whose disks it has; the record's Instance is empty once that has ended
	Instance InstanceID `json:"instance"`
	Volumes  []VolumeID `json:"volumes,omitempty"` // whose disks it has besides the instance's own
	Taken    time.Time  `json:"taken,omitzero"`    // zero: not taken yet
	Method   Method     `json:"method,omitempty"`  // how it was taken
	// why the guest was not quiesced, in one sentence; empty: it was, or was off
	Note       string    `json:"note,omitempty"`
	Rollback   Rollback  `json:"rollback,omitempty"`   // the order to roll back to it; empty: none
	RolledBack time.Time `json:"rolled_back,omitzero"` // the last time; zero: never
	// the name of the backup that is made from it; croft removes it afterwards; empty: a user took it
	Backup string `json:"backup,omitempty"`
	// its instance was lost with the host, and has been without these disks since
	Lost bool `json:"lost,omitempty"`
}

// Method is how a snapshot was taken.
type Method string

// The methods of snapshots.
const (
	MethodQuiesced Method = "quiesced" // the guest's agent froze its file systems meanwhile
	MethodDisks    Method = "disks"    // of a guest that went on: the disks are as after a power failure
	MethodOff      Method = "off"      // the guest was off
)

// Rollback is an order to replace the disks of an instance by the disks of a snapshot.
type Rollback string

// The orders to roll back.
const (
	RollbackOff  Rollback = "off"  // only while the guest is off
	RollbackStop Rollback = "stop" // stop the guest first, and let it run again afterwards if its order wants that
)

// VolumeState is the state of a volume in one word.
type VolumeState string

// The states of volumes.
const (
	VolumeCreating  VolumeState = "creating"
	VolumeAvailable VolumeState = "available"
	VolumeInUse     VolumeState = "in_use"
	VolumeFailed    VolumeState = "failed" // its agent cannot do what was ordered
	VolumeRemoving  VolumeState = "removing"

	SnapshotReady       VolumeState = "ready"
	SnapshotRollingBack VolumeState = "rolling_back"
	SnapshotLost        VolumeState = "lost" // its data is on the host that its instance was lost with, if anywhere
)

// State returns the state of the volume, or of the snapshot.
func (v Volume) State() VolumeState {
	switch {
	case v.Snapshot != nil && v.Snapshot.Lost:
		return SnapshotLost
	case v.Removing:
		return VolumeRemoving
	case v.Snapshot != nil && v.Snapshot.Rollback != "":
		return SnapshotRollingBack
	case v.Snapshot != nil && v.MadeGB > 0: // an error is then about an attempt to roll back, which changed nothing
		return SnapshotReady
	case v.Error != "":
		return VolumeFailed
	case v.Instance != "" && v.Snapshot == nil:
		return VolumeInUse
	case v.MadeGB == 0:
		return VolumeCreating
	}
	return VolumeAvailable
}

// Provider returns the provider of the DISK_GB that the volume claims: its host or its shared storage.
func (v Volume) Provider() HostID {
	if v.Storage != "" {
		return v.Storage.Provider()
	}
	return v.Host
}

// KeptBy returns the record with another keeper, which must be a host that mounts its storage. An earlier death of that
// host then says nothing about the lock any more.
func (v Volume) KeptBy(host HostID) Volume {
	v.Host, v.Error = host, ""
	v.TakesFrom = slices.DeleteFunc(slices.Clone(v.TakesFrom), func(h HostID) bool { return h == host })
	return v
}

// mostTakesFrom is the maximum number of dead keepers in a record; an earlier one has lost the lock to a later one.
const mostTakesFrom = 16

// TakenFrom returns the record with one more keeper that was declared dead.
func (v Volume) TakenFrom(dead HostID) Volume {
	if !slices.Contains(v.TakesFrom, dead) {
		v.TakesFrom = append(slices.Clone(v.TakesFrom), dead)
		v.TakesFrom = v.TakesFrom[max(0, len(v.TakesFrom)-mostTakesFrom):]
	}
	return v
}

// LocalVolumes returns the volumes, and snapshots, whose files are on their hosts.
func LocalVolumes(all []Volume) []Volume {
	return slices.DeleteFunc(slices.Clone(all), func(v Volume) bool { return v.Storage != "" })
}

// Noun is the word for the record in messages.
func (v Volume) Noun() string {
	if v.Snapshot != nil {
		return "snapshot"
	}
	return "volume"
}

// maxSerial is the maximum length of the serial number of a virtio disk.
const maxSerial = 20

// Serial returns the serial number by which a guest finds the volume, as /dev/disk/by-id/virtio-SERIAL: its name or, if
// that is too long for a serial number, the beginning of its UUID.
func (v Volume) Serial() string {
	if len(v.Name) <= maxSerial {
		return v.Name
	}
	return string(v.ID)[:maxSerial]
}

// Bounds of volumes.
const (
	MaxVolumeGB = 16 << 10
	// MaxAttached is the maximum number of volumes that are attached to one instance.
	MaxAttached = 16
	// MaxSnapshots is the maximum number of snapshots of one instance: each makes every read of old data longer.
	MaxSnapshots = 8
)

// NewDisk is a volume that is created together with an instance, and attached to it. It outlives the instance.
type NewDisk struct {
	SizeGB int64 `json:"size_gb" minimum:"1" maximum:"16384"` // in GiB
	// Unique in the project. The instance's name with -disk, -disk2 ... by default.
	Name string `json:"name,omitempty" maxLength:"63" minLength:"1"`
	// the volume in the request's backup that it is made from; empty: it is empty
	CopyOf VolumeID `json:"-"`
}

// CheckVolumeSize returns Invalid if no volume can have this size.
func CheckVolumeSize(sizeGB int64) error {
	if sizeGB < 1 || sizeGB > MaxVolumeGB {
		return Errorf(Invalid, "a volume cannot have %d GiB: use 1 to %d", sizeGB, MaxVolumeGB)
	}
	return nil
}

// Status combines the three views of one instance, as `schedule show` prints them.
type Status struct {
	Instance    Instance     `json:"instance"`
	Order       *Order       `json:"order,omitempty"`
	Observation *Observation `json:"observation,omitempty"`
	Host        *Host        `json:"host,omitempty"`
}

// Unbuilt reports whether the instance has no disks, because its host could not make them from a backup.
func (s Status) Unbuilt() bool {
	o := s.Observation
	return s.Restoring() && !s.Instance.Backup.InPlace && s.Instance.State == StateScheduled && o != nil &&
		o.State == StateFailed && o.Generation == s.Instance.Generation
}

// Restoring reports whether the disks of the instance are still to be made from a backup.
func (s Status) Restoring() bool {
	from, o := s.Instance.Backup, s.Observation
	if from == nil || from.Generation == 0 || from.Generation <= s.Instance.Rebuilt {
		return false
	}
	return o == nil || o.Generation < from.Generation || !slices.Contains([]State{StateBooting, StateRunning,
		StateStopped, StateMoving}, o.State)
}

// Change says that an instance changed: its record, its host's observation, or whether that host is alive.
type Change struct {
	Revision int64 // of the store; several instances may change at one revision
	Instance InstanceID
	Project  Project
	Gone     bool
	Status   Status // at the revision, without its order and user-data; if Gone, only ID, project and name
}

// EtcdMember is a server of the cloud's etcd that runs on a host, and the other shared services of that host.
type EtcdMember struct {
	Host      HostID   `json:"host"`
	Name      string   `json:"name"`                // of the host, for people
	Peer      string   `json:"peer"`                // URL at which other members reach it
	Clients   []string `json:"clients,omitempty"`   // client URLs of its etcd; none until it accepts clients
	Placement string   `json:"placement,omitempty"` // URL of its Placement

	// Alone: no agent runs on the machine, so this is its only record.
	Alone bool `json:"alone,omitempty"`

	// Read from etcd, not stored.
	Role MemberRole `json:"role,omitempty"`
}

// MemberRole is the role of a member in the cluster, or the reason why it has none at the moment.
type MemberRole string

// The roles.
const (
	MemberLeads   MemberRole = "leader"
	MemberFollows MemberRole = "member"
	MemberLearns  MemberRole = "learner" // does not vote yet: it catches up
	MemberSilent  MemberRole = "silent"  // does not answer
	MemberMissing MemberRole = "missing" // unknown to etcd: its host is joining or leaving
)

// Peer is a member of a cluster, as the other members know it.
type Peer struct {
	Name    string `json:"name"`               // its host name
	Address string `json:"address"`            // where it is reached
	HostKey string `json:"host_key,omitempty"` // public key of its SSH server, in the form of authorized_keys
	Role    string `json:"role,omitempty"`     // in its cluster
}

// Mount lets the guest mount a volume at its first boot. A blank volume gets a file system first; a volume with data is
// never formatted.
type Mount struct {
	// Name of a volume that the request attaches or creates; at most 20 characters, so that it is the serial number.
	Volume string `json:"volume" maxLength:"20" minLength:"1"`
	// The directory, an absolute path.
	Path string `json:"path" maxLength:"255" minLength:"2"`
	// The file system that a blank volume gets; ext4 by default. The guest needs its mkfs.
	Filesystem string `json:"filesystem,omitempty" enum:"ext4,xfs,btrfs"`
}

// DefaultFilesystem is the file system of blank volumes whose Mount names none.
const DefaultFilesystem = "ext4"

// Filesystems are the valid values of Mount.Filesystem.
var Filesystems = []string{DefaultFilesystem, "xfs", "btrfs"}

// mountable reports whether a path is absolute, and needs no quoting in a shell or in /etc/fstab.
func mountable(text string) bool {
	needsQuotes := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._/-", r)
	}
	return len(text) > 1 && len(text) < 256 && text[0] == '/' && path.Clean(text) == text &&
		!strings.ContainsFunc(text, needsQuotes)
}

// CheckMounts returns Invalid if a guest cannot mount these of the named volumes.
func CheckMounts(mounts []Mount, volumes []string) error {
	for i, m := range mounts {
		same := func(o Mount) bool { return o.Volume == m.Volume || o.Path == m.Path }
		switch {
		case !slices.Contains(volumes, m.Volume):
			return Errorf(Invalid, "volume %.64q cannot be mounted: the request neither attaches nor creates it", m.Volume)
		case len(m.Volume) > maxSerial:
			return Errorf(Invalid, "volume %s cannot be mounted: its name has more than %d characters, so it is not the "+
				"serial number of the disk", m.Volume, maxSerial)
		case !mountable(m.Path):
			return Errorf(Invalid, "volume %s cannot be mounted on %.64q: write an absolute path of letters, digits, dots, "+
				"dashes and underscores, such as /srv/data", m.Volume, m.Path)
		case m.Filesystem != "" && !slices.Contains(Filesystems, m.Filesystem):
			return Errorf(Invalid, "volume %s cannot get the file system %.16q: use %s", m.Volume, m.Filesystem,
				strings.Join(Filesystems, ", "))
		case slices.ContainsFunc(mounts[:i], same):
			return Errorf(Invalid, "volume %s on %s: each volume and each path can be mounted once", m.Volume, m.Path)
		}
	}
	return nil
}

// imagePrefix marks a reference to an image of the cloud's catalog. Only the API makes such references, for images that
// the caller may use: no address that a caller gives starts with it.
const imagePrefix = "croft:"

// imageReference is the form of Image.Reference.
var imageReference = lazyregexp.New(`^croft:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})#sha256=([0-9a-f]{64})$`)

// InCatalog reports whether the reference in a spec names an image of the cloud's catalog.
func InCatalog(reference string) bool { return strings.HasPrefix(reference, imagePrefix) }

// CatalogImage returns the image of the cloud's catalog that a reference names, and its SHA-256. Empty: it names none.
func CatalogImage(reference string) (id ImageID, sha256 string) {
	if m := imageReference.Get().FindStringSubmatch(reference); m != nil {
		return ImageID(m[1]), m[2]
	}
	return "", ""
}

// Image is the record of an image in the cloud's catalog. Its bytes are on the hosts in Copies.
type Image struct {
	ID      ImageID `json:"id"`
	Project Project `json:"project"` // owns it, and is charged for it
	Name    string  `json:"name"`    // unique in its project, and among public images if it is public
	Public  bool    `json:"public,omitempty"`
	// where the first copy is fetched, as a reference that may contain passwords; empty: it was uploaded or saved
	Origin string `json:"origin,omitempty"`
	// the origin may lead only to addresses of the internet: a tenant chose it
	Restricted bool `json:"restricted,omitempty"`
	// the upload is to be converted: until it is ready, SHA256 and SizeBytes are the ones of the upload
	Convert     bool         `json:"convert,omitempty"`
	Saved       InstanceID   `json:"saved,omitempty"` // the instance that it was saved from
	User        string       `json:"user,omitempty"`  // login name, for people
	Description string       `json:"description,omitempty"`
	SHA256      string       `json:"sha256,omitempty"`     // of the file, in hexadecimal digits; pending: as promised
	Format      string       `json:"format,omitempty"`     // of the file: see IsImageFormat
	Arch        Arch         `json:"arch,omitempty"`       // of the machines that start from it; x86_64 if empty
	SizeBytes   int64        `json:"size_bytes"`           // of the file; while it is pending, the most that it may have
	DiskBytes   int64        `json:"disk_bytes,omitempty"` // size of the disk that guests see
	State       ImageState   `json:"state"`                // see there
	Error       string       `json:"error,omitempty"`      // why it is failed or lost, in one sentence
	Copies      []HostID     `json:"copies,omitempty"`     // hosts that are ordered to have a copy
	Shares      []ImageShare `json:"shares,omitempty"`     // projects that may use it, too
	ChargedGB   int64        `json:"charged_gb,omitempty"` // charged to the project as IMAGE_GB
	Key         string       `json:"key"`                  // secret that hosts which need the image show to those that have it
	Expires     time.Time    `json:"expires,omitzero"`     // when an image that is still pending is given up
	Created     time.Time    `json:"created"`              // when it was requested
	Snapshot    VolumeID     `json:"snapshot,omitempty"`   // of the instance that it is saved from, until it is ready

	Revision       int64 `json:"-"` // version of the stored record, compared by each change
	CreateRevision int64 `json:"-"` // identifies the record
}

// Usable reports whether instances can be made from the image: a lost one with an origin is fetched again.
func (i Image) Usable() bool { return i.State == ImageReady || i.State == ImageLost && i.Origin != "" }

// ImageShare lets a project use an image of another one.
type ImageShare struct {
	Project Project   `json:"project"`
	ID      ProjectID `json:"id,omitempty" format:"uuid"` // identity of the project: a later one of its name is another one
}

// Reference returns the image as the specs of instances name it.
func (i Image) Reference() string { return imagePrefix + string(i.ID) + "#sha256=" + i.SHA256 }

// Shared reports whether the image is shared with a project of this identity.
func (i Image) Shared(p Project, id ProjectID) bool {
	for _, s := range i.Shares {
		if s.Project == p && s.ID == id {
			return true
		}
	}
	return false
}

// ImageState is the state of an image in one word.
type ImageState string

// The states of images.
const (
	ImagePending ImageState = "pending" // its bytes are not complete yet
	ImageReady   ImageState = "ready"   // it can be used
	ImageFailed  ImageState = "failed"  // its bytes could not be got, or are no image
	ImageLost    ImageState = "lost"    // all hosts that had its bytes are gone
)

// ImageTask is how a host gets its copy of an image.
type ImageTask string

// The tasks of hosts.
const (
	ImageUpload ImageTask = "upload" // from a client of the API, in chunks
	ImageFetch  ImageTask = "fetch"  // from its origin
	ImageSave   ImageTask = "save"   // from the disk of an instance on the host
	ImageCopied ImageTask = "copy"   // from another host
)

// ImageCopy is the order to a host to have a copy of an image, and what the host reports about it.
type ImageCopy struct {
	Image     ImageID   `json:"image"`
	Host      HostID    `json:"host"`
	Task      ImageTask `json:"task"`
	Origin    string    `json:"origin,omitempty"`     // as in the record of the image
	Public    bool      `json:"public,omitempty"`     // Origin may lead only to addresses of the internet
	SHA256    string    `json:"sha256,omitempty"`     // that the file has to have; empty: any
	Format    string    `json:"format,omitempty"`     // that the file has to have; empty: any
	SizeBytes int64     `json:"size_bytes,omitempty"` // size of the file if SHA256 is set, otherwise its maximum
	// the upload is to be converted, to a file of at most MostBytes: SHA256 and SizeBytes are the ones of the upload
	Convert   bool  `json:"convert,omitempty"`
	MostBytes int64 `json:"most_bytes,omitempty"`
	// the instance whose disk is saved, and the snapshot of it
	Instance InstanceID `json:"instance,omitempty"`
	Snapshot VolumeID   `json:"snapshot,omitempty"`
	// what tells machines apart is removed from the image that is saved
	Generalize bool `json:"generalize,omitempty"`

	Complete bool   `json:"complete,omitempty"` // all chunks of the upload have been sent
	Key      string `json:"key,omitempty"`
	Made     bool   `json:"made,omitempty"`     // the host has verified its copy
	Error    string `json:"error,omitempty"`    // why the host has no copy yet, in one sentence
	Removing bool   `json:"removing,omitempty"` // the order to remove the copy

	Revision int64 `json:"-"` // version of the stored record
}

// ImageFile describes the file of an image.
type ImageFile struct {
	SHA256    string `json:"sha256"`
	Format    string `json:"format"`     // see IsImageFormat
	SizeBytes int64  `json:"size_bytes"` // of the file
	DiskBytes int64  `json:"disk_bytes"` // of the disk that guests see
}

// ImageISO is the format of an image that is a CD, and not also a disk.
const ImageISO = "iso"

// IsImageFormat reports whether images of the catalog may have a format.
func IsImageFormat(format string) bool {
	return slices.Contains([]string{"qcow2", "raw", ImageISO}, format)
}

// ImageSource is what a host needs to get an image that an order of the host names.
type ImageSource struct {
	ImageFile
	Key    string `json:"key"`
	Origin string `json:"origin,omitempty"` // empty: none
	Public bool   `json:"public,omitempty"` // Origin may lead only to addresses of the internet
	Hosts  []Host `json:"hosts,omitempty"`  // that have a copy and are alive
}

// Bounds of images.
const (
	MaxImageBytes  = 1 << 40 // of one file
	MaxImageShares = 100     // of one image
	// MinImageCopies is how many hosts are ordered to have a copy of each image, if there are so many.
	MinImageCopies = 2
)

// ImageGB returns the size of a file in GiB, as it is charged: the next whole number.
func ImageGB(bytes int64) int64 { return (bytes + 1<<30 - 1) >> 30 }
