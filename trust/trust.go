// Package trust decides which peers the processes of a cloud trust, and gives them the credentials to prove
// their own identity: the cloud's certificate authority, the server at which hosts join and renew their
// certificates, its client, and the check that keeps forgotten hosts out. A host is admitted because it is on
// record, not because it is absent from a revocation list.
package trust

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"croft"
	"croft/trust/pki"
)

// The values of the setting trust: what the hosts that join a cloud may reach.
const (
	// Direct lets hosts connect to etcd and Placement themselves.
	Direct = "direct"
	// Strict lets hosts connect only to the gate.
	Strict = "strict"
)

// A JoinServer is a server at which hosts join and renew their certificates, or a gate for agents of hosts that
// do not reach etcd, or both. Addresses are HOST:PORT, as hosts reach them.
type JoinServer struct {
	Addresses []string `json:"addresses,omitempty"` // where hosts join
	// what hosts that join there may reach, Direct or Strict; empty: none may join
	Trust  string   `json:"trust,omitempty"`
	Agents []string `json:"agents,omitempty"` // addresses of its gate
}

// ServesAgents lists the addresses of its gate; none without a gate.
func (j JoinServer) ServesAgents() []string {
	if len(j.Agents) == 0 && j.Trust == Strict { // written by a version that had one gate
		return j.Addresses
	}
	return j.Agents
}

// AnyStrict reports whether hosts that join at one of the servers reach only the gate.
func AnyStrict(servers []JoinServer) bool {
	return slices.ContainsFunc(servers, func(j JoinServer) bool { return j.Trust == Strict })
}

// Joined records that a host joined at a JoinServer. Without the record the host's certificates are refused.
type Joined struct {
	Since        time.Time        `json:"since"`
	Certificates map[string]Stamp `json:"certificates"` // by authority
}

// Stamp says when and by which authority a certificate was made, and when it expires.
type Stamp struct {
	By    string    `json:"by"` // pin of the authority
	Made  time.Time `json:"made"`
	Until time.Time `json:"until"`
}

// Invitation is the record of a valid token. It does not contain the token's secret, so reading the record does
// not let anyone join.
type Invitation struct {
	Name    string    `json:"name"` // derived from the secret, without revealing it
	Note    string    `json:"note,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Sealed  []byte    `json:"sealed"` // grant for the joining host, encrypted with the token

	Verifier []byte       `json:"verifier,omitempty"` // public key that verifies signatures made with the token
	Member   bool         `json:"member,omitempty"`   // the host may serve etcd even where trust is strict
	Host     croft.HostID `json:"host,omitempty"`     // the only host that may use it; empty: new hosts only
}

// Registry is the record of who may join and who has joined.
type Registry interface {
	Hosts

	// Invitation returns the record of a token. NotFound: it expired or was revoked.
	Invitation(ctx context.Context, name string) (Invitation, error)
	// RecordJoin records that a host joined. Conflict: the host exists, and known is false.
	RecordJoin(ctx context.Context, host croft.HostID, known bool, certificates map[string]Stamp) error
	// Renewed records a new certificate. NotFound: the host did not join or was forgotten.
	Renewed(ctx context.Context, host croft.HostID, authority string, stamp Stamp) error
}

// Hosts is where the hosts that joined are.
type Hosts interface {
	// Joined returns when a host joined. NotFound: it did not, or it was forgotten.
	Joined(ctx context.Context, host croft.HostID) (Joined, error)
}

// Known is where the records of hosts are.
type Known interface {
	// Hosts returns the records of these hosts; of all without arguments.
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
}

// Publisher stores the trusted authority of hosts for all readers of the store.
type Publisher interface {
	PutAuthority(ctx context.Context, trusted []byte) error
}

// CADir returns the directory of the authority in a state directory.
func CADir(stateDir string) string { return filepath.Join(stateDir, "ca") }

// Certificate returns the files of the host's certificate of an authority in a state directory.
func Certificate(stateDir string, a pki.Authority) pki.Files {
	return pki.Files{Dir: filepath.Join(stateDir, "tls"), Authority: a}
}
