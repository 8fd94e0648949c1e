package api

import (
	"time"

	"croft"
	"croft/cloud"
	"croft/compute"
	"croft/hosts"
	"croft/tenant"
)

// MoveList lists the results of emptying a host, one per instance.
type MoveList struct {
	Moves []Move `json:"moves"`
	Error string `json:"error,omitempty"` // the reason why further instances were not examined
}

// Move is the result for one instance.
type Move struct {
	Instance croft.InstanceID `json:"instance"`
	Project  croft.Project    `json:"project"`
	Name     string           `json:"name"`
	To       croft.HostID     `json:"to,omitempty"` // empty: it stays
	ToName   string           `json:"to_name,omitempty"`
	Stays    string           `json:"stays,omitempty"` // the reason why it stays
}

// MoveOf returns a move as the API shows it.
func MoveOf(m hosts.Moved) Move {
	return Move{m.Instance.ID, m.Instance.Project, m.Instance.Name, m.To.ID, m.To.Name, m.Stays}
}

// Moved returns the move that MoveOf converted, as far as the API shows it.
func (m Move) Moved() hosts.Moved {
	return hosts.Moved{Instance: croft.Instance{ID: m.Instance, Project: m.Project, Name: m.Name},
		To: croft.Host{ID: m.To, Name: m.ToName}, Stays: m.Stays}
}

// GuestUsageList lists the resource usage of the guests of a host.
type GuestUsageList struct {
	Usages []compute.Usage `json:"usages"`
}

// HeldList has images of the cache of a host.
type HeldList struct {
	Images []compute.Held `json:"images"`
}

// NewInvitation describes a join token to create.
type NewInvitation struct {
	Note   string `json:"note,omitempty"`
	Host   string `json:"host,omitempty"`
	Life   string `json:"life"` // a duration, such as 1h
	Member bool   `json:"member,omitempty"`

	SameEtcd      bool `json:"same_etcd,omitempty"`
	SamePlacement bool `json:"same_placement,omitempty"`
}

// Invitation is a join token.
type Invitation struct {
	Name    string    `json:"name"`
	Note    string    `json:"note,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	// the only host that may join with it; empty: new hosts only
	Host   croft.HostID `json:"host,omitempty"`
	Member bool         `json:"member,omitempty"`
	Token  string       `json:"token,omitempty"` // only in the answer to its creation
}

// InvitationOf returns a join token as the API shows it.
func InvitationOf(t cloud.Token) Invitation {
	return Invitation{t.Name, t.Note, t.Created, t.Expires, t.Host, t.Member, t.Secret}
}

// Made returns the token that InvitationOf converted.
func (i Invitation) Made() cloud.Token {
	return cloud.Token{Name: i.Name, Note: i.Note, Created: i.Created, Expires: i.Expires, Host: i.Host,
		Member: i.Member, Secret: i.Token}
}

// InvitationList lists the valid join tokens, without their secrets.
type InvitationList struct {
	Invitations []Invitation `json:"invitations"`
}

// DiscrepancyList lists the projects whose usage counters are wrong.
type DiscrepancyList struct {
	Discrepancies []tenant.Discrepancy `json:"discrepancies"`
}
