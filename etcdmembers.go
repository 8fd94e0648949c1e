package croft

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
