package api

import (
	"time"

	"croft"
	"croft/compute"
	"croft/hosts"
	"croft/tenant"
)

// HostNamed names a host.
type HostNamed struct {
	ID string `path:"id" json:"-"` // UUID of the host, or its name
}

// HostRemoval is the input of forgetHost.
type HostRemoval struct {
	HostNamed

	Force bool `query:"force" json:"-"` // forget it although it is alive or has instances
}

// HostFence is the input of fenceHost.
type HostFence struct {
	HostNamed

	// How it is known that the host is off: the fence agent in the settings of the server switches it off, or an
	// operator has switched it off and confirms that.
	How croft.FenceResult `json:"how" enum:"fenced,confirmed"`
	// The name of the host once more.
	Confirm string `json:"confirm" maxLength:"256"`
}

// StorageList lists shared storage.
type StorageList struct {
	Storages []hosts.Storage `json:"storages"` // by name
}

// LeftoverList lists what lost instances left on a host.
type LeftoverList struct {
	Leftovers []hosts.Leftover `json:"leftovers"` // by project and name
}

// LeftoverNamed names what an instance left on a host.
type LeftoverNamed struct {
	HostNamed

	Instance string `path:"instance" json:"-"` // UUID or name of the instance
}

// HostEmptying is the input of emptyHost.
type HostEmptying struct {
	HostNamed

	Wait    string   `query:"wait"    json:"-" enum:"moved"` // answer when nothing that moves is left on the host
	Timeout Patience `query:"timeout" json:"-" default:"1m"` // longest wait, such as 30s: more than 0, and 10m at most
}

// HostImage is the input of removeHostImages.
type HostImage struct {
	HostNamed
	InProject // whose names of images Image may be

	Image string `query:"image" json:"-" maxLength:"4096"` // as requests name it, or its SHA-256; all unused by default
}

// MoveList lists the results of emptying a host, one per instance.
type MoveList struct {
	Moves []Move `json:"moves"`           // by name
	Error string `json:"error,omitempty"` // the reason why further instances were not examined
}

// Move is the result for one instance.
type Move struct {
	Instance croft.InstanceID `json:"instance"`          // its UUID
	Project  croft.Project    `json:"project"`           // project of the instance
	Name     string           `json:"name"`              // name of the instance
	To       croft.HostID     `json:"to,omitempty"`      // empty: it stays
	ToName   string           `json:"to_name,omitempty"` // name of the host that it moves to
	Stays    string           `json:"stays,omitempty"`   // the reason why it stays
	// It moves with its disk; otherwise it is recreated from its image.
	WithDisk bool `json:"with_disk,omitempty"`
}

// MoveOf returns a move as the API shows it.
func MoveOf(m hosts.Moved) Move {
	return Move{m.Instance.ID, m.Instance.Project, m.Instance.Name, m.To.ID, m.To.Name, m.Stays, m.WithDisk}
}

// GuestUsageList lists the resource usage of the guests of a host.
type GuestUsageList struct {
	Usages []compute.Usage `json:"usages"` // by host and guest
}

// HeldList has images of the cache of a host.
type HeldList struct {
	Images []compute.Held `json:"images"` // the images that the host keeps
}

// NewInvitation is the input of createInvitation.
type NewInvitation struct {
	// What it is for.
	Note string `json:"note,omitempty" maxLength:"1000" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"`
	// The host, by UUID or name, that joins once more. Only new hosts by default.
	Host string `json:"host,omitempty" maxLength:"256"`
	Life string `json:"life" maxLength:"64"` // a duration, such as 1h
	// Where trust is strict, hosts may serve etcd with it.
	Member bool `json:"member,omitempty"`

	// The machine reaches etcd at the addresses that the server uses, even if they are loopback addresses.
	SameEtcd bool `json:"same_etcd,omitempty"`
	// The same for Placement.
	SamePlacement bool `json:"same_placement,omitempty"`
}

// Invitation is a join token.
type Invitation struct {
	Name    string    `json:"name"`           // of the host, if it may have only this one
	Note    string    `json:"note,omitempty"` // for people
	Created time.Time `json:"created"`        // when it was made
	Expires time.Time `json:"expires"`        // when it stops to be valid
	// the only host that may join with it; empty: new hosts only
	Host   croft.HostID `json:"host,omitempty"`
	Member bool         `json:"member,omitempty"` // whether the host is going to run etcd
	Token  string       `json:"token,omitempty"`  // only in the answer to its creation
}

// InvitationNamed names a join token.
type InvitationNamed struct {
	Name string `path:"name" json:"-"` // name of the token, or a prefix of it that no other token has
}

// InvitationList lists the valid join tokens, without their secrets.
type InvitationList struct {
	Invitations []Invitation `json:"invitations"` // the newest first
	More
}

// DiscrepancyList lists the projects whose usage counters are wrong.
type DiscrepancyList struct {
	Discrepancies []tenant.Discrepancy `json:"discrepancies"` // the projects whose counters differ from their records
}
