// Package books compares what is on record of instances with what there is of them.
// It is pure: whoever reads the books says how much of them it could read, and nothing
// is concluded from what was not.
package books

import "croft"

// Books are all that is written of instances, and what hosts and Placement have of
// them. The parts need not be of one moment: what is under way looks different a
// moment later, so compare twice and believe only what Confirm leaves.
type Books struct {
	// Only names the host whose books these are. Of all other hosts there is then at
	// most the instances, for looking them up. Empty: these are everybody's.
	Only croft.HostID

	Hosts        map[croft.HostID]croft.Host
	Instances    map[croft.InstanceID]croft.Instance
	Sessions     map[string]bool // the schedulers that live
	Names        []Name
	UserData     []UserData
	Members      []Member
	Orders       []croft.Order
	Observations []croft.Observation

	Claims map[croft.HostID]map[croft.InstanceID]croft.Resources // of the hosts whose claims were read
	// Elsewhere is what instances claim on providers that are no hosts, such as shared
	// storage; nil where that was not read.
	Elsewhere map[croft.InstanceID]croft.Resources
	Holdings  map[croft.HostID]Holding // of the hosts that were asked
}

// Name is an entry in the directory of names.
type Name struct {
	Project  croft.Project
	Name     string
	Instance croft.InstanceID
	Revision int64
}

// UserData is the key that an instance's user-data lies under.
type UserData struct {
	Instance croft.InstanceID
	Revision int64
}

// Member is an entry in the directory of groups.
type Member struct {
	croft.Member
	Project  croft.Project
	Revision int64
}

// Holding is what a host has.
type Holding struct {
	Guests      []Guest            `json:"guests"`
	Directories []croft.InstanceID `json:"directories"` // with disks
}

// Guest is a domain of the installation's.
type Guest struct {
	Instance   croft.InstanceID `json:"instance"`
	Generation int64            `json:"generation"`
	Running    bool             `json:"running"`
}

// Guest returns the guest of an instance, nil where there is none.
func (h Holding) Guest(id croft.InstanceID) *Guest {
	for i := range h.Guests {
		if h.Guests[i].Instance == id {
			return &h.Guests[i]
		}
	}
	return nil
}

// Kind says what is wrong in two words, for programs.
type Kind string

// The kinds of differences.
const (
	AbandonedRequest Kind = "abandoned request"     // a scheduler died before its order
	UnfinishedMove   Kind = "unfinished move"       // whoever moved the instance died
	UnknownHost      Kind = "unknown host"          // the record names a host that there is not
	MissingName      Kind = "missing name"          // the record's name is not in the directory
	LostName         Kind = "lost name"             // a name without its instance
	LostUserData     Kind = "lost user-data"        // user-data without its instance
	MissingMember    Kind = "missing membership"    // the instance is not in its group
	LostMember       Kind = "lost membership"       // a membership without its instance
	BrokenRule       Kind = "broken rule"           // members of a group are where its rule does not allow
	MissingOrder     Kind = "missing order"         // its host has not been told
	LostOrder        Kind = "lost order"            // an order without an instance
	StrayOrder       Kind = "stray order"           // an order to a host that is not the instance's
	UndoneOrder      Kind = "undone tombstone"      // the host lives and does not remove what it should
	LostObservation  Kind = "lost observation"      // an observation without an order
	MissingClaim     Kind = "missing claim"         // the instance has no claim on its host
	WrongClaim       Kind = "wrong claim"           // it claims something else than it was made with
	LeakedClaim      Kind = "leaked claim"          // a claim without an instance
	StrayClaim       Kind = "stray claim"           // a claim on a host that is not the instance's
	StrayGuest       Kind = "stray guest"           // a domain that nobody has ordered here
	MissingGuest     Kind = "missing guest"         // no domain, although one was seen
	StrayFiles       Kind = "stray files"           // disks without an owner
	HostProblem      Kind = "problem of the host's" // what the host's own agent finds wrong
)

// Kinds are all of them.
var Kinds = []Kind{
	AbandonedRequest, UnfinishedMove, UnknownHost, MissingName, LostName, LostUserData, MissingMember, LostMember,
	BrokenRule, MissingOrder, LostOrder, StrayOrder, UndoneOrder,
	LostObservation, MissingClaim, WrongClaim, LeakedClaim, StrayClaim, StrayGuest, MissingGuest, StrayFiles,
	HostProblem,
}

// Difference is one thing that is not as the books say.
type Difference struct {
	Kind     Kind             `json:"kind"`
	Host     croft.HostID     `json:"host,omitempty"`
	HostName string           `json:"host_name,omitempty"`
	Instance croft.InstanceID `json:"instance,omitempty"`
	Project  croft.Project    `json:"project,omitempty"`
	Name     string           `json:"name,omitempty"`
	Affinity *croft.Affinity  `json:"affinity,omitempty"` // of a membership
	Cause    string           `json:"cause"`              // what is wrong and how that comes, in words
	Mendable bool             `json:"mendable"`           // without any risk to a guest or its disk
	Advice   string           `json:"advice,omitempty"`   // what to do where it is not
	Revision int64            `json:"revision,omitempty"` // of what it was concluded from
}

// same tells whether two looks saw one and the same thing.
func (d Difference) same(other Difference) bool {
	d.Cause, other.Cause = "", "" // words may count
	d.Advice, other.Advice = "", ""
	if d.Affinity != nil && other.Affinity != nil && *d.Affinity == *other.Affinity {
		d.Affinity, other.Affinity = nil, nil
	}
	return d == other
}

// Confirm returns what both looks found. Whatever was under way at the first has gone
// on by the second, or is not under way.
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
