package croft

// Peer is a member of a cluster, as the other members know it.
type Peer struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	HostKey string `json:"host_key,omitempty"` // public key of its SSH server, in the form of authorized_keys
	Role    string `json:"role,omitempty"`     // in its cluster
}
