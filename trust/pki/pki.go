// Package pki is the small certificate authority of one installation: who signs, what
// certificates say, where they are kept, how they are renewed, and the TLS of both
// sides that is made of them.
//
// A certificate says who its holder is in one URI, croft://PARTITION/KIND/ID, and that
// is what the other side checks; names and addresses are there for programs that are
// not ours. Private keys stay where they were made. Whatever reads a certificate for a
// connection reads its file, so that a renewed one counts at once and nothing restarts.
package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"croft"
)

// An Authority is one of those that an installation has. A certificate of one is worth
// nothing to whoever asks for the other.
type Authority string

const (
	// Etcd is of etcd's members and clients: with one of its certificates everything
	// can be read and written.
	Etcd Authority = "etcd"
	// Hosts is of the servers of control, of Placement and of agents, and of their clients.
	Hosts Authority = "hosts"
)

// Authorities are all of them.
var Authorities = []Authority{Etcd, Hosts}

// Kind is what the holder of a certificate is.
type Kind string

const (
	Host     Kind = "host"     // a host's agent; its ID is the host's
	Member   Kind = "member"   // a control process or a member of etcd; its ID is the host's
	Operator Kind = "operator" // a person, or a program that does a person's work; its ID is a name
)

const (
	// Life is how long a certificate counts where nothing else is said.
	Life = 90 * 24 * time.Hour
	// authorityLife is how long an authority counts.
	authorityLife = 10 * 365 * 24 * time.Hour
	// slack is how far a certificate counts back, for clocks that are behind.
	slack = 10 * time.Minute
)

// Identity is who the holder of a certificate is.
type Identity struct {
	Partition croft.PartitionID
	Kind      Kind
	ID        string
}

// HostIdentity is the identity of a host's agent.
func HostIdentity(p croft.PartitionID, id croft.HostID) Identity {
	return Identity{Partition: p, Kind: Host, ID: string(id)}
}

// MemberIdentity is the identity of a control process or a member of etcd on a host.
func MemberIdentity(p croft.PartitionID, id croft.HostID) Identity {
	return Identity{Partition: p, Kind: Member, ID: string(id)}
}

// OperatorIdentity is the identity of an operator.
func OperatorIdentity(p croft.PartitionID, name string) Identity {
	return Identity{Partition: p, Kind: Operator, ID: name}
}

// scheme is the scheme of the URIs that identities are written as.
const scheme = "croft"

func (i Identity) uri() *url.URL {
	return &url.URL{Scheme: scheme, Host: string(i.Partition), Path: "/" + string(i.Kind) + "/" + i.ID}
}

// String is the identity as it is in a certificate.
func (i Identity) String() string { return i.uri().String() }

// operatorName is what an operator may be called: safe in a URI, and as a file's name.
var operatorName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Validate refuses what no certificate may say. Invalid.
func (i Identity) Validate() error {
	if _, err := croft.ParseHostID(string(i.Partition)); err != nil {
		return croft.Errorf(croft.Invalid, "an identity's partition: %w", err)
	}
	switch i.Kind {
	case Host, Member:
		if id, err := croft.ParseHostID(i.ID); err != nil || string(id) != i.ID {
			return croft.Errorf(croft.Invalid, "%q is no ID of a host", i.ID)
		}
	case Operator:
		if !operatorName.MatchString(i.ID) {
			return croft.Errorf(croft.Invalid,
				"an operator cannot be called %q: use up to 63 letters, digits, and . _ - after the first", i.ID)
		}
	default:
		return croft.Errorf(croft.Invalid, "%q is no kind of identity", i.Kind)
	}
	return nil
}

// IdentityOf reads who the holder of a certificate is. Invalid: it does not say so in
// our way, or says more than one thing. Whether the certificate is to be believed is
// for others to check.
func IdentityOf(c *x509.Certificate) (Identity, error) {
	if len(c.URIs) != 1 || c.URIs[0].Scheme != scheme {
		return Identity{},
			croft.Errorf(croft.Invalid, "a certificate of croft has one URI that says whose it is, and this one has %d",
				len(c.URIs))
	}
	u := c.URIs[0]
	kind, id, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	i := Identity{Partition: croft.PartitionID(u.Host), Kind: Kind(kind), ID: id}
	if err := i.Validate(); err != nil {
		return Identity{}, err
	}
	if i.String() != u.String() {
		return Identity{}, croft.Errorf(croft.Invalid, "%s is no identity in a certificate of croft", u)
	}
	return i, nil
}

// Accept decides whether to speak with somebody who has a valid certificate.
type Accept func(Identity) error

// Kinds accepts those of the kinds.
func Kinds(kinds ...Kind) Accept {
	return func(i Identity) error {
		if slices.Contains(kinds, i.Kind) {
			return nil
		}
		return croft.Errorf(croft.Invalid, "the certificate is of %s %s, and that of another kind is wanted: %v",
			i.Kind, i.ID, kinds)
	}
}

// HostOnly accepts one host, as an agent or as more than that.
func HostOnly(id croft.HostID) Accept {
	return func(i Identity) error {
		if (i.Kind == Host || i.Kind == Member) && i.ID == string(id) {
			return nil
		}
		return croft.Errorf(croft.Invalid, "the certificate is of %s %s, and that of host %s is wanted", i.Kind, i.ID,
			id)
	}
}

// Caller is who sent a request over TLS, and whether they showed a certificate.
func Caller(r *http.Request) (Identity, bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return Identity{}, false
	}
	i, err := IdentityOf(r.TLS.VerifiedChains[0][0])
	return i, err == nil
}

// StillTrusted refuses a request whose certificate ran out since its connection began, or
// whose authority was retired since. Unavailable: over a new connection, with the
// certificate of today, the request is taken, and has to be sent again.
func StillTrusted(r *http.Request, roots []*x509.Certificate) error {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	if now := time.Now(); slices.ContainsFunc(r.TLS.VerifiedChains,
		func(chain []*x509.Certificate) bool { return counts(chain, roots, now) }) {
		return nil
	}
	return croft.Errorf(croft.Unavailable,
		"the certificate of this connection ran out, or its authority was retired: connect with the new one")
}

// counts tells whether a chain leads to a root. It is found by its key: a handshake that
// knew the authority before alone has it as one that was signed by that.
func counts(chain, roots []*x509.Certificate, now time.Time) bool {
	for _, c := range chain {
		if slices.ContainsFunc(roots, func(root *x509.Certificate) bool {
			return bytes.Equal(root.RawSubjectPublicKeyInfo, c.RawSubjectPublicKeyInfo) && !now.After(root.NotAfter)
		}) {
			return true
		}
		if now.After(c.NotAfter) {
			return false
		}
	}
	return false
}

// CallerNames are what the caller is called as a server, by the certificate that they
// showed.
func CallerNames(r *http.Request) []string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	c := r.TLS.PeerCertificates[0]
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// Pin is what a certificate of an authority is known by: its SHA-256, in hex.
func Pin(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}
