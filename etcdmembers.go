package croft

// EtcdMember is a server of the cloud's etcd that runs on a host, and what else that
// host serves for all.
type EtcdMember struct {
	Host      HostID   `json:"host"`
	Name      string   `json:"name"`                // of the host, for people
	Peer      string   `json:"peer"`                // URL at which the other members reach it
	Clients   []string `json:"clients,omitempty"`   // URLs of its etcd; none until it may be asked
	Placement string   `json:"placement,omitempty"` // URL of the Placement there

	// Alone: no agent runs there, so nothing else is on record of the machine.
	Alone bool `json:"alone,omitempty"`

	// Known from etcd itself, and not stored.
	Role MemberRole `json:"role,omitempty"`
}

// MemberRole is what a member is to the others, or that it is nothing just now.
type MemberRole string

// The roles.
const (
	MemberLeads   MemberRole = "leader"
	MemberFollows MemberRole = "member"
	MemberLearns  MemberRole = "learner" // it has no voice yet: it catches up
	MemberSilent  MemberRole = "silent"  // it does not answer
	MemberMissing MemberRole = "missing" // etcd does not know it: its host began to join, or leaves
)
