package controltest

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"croft/control"
	"croft/control/bodies"
	"croft/control/cloud"
	"croft/control/federation"
	"croft/control/federation/assertion"
	"croft/control/forwarding"
	"croft/internal/testing/patient"
	"croft/tenant/access"
	"croft/test/simcloud"
)

// Site is an installation that exchanges requests with others.
type Site struct {
	URL   string
	Cloud *simcloud.Cloud
	Keys  *assertion.Keys
	Book  *assertion.Book
	Under *cloud.Cloud // the served cloud; tests may change it before they send requests
}

// StartSite starts a separate installation, with its own etcd, Placement and keys for peers. It accepts the tokens that
// its API creates.
func StartSite(t testing.TB, change ...func(*control.Config)) *Site {
	t.Helper()
	return StartTrusting(t, nil, change...)
}

// StartTrusting is StartSite with further authenticators, such as an issuer of OpenID Connect.
func StartTrusting(t testing.TB, further []access.Authenticator, change ...func(*control.Config)) *Site {
	t.Helper()
	s := &Site{Keys: &assertion.Keys{Dir: filepath.Join(t.TempDir(), "peers")}}
	s.URL, s.Cloud = StartConfigured(t, func(c *simcloud.Cloud, config *control.Config) {
		s.Book = assertion.NewBook(c.Store.Partitions.NewFeed())
		tree := c.Store.Projects.NewLive()
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		var run sync.WaitGroup
		tokens := access.NewBearer(c.Store.AccessTokens.NewFeed(), c.Store.Partition(), nil)
		run.Go(func() { _ = tokens.Run(ctx) })
		run.Go(func() { _ = s.Book.Run(ctx) })
		run.Go(func() { _ = tree.Run(ctx) })
		t.Cleanup(func() { cancel(); run.Wait() })
		callers := append([]access.Authenticator{tokens}, further...)
		callers = append(callers, Known, &assertion.Authenticator{Partition: c.Store.Partition(), Book: s.Book,
			Nonces: c.Store.Partitions.NewNonces(), Pins: c.Store.Partitions, Most: bodies.Max})
		config.Callers = access.InTree(tree, access.First(callers...))
		config.Peers = &forwarding.Peers{Home: c.Store.Partition(), Find: s.Book.Find, Sign: s.Keys.Sign}
		s.Under = config.Cloud
		for _, one := range change {
			one(config)
		}
	})
	all, err := s.Keys.Open()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Cloud.Store.Partitions.PutSigner(t.Context(), federation.Signer{Key: all[0].Public, Endpoint: s.URL,
		Host: "host1", Since: all[0].Since})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Meet makes another site a peer under an alias, as operators do.
func (s *Site) Meet(t testing.TB, other *Site, alias string, roles ...access.Role) {
	t.Helper()
	s.Add(t, other.Card(t), alias, roles...)
}

// Add makes a partition a peer by its card.
func (s *Site) Add(t testing.TB, card federation.Card, alias string, roles ...access.Role) {
	t.Helper()
	wanted := federation.NewPeer{Card: card, Replace: true, Alias: alias, Roles: roles}
	if _, err := s.Under.Federation.AddPeer(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}
	patient.Until(t, "the server knows the peer", func() bool {
		p, err := s.Book.Called(alias)
		return err == nil && p.Peer.Endpoint == card.Endpoint
	})
}

// Card returns the card of the site.
func (s *Site) Card(t testing.TB) federation.Card {
	t.Helper()
	card, err := s.Under.Federation.Card(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return card
}
