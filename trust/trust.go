// Package trust decides whom the processes of a cloud believe, and gives them what they
// prove themselves with: the cloud's certificate authority, the server at which hosts
// join and renew their certificates, its client, and the check that keeps out hosts that
// were forgotten. A host is let in because it is on record, not because it is on no list.
package trust

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"croft"
	"croft/trust/pki"
)

// What hosts that join a cloud may reach: the setting trust.
const (
	// Direct lets hosts speak to etcd and Placement themselves.
	Direct = "direct"
	// Strict lets hosts speak to the gate alone.
	Strict = "strict"
)

// A JoinServer is a server at which hosts join and renew their certificates, or that
// serves the agents of hosts which reach no etcd, or both. Addresses are HOST:PORT, as
// hosts reach them.
type JoinServer struct {
	Addresses []string `json:"addresses,omitempty"` // where hosts join
	// what hosts that join there may reach, Direct or Strict; empty: none may join
	Trust  string   `json:"trust,omitempty"`
	Agents []string `json:"agents,omitempty"` // where agents of a strict cloud are served
}

// ServesAgents lists the addresses of its gate; none without a gate.
func (j JoinServer) ServesAgents() []string {
	if len(j.Agents) == 0 && j.Trust == Strict { // written by a version that had one gate
		return j.Addresses
	}
	return j.Agents
}

// AnyStrict tells whether hosts that join at one of the servers reach the gate alone.
func AnyStrict(servers []JoinServer) bool {
	return slices.ContainsFunc(servers, func(j JoinServer) bool { return j.Trust == Strict })
}

// Joined is the record of a host that joined at a JoinServer. Without it the host's
// certificates are refused.
type Joined struct {
	Since        time.Time        `json:"since"`
	Certificates map[string]Stamp `json:"certificates"` // by authority
}

// Stamp says when a certificate was made, by which authority, and when it expires.
type Stamp struct {
	By    string    `json:"by"` // pin of the authority
	Made  time.Time `json:"made"`
	Until time.Time `json:"until"`
}

// Invitation is the record of a valid token. The token's secret is not part of it, so
// reading the record lets nobody join.
type Invitation struct {
	Name    string    `json:"name"` // derived from the secret, which it does not reveal
	Note    string    `json:"note,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Sealed  []byte    `json:"sealed"` // what the joining host gets, encrypted with the token

	Verifier []byte       `json:"verifier,omitempty"` // public key for what is signed with the token
	Member   bool         `json:"member,omitempty"`   // the host may serve etcd even where trust is strict
	Host     croft.HostID `json:"host,omitempty"`     // the only host that may use it; empty: new hosts only
}

// Registry is the record of who may join and who has joined.
type Registry interface {
	Hosts

	// Invitation returns the record of a token. NotFound: it expired or was revoked.
	Invitation(ctx context.Context, name string) (Invitation, error)
	// Admit records that a host joined. Conflict: the host exists, and known is false.
	Admit(ctx context.Context, host croft.HostID, known bool, certificates map[string]Stamp) error
	// Renewed records a new certificate. NotFound: the host did not join or was forgotten.
	Renewed(ctx context.Context, host croft.HostID, authority string, stamp Stamp) error
}

// Hosts is what Admission asks of the store.
type Hosts interface {
	// Joined returns when a host joined. NotFound: it did not, or it was forgotten.
	Joined(ctx context.Context, host croft.HostID) (Joined, error)
	// Hosts returns the records of these hosts, of all without arguments.
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
}

// Publisher stores which authority of hosts to trust, for everybody who reads the store.
type Publisher interface {
	PutAuthority(ctx context.Context, trusted []byte) error
}

// CADir is the directory of the authority in a state directory.
func CADir(stateDir string) string { return filepath.Join(stateDir, "ca") }

// Certificate is where a state directory keeps the host's certificate of an authority.
func Certificate(stateDir string, a pki.Authority) pki.Files {
	return pki.Files{Dir: filepath.Join(stateDir, "tls"), Authority: a}
}
