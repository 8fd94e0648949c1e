// Package pki is the small certificate authority of one installation: signing, the content of certificates,
// their storage and renewal, and TLS configurations of servers and clients.
//
// A certificate identifies its holder by one URI, croft://PARTITION/KIND/ID, which the peer verifies; names and
// addresses are only for programs other than croft. Private keys never leave the machine that made them. The
// files are read for each connection, so that a renewed certificate is used at once and without a restart.
package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/lazyregexp"
)

// An Authority is one of the two authorities of an installation. A certificate of one is not accepted where the
// other is required.
type Authority string

const (
	// Etcd signs for etcd's members and clients: its certificates give full access to etcd.
	Etcd Authority = "etcd"
	// Hosts signs for join servers, gates, Placement and agents, and for their clients.
	Hosts Authority = "hosts"
)

// Authorities lists both authorities.
var Authorities = []Authority{Etcd, Hosts}

// Kind is the role of a certificate's holder.
type Kind string

const (
	Host     Kind = "host"     // a host's agent; the ID is the host's
	Member   Kind = "member"   // a control process or a member of etcd; the ID is the host's
	Operator Kind = "operator" // a person, or a program on a person's behalf; the ID is a name
)

const (
	// Life is the default lifetime of a certificate.
	Life = 90 * 24 * time.Hour
	// authorityLife is the lifetime of an authority.
	authorityLife = 10 * 365 * 24 * time.Hour
	// slack is how far the start of a certificate's validity lies in the past, for clocks that are behind.
	slack = 10 * time.Minute
)

// Identity identifies the holder of a certificate.
type Identity struct {
	Partition croft.PartitionID
	Kind      Kind
	ID        string
}

// HostIdentity returns the identity of a host's agent.
func HostIdentity(p croft.PartitionID, id croft.HostID) Identity {
	return Identity{Partition: p, Kind: Host, ID: string(id)}
}

// MemberIdentity returns the identity of a control process or a member of etcd on a host.
func MemberIdentity(p croft.PartitionID, id croft.HostID) Identity {
	return Identity{Partition: p, Kind: Member, ID: string(id)}
}

// OperatorIdentity returns the identity of an operator.
func OperatorIdentity(p croft.PartitionID, name string) Identity {
	return Identity{Partition: p, Kind: Operator, ID: name}
}

// scheme is the URI scheme of identities.
const scheme = "croft"

func (i Identity) uri() *url.URL {
	return &url.URL{Scheme: scheme, Host: string(i.Partition), Path: "/" + string(i.Kind) + "/" + i.ID}
}

// String returns the identity as written in a certificate.
func (i Identity) String() string { return i.uri().String() }

// operatorName is the form of an operator's name: safe in a URI, and as a file name.
var operatorName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Validate refuses identities that no certificate may have. Invalid.
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
		return croft.Errorf(croft.Invalid, "%q is not a kind of identity", i.Kind)
	}
	return nil
}

// IdentityOf reads the identity of a certificate's holder. Invalid: it contains none in our form, or more than
// one. The caller verifies the certificate itself.
func IdentityOf(c *x509.Certificate) (Identity, error) {
	if len(c.URIs) != 1 || c.URIs[0].Scheme != scheme {
		return Identity{},
			croft.Errorf(croft.Invalid, "a certificate of croft has one URI with its identity, and this one has %d",
				len(c.URIs))
	}
	u := c.URIs[0]
	kind, id, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	i := Identity{Partition: croft.PartitionID(u.Host), Kind: Kind(kind), ID: id}
	if err := i.Validate(); err != nil {
		return Identity{}, err
	}
	if i.String() != u.String() {
		return Identity{}, croft.Errorf(croft.Invalid, "%s is not an identity in a certificate of croft", u)
	}
	return i, nil
}

// Accept decides whether to accept a peer with a valid certificate.
type Accept func(Identity) error

// Kinds accepts holders of these kinds.
func Kinds(kinds ...Kind) Accept {
	return func(i Identity) error {
		if slices.Contains(kinds, i.Kind) {
			return nil
		}
		return croft.Errorf(croft.Invalid, "the certificate identifies %s %s, and another kind is required: %v",
			i.Kind, i.ID, kinds)
	}
}

// HostOnly accepts one host, as an agent or as a member.
func HostOnly(id croft.HostID) Accept {
	return func(i Identity) error {
		if (i.Kind == Host || i.Kind == Member) && i.ID == string(id) {
			return nil
		}
		return croft.Errorf(croft.Invalid, "the certificate identifies %s %s, and one of host %s is required", i.Kind, i.ID,
			id)
	}
}

// Caller returns the sender of a request over TLS, and whether the sender showed a certificate.
func Caller(r *http.Request) (Identity, bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return Identity{}, false
	}
	i, err := IdentityOf(r.TLS.VerifiedChains[0][0])
	return i, err == nil
}

// StillTrusted refuses a request whose certificate has expired, or whose authority was retired, since its connection
// began. Unavailable: the request must be sent again over a new connection, with the current certificate.
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

// counts reports whether a chain leads to a root. The root is found by its key: a handshake that knew only the previous
// authority contains it as a certificate signed by that authority.
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

// CallerNames returns the server names in the certificate of the caller.
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

// Pin identifies a certificate of an authority: its SHA-256, in hex.
func Pin(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}
