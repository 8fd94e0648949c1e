package federation

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"croft"
	"croft/tenant/access"
)

// Peer is the stored data of a partition that home exchanges requests with: home forwards requests to its endpoint, and
// accepts its requests if one of its keys signed them.
type Peer struct {
	Endpoint string        `json:"endpoint"`     // URL of its API, without a path
	Keys     []PublicKey   `json:"keys"`         // public keys of its servers, one per server
	CA       string        `json:"ca,omitempty"` // PEM of the authorities of its endpoint; empty: the system's
	Roles    []access.Role `json:"roles"`        // roles that users may have through it, in both directions
	Added    time.Time     `json:"added"`        // when it was added
}

// PublicKey is an Ed25519 public key in base64.
type PublicKey string

// keyText is the encoding of public keys. It is strict, so that each key has one text.
var keyText = base64.RawURLEncoding.Strict()

// PublicKeyOf returns the text of a key.
func PublicKeyOf(key ed25519.PublicKey) PublicKey { return PublicKey(keyText.EncodeToString(key)) }

// Key decodes the key. Invalid.
func (k PublicKey) Key() (ed25519.PublicKey, error) {
	key, err := keyText.DecodeString(string(k))
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, croft.Errorf(croft.Invalid, "%.60q is not a public key of Ed25519", string(k))
	}
	return key, nil
}

// ID returns the ID of the key: the first 16 hexadecimal digits of its SHA-256.
func (k PublicKey) ID() string {
	sum := sha256.Sum256([]byte(k))
	return hex.EncodeToString(sum[:8])
}

// Bounds of a peer's record.
const (
	maxKeys = 32
	maxCA   = 64 << 10 // bytes
)

// PeerRoles are the roles that users may have through a peer, never the roles of operators and hosts.
var PeerRoles = access.MemberRoles

// CheckPeerRoles validates and sorts the roles that a peer's users may have. Invalid.
func CheckPeerRoles(roles []access.Role) ([]access.Role, error) {
	if len(roles) == 0 {
		return nil, croft.Errorf(croft.Invalid, "a peer needs a role that its users may have: %v", PeerRoles)
	}
	for _, r := range roles {
		if !slices.Contains(PeerRoles, r) {
			return nil, croft.Errorf(croft.Invalid, "%.40q is no role for users of a peer: use %v", string(r),
				PeerRoles)
		}
	}
	roles = slices.DeleteFunc(slices.Clone(PeerRoles), func(r access.Role) bool { return !slices.Contains(roles, r) })
	return roles, nil
}

// CheckEndpoint validates the address of a peer's API. Invalid: it has a path, is unencrypted to another machine, or is
// link-local, as the metadata servers of clouds are.
func CheckEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return croft.Errorf(croft.Invalid,
			"%.200q is not the address of a cloud's API, such as https://east.example:8781",
			endpoint)
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err == nil && !Reachable(ip) {
		return croft.Errorf(croft.Invalid, "the address %s is no cloud's: it is link-local, unspecified or multicast",
			ip)
	}
	if loopback := u.Hostname() == "localhost" || err == nil && ip.IsLoopback(); u.Scheme == "http" && !loopback {
		return croft.Errorf(croft.Invalid, "%.200s would send requests unencrypted: use https", endpoint)
	}
	return nil
}

// Reachable reports whether a peer may have an address.
func Reachable(ip netip.Addr) bool {
	ip = ip.Unmap()
	return !ip.IsLinkLocalUnicast() && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsInterfaceLocalMulticast()
}

// Check validates a peer. Invalid.
func (p Peer) Check() error {
	if err := CheckEndpoint(p.Endpoint); err != nil {
		return err
	}
	if len(p.Keys) == 0 || len(p.Keys) > maxKeys {
		return croft.Errorf(croft.Invalid, "a peer has 1 to %d keys, not %d", maxKeys, len(p.Keys))
	}
	for _, k := range p.Keys {
		if _, err := k.Key(); err != nil {
			return err
		}
	}
	if _, err := p.Roots(); err != nil {
		return err
	}
	_, err := CheckPeerRoles(p.Roles)
	return err
}

// Roots returns the authorities of the endpoint's certificate; nil: the system's. Invalid.
func (p Peer) Roots() (*x509.CertPool, error) {
	if p.CA == "" {
		return nil, nil
	}
	pool, n := x509.NewCertPool(), 0
	for block, rest := pem.Decode([]byte(p.CA)); block != nil && len(p.CA) <= maxCA; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || block.Type != "CERTIFICATE" {
			n = 0
			break
		}
		pool.AddCert(c)
		n++
	}
	if n == 0 {
		return nil, croft.Errorf(croft.Invalid,
			"the authorities of the peer are no certificates in PEM, of at most %d KiB",
			maxCA>>10)
	}
	return pool, nil
}

// Key returns the key with an ID.
func (p Peer) Key(id string) (ed25519.PublicKey, bool) {
	for _, k := range p.Keys {
		if k.ID() == id {
			key, err := k.Key()
			return key, err == nil
		}
	}
	return nil, false
}

// CardFormat is the version of the format of cards.
const CardFormat = 1

// Card is the data that the operator of one cloud gives to the operator of another, to make the cloud a peer there. It
// contains no secret. It proves nothing: the receiving operator compares its fingerprint with the one that the sender
// sees.
type Card struct {
	// The version of its form.
	Format    int               `json:"card"`
	Partition croft.PartitionID `json:"partition" format:"uuid"`           // its UUID
	Name      string            `json:"name,omitempty" maxLength:"63"`     // alias that the sender proposes
	Endpoint  string            `json:"endpoint" maxLength:"300"`          // URL of its API
	Keys      []PublicKey       `json:"keys" maxItems:"32" maxLength:"64"` // public keys that sign its callers
	CA        string            `json:"ca,omitempty" maxLength:"65536"`    // certificates that its API may have
}

// maxCard bounds the size of a card, in bytes.
const maxCard = 256 << 10

// ParseCard parses a card. Invalid.
func ParseCard(text []byte) (c Card, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if len(text) > maxCard {
		return c, croft.Errorf(croft.Invalid, "this is no card of a cloud: it has more than %d KiB", maxCard>>10)
	}
	if err := d.Decode(&c); err != nil || d.More() {
		var form struct {
			Format int `json:"card"`
		}
		if json.Unmarshal(text, &form) == nil && form.Format > CardFormat {
			c.Format = form.Format
			return c, c.Check()
		}
		return c, croft.Errorf(croft.Invalid, "this is no card of a cloud, as `croft partition card` prints it")
	}
	return c, c.Check()
}

// Check validates a card. Invalid.
func (c Card) Check() error {
	if c.Format != CardFormat {
		return croft.Errorf(croft.Invalid, "the card has format %d, and this croft knows format %d: upgrade", c.Format,
			CardFormat)
	}
	if id, err := uuid.Parse(string(c.Partition)); err != nil || id.String() != string(c.Partition) {
		return croft.Errorf(croft.Invalid, "the card names no partition: %.80q is not a UUID", string(c.Partition))
	}
	if c.Name != "" {
		if err := CheckAlias(c.Name); err != nil {
			return err
		}
	}
	return c.peer(PeerRoles).Check()
}

func (c Card) peer(roles []access.Role) Peer {
	return Peer{Endpoint: strings.TrimRight(c.Endpoint, "/"), Keys: c.Keys, CA: c.CA, Roles: roles}
}

// Fingerprint returns a digest of the card without its name, for people to compare.
func (c Card) Fingerprint() string {
	c.Name = ""
	text, _ := json.Marshal(c) // plain strings: cannot fail
	sum := sha256.Sum256(text)
	var parts []string
	for part := range slices.Chunk(sum[:16], 2) {
		parts = append(parts, hex.EncodeToString(part))
	}
	return strings.Join(parts, "-")
}

// Signer is a server of home's API that signs for peers.
type Signer struct {
	// The public key of Ed25519 in base64.
	Key      PublicKey `json:"key"`
	Endpoint string    `json:"endpoint"` // of its API, as far as the server knows
	Own      bool      `json:"own"`      // its certificate was issued by the cloud's own authority
	Host     string    `json:"host"`     // the machine's name, for people
	Since    time.Time `json:"since"`    // when the key was created
	Use      time.Time `json:"use"`      // when the server starts to sign with the key; until then it is only in cards
}

// Mapping makes the members of a peer's project members of a project here.
type Mapping struct {
	Project croft.Project     `json:"project"`            // here
	Peer    croft.PartitionID `json:"peer" format:"uuid"` // its UUID
	Alias   string            `json:"alias,omitempty"`    // of the peer; set when read
	Theirs  croft.Project     `json:"theirs"`             // project of the peer
	// TheirsID is the identity of the peer's project. Empty: the next request from a project of that name sets it.
	TheirsID croft.ProjectID `json:"theirs_id,omitempty" format:"uuid"`
	Role     access.Role     `json:"role"`  // the highest role that they have here
	Added    time.Time       `json:"added"` // when it was added
}

// Check validates a mapping. Invalid.
func (m Mapping) Check() error {
	if err := cmp.Or(m.Project.Check(), m.Theirs.Check()); err != nil {
		return err
	}
	id, err := uuid.Parse(string(m.TheirsID))
	if m.TheirsID != "" && (err != nil || id.String() != string(m.TheirsID)) {
		return croft.Errorf(croft.Invalid, "%.80q is not the UUID of a project: use the id that `croft project show -o "+
			"json` prints in the other cloud", string(m.TheirsID))
	}
	if _, err := CheckPeerRoles([]access.Role{m.Role}); err != nil {
		return err
	}
	return nil
}

// upTo returns the roles of a peer that are not above the highest of the given roles.
func (p Peer) upTo(roles []access.Role) []access.Role {
	greatest := -1
	for _, r := range roles {
		greatest = max(greatest, slices.Index(PeerRoles, r))
	}
	return slices.DeleteFunc(slices.Clone(PeerRoles), func(r access.Role) bool {
		return slices.Index(PeerRoles, r) > greatest || !slices.Contains(p.Roles, r)
	})
}

// Asserts returns the roles that a caller of home has at a peer: the peer's roles that are not above the caller's. An
// operator has all of them.
func (p Peer) Asserts(c access.Caller) []access.Role {
	if c.Operator() {
		return slices.Clone(p.Roles)
	}
	return p.upTo(c.Roles)
}

// Allows returns the roles that users of a peer have here through a mapping: the peer's roles that are neither above
// theirs nor above the mapping's.
func (m Mapping) Allows(p Peer, theirs []access.Role) []access.Role {
	p.Roles = p.upTo(theirs)
	return p.upTo([]access.Role{m.Role})
}
