package federation

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/tenant/access"
)

// PeerStore stores peers and the mappings of their projects. Every write is one transaction that compares the records
// that it depends on.
type PeerStore interface {
	// PutPeer stores the partition that settle returns. settle gets all partitions but home, and may be called
	// repeatedly. PutPeer returns its error.
	PutPeer(ctx context.Context, id croft.PartitionID, settle func(all []Partition) (Partition, error)) (Partition,
		error)
	// RemovePeer removes a peer and its mappings; imported data of the partition stays. NotFound.
	RemovePeer(ctx context.Context, id croft.PartitionID) error
	// PutMapping stores a mapping, or changes its role. NotFound: the peer or the project does not exist. Conflict:
	// that project of the peer is mapped to another project here.
	PutMapping(ctx context.Context, m Mapping) error
	// RemoveMapping removes a mapping. NotFound.
	RemoveMapping(ctx context.Context, m Mapping) error
	// Mappings lists all mappings, by project.
	Mappings(ctx context.Context) ([]Mapping, error)
	// Signers lists the servers that sign for home, newest key first.
	Signers(ctx context.Context) ([]Signer, error)
	// RemoveSigner removes the key with an ID from the keys of home. NotFound.
	RemoveSigner(ctx context.Context, id string) error
	// Authority returns the authority of home's own certificates in PEM; empty: it has none.
	Authority(ctx context.Context) (string, error)
}

// NewPeer is a peer to add, or a change of one.
type NewPeer struct {
	Card Card `json:"card"` // its card
	// empty: unchanged, or the name on the card
	Alias string        `json:"alias,omitempty" maxLength:"63"`
	Roles []access.Role `json:"roles,omitempty" enum:"reader,member,project-admin" maxItems:"3"` // empty: unchanged
	// accept a card of a known peer that has other keys, another endpoint or other authorities: the author of the card
	// can act for the peer's users from then on
	Replace bool `json:"replace,omitempty"`
}

// ErrOtherCard says that a card differs from the stored record of its partition.
var ErrOtherCard = croft.Errorf(croft.Conflict, "the card differs from what is known of this peer")

// Card returns the card of home. For an empty endpoint, the endpoint of a server of the API is used. Invalid: name or
// endpoint. Unavailable: no server of the API has stored its key yet.
func (s *Service) Card(ctx context.Context, name, endpoint string) (Card, error) {
	if name != "" {
		if err := CheckAlias(name); err != nil {
			return Card{}, err
		}
	}
	if endpoint != "" {
		if err := CheckEndpoint(endpoint); err != nil {
			return Card{}, err
		}
	}
	signers, err := s.Peers.Signers(ctx)
	if err != nil {
		return Card{}, err
	}
	if len(signers) == 0 {
		return Card{}, croft.Errorf(croft.Unavailable,
			"no server of this cloud's API has a key to sign with yet: start one")
	}
	c := Card{Format: CardFormat, Partition: s.Home, Name: name, Endpoint: strings.TrimRight(endpoint, "/")}
	own := false
	for _, one := range signers {
		c.Keys = append(c.Keys, one.Key)
		own = own || one.Own
	}
	if c.Endpoint == "" {
		// of several servers, prefer one that other machines can reach
		slices.SortStableFunc(signers, func(a, b Signer) int { return cmp.Compare(rank(a), rank(b)) })
		c.Endpoint, own = signers[0].Endpoint, signers[0].Own
	}
	slices.Sort(c.Keys)
	if own && strings.HasPrefix(c.Endpoint, "https:") {
		if c.CA, err = s.Peers.Authority(ctx); err != nil {
			return Card{}, err
		}
	}
	return c, c.Check()
}

// rank orders endpoints of home: those with HTTPS first.
func rank(s Signer) int {
	if u, err := url.Parse(s.Endpoint); err != nil || u.Scheme != "https" {
		return 1
	}
	return 0
}

// AddPeer makes a partition a peer by its card, or accepts a new card of a peer if n.Replace is set. Invalid. Conflict:
// the alias is taken, or the partition is stored with another card (ErrOtherCard).
func (s *Service) AddPeer(ctx context.Context, n NewPeer) (Partition, error) {
	if err := n.Card.Check(); err != nil {
		return Partition{}, err
	}
	if n.Card.Partition == s.Home {
		return Partition{}, croft.Errorf(croft.Invalid, "the card is of this very cloud, which is no peer of itself")
	}
	if n.Alias != "" {
		if err := CheckAlias(n.Alias); err != nil {
			return Partition{}, err
		}
	}
	if len(n.Roles) > 0 {
		var err error
		if n.Roles, err = CheckPeerRoles(n.Roles); err != nil {
			return Partition{}, err
		}
	}
	return s.Peers.PutPeer(ctx, n.Card.Partition, func(all []Partition) (Partition, error) { return n.settle(all) })
}

// settle returns the record to store for a new peer.
func (n NewPeer) settle(all []Partition) (Partition, error) {
	now, _ := Called(all, string(n.Card.Partition)) // or the zero value
	others := slices.DeleteFunc(slices.Clone(all), func(p Partition) bool { return p.ID == n.Card.Partition })
	taken := func(name string) bool {
		return name == HomeAlias || slices.ContainsFunc(others, func(o Partition) bool { return o.Alias == name })
	}
	next := n.Card.peer(n.Roles)
	next.Added = time.Now().UTC().Truncate(time.Second)
	if now.Peer != nil {
		if what := now.Peer.differs(next); what != "" && !n.Replace {
			return now, fmt.Errorf("add peer %s: %w: it has %s; compare fingerprints with the peer's operators, then give "+
				"--replace", now.Alias, ErrOtherCard, what)
		}
		next.Added = now.Peer.Added
		if len(next.Roles) == 0 {
			next.Roles = now.Peer.Roles
		}
	}
	now.ID, now.Peer = n.Card.Partition, &next
	switch {
	case n.Alias != "" && taken(n.Alias):
		return now, croft.Errorf(croft.Conflict, "another partition has the alias %s here: give one that is free with "+
			"--alias", n.Alias)
	case n.Alias != "":
		now.Alias = n.Alias
	case now.Alias == "":
		now.Alias = free(cmp.Or(n.Card.Name, string(n.Card.Partition[:8])), taken)
	}
	return now, next.Check()
}

// differs names the first difference of the next card of a peer; empty: there is no difference.
func (p Peer) differs(next Peer) string {
	sorted := func(keys []PublicKey) []PublicKey { return slices.Sorted(slices.Values(keys)) }
	switch {
	case !slices.Equal(sorted(p.Keys), sorted(next.Keys)):
		return "other keys"
	case p.Endpoint != next.Endpoint:
		return "another endpoint"
	case p.CA != next.CA:
		return "other authorities"
	}
	return ""
}

// RemovePeer ends the exchange of requests with a peer, and returns its former record. NotFound.
func (s *Service) RemovePeer(ctx context.Context, idOrAlias string) (Partition, error) {
	p, err := s.peer(ctx, idOrAlias)
	if err != nil {
		return p, err
	}
	return p, s.Peers.RemovePeer(ctx, p.ID)
}

// peer returns a peer. NotFound.
func (s *Service) peer(ctx context.Context, idOrAlias string) (Partition, error) {
	all, err := s.List(ctx)
	if err != nil {
		return Partition{}, err
	}
	p, err := Called(all, idOrAlias)
	if err != nil || p.Peer == nil {
		return Partition{}, croft.Errorf(croft.NotFound,
			"there is no peer %.80q; `croft partition peer list` shows all",
			idOrAlias)
	}
	return p, nil
}

// Map makes the members of a peer's project members of a project here. The peer is given by UUID or alias. NotFound.
// Invalid. Conflict.
func (s *Service) Map(ctx context.Context, m Mapping) (Mapping, error) {
	if err := m.Check(); err != nil {
		return m, err
	}
	p, err := s.peer(ctx, string(m.Peer))
	if err != nil {
		return m, err
	}
	m.Peer, m.Alias, m.Added = p.ID, "", time.Now().UTC().Truncate(time.Second)
	err = s.Peers.PutMapping(ctx, m)
	m.Alias = p.Alias
	return m, err
}

// Unmap ends a mapping. NotFound.
func (s *Service) Unmap(ctx context.Context, m Mapping) error {
	if m.Project.Check() != nil || m.Theirs.Check() != nil {
		return croft.Errorf(croft.NotFound, "there is no such project")
	}
	p, err := s.peer(ctx, string(m.Peer))
	if err != nil {
		return err
	}
	m.Peer = p.ID
	return s.Peers.RemoveMapping(ctx, m)
}

// Mappings lists the mappings of a project; if it is empty, all mappings.
func (s *Service) Mappings(ctx context.Context, project croft.Project) ([]Mapping, error) {
	all, err := s.Peers.Mappings(ctx)
	if err != nil {
		return nil, err
	}
	known, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	out := []Mapping{}
	for _, m := range all {
		if p, err := Called(known, string(m.Peer)); err == nil && (project == "" || m.Project == project) {
			m.Alias = p.Alias
			out = append(out, m)
		}
	}
	return out, nil
}

// Signers lists the servers that sign for home, newest key first.
func (s *Service) Signers(ctx context.Context) ([]Signer, error) { return s.Peers.Signers(ctx) }

// RetireSigner removes a key from the cards of home. NotFound.
func (s *Service) RetireSigner(ctx context.Context, id string) error {
	return s.Peers.RemoveSigner(ctx, id)
}
