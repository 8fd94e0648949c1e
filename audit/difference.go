package audit

import "croft"

// Kind says in two words what is wrong, for programs.
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

// Kinds lists them all.
var Kinds = []Kind{
	AbandonedRequest, UnfinishedMove, UnknownHost, MissingName, LostName, LostUserData, MissingMember, LostMember,
	BrokenRule, MissingOrder, LostOrder, StrayOrder, UndoneOrder,
	LostObservation, MissingClaim, WrongClaim, LeakedClaim, StrayClaim, StrayGuest, MissingGuest, StrayFiles,
	HostProblem,
}

// Difference is one contradiction in the evidence.
type Difference struct {
	Kind     Kind             `json:"kind"`
	Host     croft.HostID     `json:"host,omitempty"`
	HostName string           `json:"host_name,omitempty"`
	Instance croft.InstanceID `json:"instance,omitempty"`
	Project  croft.Project    `json:"project,omitempty"`
	Name     string           `json:"name,omitempty"`
	Affinity *croft.Affinity  `json:"affinity,omitempty"` // set for memberships
	Cause    string           `json:"cause"`              // what is wrong, and why, in words
	Mendable bool             `json:"mendable"`           // without risk to a guest or its disk
	Advice   string           `json:"advice,omitempty"`   // what to do if it is not mendable
	Revision int64            `json:"revision,omitempty"` // of the entry that it was concluded from
}

// same reports whether two looks found the same difference.
func (d Difference) same(other Difference) bool {
	d.Cause, other.Cause = "", "" // the texts may contain counts
	d.Advice, other.Advice = "", ""
	if d.Affinity != nil && other.Affinity != nil && *d.Affinity == *other.Affinity {
		d.Affinity, other.Affinity = nil, nil
	}
	return d == other
}

// Confirm returns what both looks found. A change that was in progress at the first look
// looks different at the second.
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
