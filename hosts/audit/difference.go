package audit

import "croft"

// Kind is the machine-readable name of a kind of difference.
type Kind string

// The kinds of differences.
const (
	AbandonedRequest Kind = "abandoned request"     // its scheduler died before writing the order
	AbandonedResize  Kind = "abandoned resize"      // the process that resized the instance died
	UnfinishedMove   Kind = "unfinished move"       // the process that moved the instance died
	UnknownHost      Kind = "unknown host"          // the record names a host that does not exist
	MissingName      Kind = "missing name"          // the record's name is not in the directory
	LostName         Kind = "lost name"             // a name without its instance
	LostUserData     Kind = "lost user-data"        // user-data without its instance
	MissingMember    Kind = "missing membership"    // the instance is not in its group
	LostMember       Kind = "lost membership"       // a membership without its instance
	LostSeat         Kind = "lost seat"             // a seat in a group without its instance
	LostAddress      Kind = "lost address"          // a chosen address without its instance
	MissingAddress   Kind = "missing address"       // its chosen address is not kept for the instance
	MissingSeat      Kind = "missing seat"          // the instance does not have its seat in a group
	BrokenRule       Kind = "broken rule"           // members of a group are on hosts that its rule forbids
	MissingOrder     Kind = "missing order"         // the host has no order for the instance
	LostOrder        Kind = "lost order"            // an order without an instance
	StrayOrder       Kind = "stray order"           // an order to another host than the instance's
	UndoneOrder      Kind = "undone tombstone"      // a live host does not carry out a tombstone
	LeftHere         Kind = "leftover"              // a host has the disk of an instance that was lost with it
	LostObservation  Kind = "lost observation"      // an observation without an order
	MissingClaim     Kind = "missing claim"         // the instance has no claim on its host
	WrongClaim       Kind = "wrong claim"           // it claims other amounts than it was created with
	LeakedClaim      Kind = "leaked claim"          // a claim without an instance
	StrayClaim       Kind = "stray claim"           // a claim on another host than the instance's
	StrayGuest       Kind = "stray guest"           // a domain without an order here
	MissingGuest     Kind = "missing guest"         // no domain, although one was observed
	StrayFiles       Kind = "stray files"           // disks without an owner
	AbandonedVolume  Kind = "abandoned volume"      // the request for its size died before it claimed
	MissingVolume    Kind = "missing volume"        // its file is not on its host
	StrayVolume      Kind = "stray volume"          // a file without a record
	UnclaimedVolume  Kind = "unclaimed volume"      // it claims nothing, or another amount than its size
	LostVolume       Kind = "lost volume"           // its host was forgotten
	ClosedNetwork    Kind = "closed network"        // the guest is on a network that its host closed to its project
	HostProblem      Kind = "problem of the host's" // reported by the host's own agent
)

// Kinds lists all kinds.
var Kinds = []Kind{
	AbandonedRequest, AbandonedResize, UnfinishedMove, UnknownHost, MissingName, LostName, LostUserData, MissingMember,
	LostMember, LostSeat, LostAddress, MissingAddress, MissingSeat, BrokenRule, MissingOrder, LostOrder, StrayOrder,
	UndoneOrder, LeftHere, LostObservation, MissingClaim, WrongClaim, LeakedClaim, StrayClaim, StrayGuest, MissingGuest,
	StrayFiles, AbandonedVolume, MissingVolume, StrayVolume, UnclaimedVolume, LostVolume, ClosedNetwork, HostProblem,
}

// Difference is one contradiction in the evidence.
type Difference struct {
	// The fault in two or three words.
	Kind     Kind             `json:"kind"`
	Host     croft.HostID     `json:"host,omitempty" format:"uuid"`     // its UUID, or that of a shared storage
	HostName string           `json:"host_name,omitempty"`              // name of the host, or of the shared storage
	Instance croft.InstanceID `json:"instance,omitempty" format:"uuid"` // its UUID, or that of a volume
	Project  croft.Project    `json:"project,omitempty"`                // project of the instance or volume
	Name     string           `json:"name,omitempty"`                   // name of the instance or volume
	Noun     string           `json:"noun,omitempty"`                   // volume or snapshot; left out: it is an instance
	Affinity *croft.Affinity  `json:"affinity,omitempty"`               // set for memberships
	Seat     croft.Seat       `json:"seat,omitzero"`                    // set for seats
	Address  string           `json:"address,omitempty"`                // set for chosen addresses
	Cause    string           `json:"cause"`                            // what differs, and why, in words
	Mendable bool             `json:"mendable"`                         // mending it is no risk for a guest or its disk
	Advice   string           `json:"advice,omitempty"`                 // what to do if it is not mendable
	Revision int64            `json:"revision,omitempty"`               // of the entry that it is based on
	Outcome  string           `json:"outcome,omitempty"`                // of mending it; empty: not tried
}

// same reports whether two looks found the same difference.
func (d Difference) same(other Difference) bool {
	d.Cause, other.Cause = "", "" // the texts may contain numbers that change
	d.Advice, other.Advice = "", ""
	if d.Affinity != nil && other.Affinity != nil && *d.Affinity == *other.Affinity {
		d.Affinity, other.Affinity = nil, nil
	}
	return d == other
}

// Confirm returns the differences that both looks found. A change in progress at the first look differs at the second.
func Confirm(first, second []Difference) []Difference {
	var both []Difference
	for _, d := range second {
		for _, before := range first {
			if d.same(before) {
				both = append(both, d)
				break
			}
		}
	}
	return both
}
