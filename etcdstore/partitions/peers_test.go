package partitions_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/control/federation"
	"croft/control/federation/assertion"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
	"croft/tenant"
	"croft/tenant/access"
)

// signs gives an installation a key for its peers.
func (i *installation) signs(endpoint string) *assertion.Keys {
	i.Helper()
	keys := &assertion.Keys{Dir: i.TempDir() + "/peers"}
	all, err := keys.Open()
	i.check(err)
	for _, want := range []bool{true, false} {
		added, err := i.store.Partitions.PutSigner(i.Context(), federation.Signer{Key: all[0].Public,
			Endpoint: endpoint, Host: "host1", Since: all[0].Since})
		i.check(err)
		if added != want {
			i.Errorf("a key was added: %v, want %v", added, want)
		}
	}
	return keys
}

// meet makes another installation a peer, under an alias.
func (i *installation) meet(other *installation, alias string, roles ...access.Role) federation.Partition {
	i.Helper()
	card, err := other.Card(i.Context(), "", "")
	i.check(err)
	p, err := i.AddPeer(i.Context(), federation.NewPeer{Card: card, Alias: alias, Roles: roles})
	i.check(err)
	return p
}

// reads returns the book of an installation that has a peer.
func (i *installation) reads() *assertion.Book {
	i.Helper()
	book := assertion.NewBook(i.store.Partitions.NewFeed())
	ctx, cancel := context.WithCancel(i.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = book.Run(ctx) })
	i.Cleanup(func() { cancel(); run.Wait() })
	return book
}

func TestPeersAreAddedAndRemoved(t *testing.T) {
	t.Parallel()
	east, west := install(t), install(t)
	west.signs("https://west.example:8781")
	if _, err := east.Card(t.Context(), "", ""); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("a card without a key: %v", err)
	}
	p := east.meet(west, "west", access.Member)
	if p.ID != west.Home || p.Alias != "west" || p.Peer.Endpoint != "https://west.example:8781" ||
		len(p.Peer.Keys) != 1 {
		t.Errorf("added %+v %+v", p, p.Peer)
	}
	if p := east.meet(west, ""); p.Alias != "west" || len(p.Peer.Roles) != 1 || p.Peer.Roles[0] != access.Member {
		t.Errorf("a new card changes %+v %+v", p, p.Peer)
	}
	if all, err := east.List(t.Context()); err != nil || len(all) != 2 || all[1].Peer == nil {
		t.Errorf("listed %+v, %v", all, err)
	}
	card, err := west.Card(t.Context(), "home-of-bob", "https://other.example/")
	east.check(err)
	// a card with the UUID of a peer can be forged
	forged := card
	forged.Keys = append(
		slices.Clone(card.Keys),
		federation.PublicKeyOf(make(ed25519.PublicKey, ed25519.PublicKeySize)),
	)
	for name, c := range map[string]federation.Card{"another endpoint": card, "another key": forged} {
		_, err := east.AddPeer(t.Context(), federation.NewPeer{Card: c})
		if !errors.Is(err, federation.ErrOtherCard) || !strings.Contains(err.Error(), "--replace") {
			t.Errorf("a card of a known peer with %s: %v", name, err)
		}
	}
	if all, err := east.List(t.Context()); err != nil || all[1].Peer.Endpoint != p.Peer.Endpoint ||
		len(all[1].Peer.Keys) != 1 {
		t.Errorf("it is %+v, %v", all[1].Peer, err)
	}
	if p, err := east.AddPeer(t.Context(), federation.NewPeer{Card: forged, Replace: true}); err != nil ||
		len(p.Peer.Keys) != 2 || p.Alias != "west" {
		t.Errorf("replaced on request, it is %+v, %v", p.Peer, err)
	}
	east.check(second(east.AddPeer(t.Context(), federation.NewPeer{Card: card, Replace: true})))
	spoiled := func(spoil func(*federation.Card)) federation.NewPeer {
		c := card
		spoil(&c)
		return federation.NewPeer{Card: c}
	}
	for name, peer := range map[string]federation.NewPeer{
		"home":                spoiled(func(c *federation.Card) { c.Partition = east.Home }),
		"an alias of home":    {Card: card, Alias: "home"},
		"an operator's role":  {Card: card, Roles: []access.Role{access.PartitionAdmin}},
		"an agent's role":     {Card: card, Roles: []access.Role{access.Agent}},
		"a newer card":        spoiled(func(c *federation.Card) { c.Format = 2 }),
		"a card without keys": spoiled(func(c *federation.Card) { c.Keys = nil }),
	} {
		if _, err := east.AddPeer(t.Context(), peer); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	// a third installation may not take the alias of the second
	south := install(t)
	south.signs("https://south.example")
	card, err = south.Card(t.Context(), "west", "")
	east.check(err)
	_, err = east.AddPeer(t.Context(), federation.NewPeer{Card: card, Alias: "west",
		Roles: []access.Role{access.Reader}})
	if croft.KindOf(err) != croft.Conflict {
		t.Errorf("an alias that is taken: %v", err)
	}
	if p, err := east.AddPeer(t.Context(), federation.NewPeer{Card: card,
		Roles: []access.Role{access.Reader}}); err != nil ||
		p.Alias != "west-2" {
		t.Errorf("a proposed alias that is taken: %+v, %v", p, err)
	}
	// an import neither renames nor removes a peer
	west.fill()
	if _, _, err := east.take(west.export("west"), "neighbour"); croft.KindOf(err) != croft.Conflict {
		t.Errorf("an import under another alias: %v", err)
	}
	if _, _, err := east.take(west.export("west"), ""); err != nil {
		t.Error(err)
	}
	if p, err := east.Find(t.Context(), "west"); err != nil || p.Peer == nil || p.Imported == nil {
		t.Errorf("peer and import are %+v, %v", p, err)
	}
	if _, err := east.RemovePeer(t.Context(), "west"); err != nil {
		t.Error(err)
	}
	if p, err := east.Find(t.Context(), "west"); err != nil || p.Peer != nil || p.Imported == nil {
		t.Errorf("the import is %+v after the peer ended, %v", p, err)
	}
	if _, err := east.RemovePeer(t.Context(), "west"); croft.KindOf(err) != croft.NotFound {
		t.Errorf("the removal of one that was removed: %v", err)
	}
	if _, err := east.RemovePeer(t.Context(), "west-2"); err != nil {
		t.Error(err)
	}
	if _, err := east.Find(t.Context(), "west-2"); croft.KindOf(err) != croft.NotFound {
		t.Errorf("a peer of which nothing was imported stays: %v", err)
	}
}

func TestMappingsGoWithTheirPeerAndTheirProject(t *testing.T) {
	t.Parallel()
	east, west := install(t), install(t)
	west.signs("https://west.example:8781")
	east.meet(west, "west", access.Reader, access.Member)
	project := func(name croft.Project) {
		_, err := east.store.Projects.Create(t.Context(), tenant.Tenant{Name: name})
		east.check(err)
	}
	project("shop")
	project("lab")
	m := federation.Mapping{Project: "shop", Peer: "west", Theirs: "web", Role: access.Member}
	for range 2 {
		_, err := east.Map(t.Context(), m)
		east.check(err)
	}
	for name, c := range map[string]struct {
		change func(*federation.Mapping)
		want   croft.Kind
	}{
		"in another project too": {func(m *federation.Mapping) { m.Project = "lab" }, croft.Conflict},
		"of no peer":             {func(m *federation.Mapping) { m.Peer = "south" }, croft.NotFound},
		"in no project": {func(m *federation.Mapping) { m.Project, m.Theirs = "none", "x" },
			croft.NotFound},
		"as an operator":            {func(m *federation.Mapping) { m.Role = access.PartitionAdmin }, croft.Invalid},
		"of what is no project":     {func(m *federation.Mapping) { m.Theirs = "a/b" }, croft.Invalid},
		"in what cannot be a name":  {func(m *federation.Mapping) { m.Project = "../x" }, croft.Invalid},
		"of a peer that is home":    {func(m *federation.Mapping) { m.Peer = "home" }, croft.NotFound},
		"of a peer without a name":  {func(m *federation.Mapping) { m.Peer = "" }, croft.NotFound},
		"as a role that is nothing": {func(m *federation.Mapping) { m.Role = "" }, croft.Invalid},
	} {
		bad := m
		c.change(&bad)
		if _, err := east.Map(t.Context(), bad); croft.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	list := func(want int) {
		t.Helper()
		if all, err := east.Mappings(t.Context(), ""); err != nil || len(all) != want || want > 0 &&
			all[0].Alias != "west" {
			t.Errorf("mappings: %+v, %v, want %d", all, err, want)
		}
	}
	list(1)
	east.check(east.store.Projects.Remove(t.Context(), "shop"))
	list(0)
	project("shop")
	_, err := east.Map(t.Context(), m)
	east.check(err)
	_, err = east.RemovePeer(t.Context(), "west")
	east.check(err)
	east.meet(west, "west", access.Member)
	list(0) // mappings of the former peer are not restored
	_, err = east.Map(t.Context(), m)
	east.check(err)
	east.check(east.Unmap(t.Context(), m))
	list(0)
	if err := east.Unmap(t.Context(), m); croft.KindOf(err) != croft.NotFound {
		t.Errorf("the end of what has ended: %v", err)
	}
}

// TestAReplayedAssertionPassesOnce sends one assertion to three servers of the API at once, many times.
func TestAReplayedAssertionPassesOnce(t *testing.T) {
	t.Parallel()
	east, west := install(t), install(t)
	keys := east.signs("https://east.example:8781")
	west.meet(east, "east", access.Member)
	_, err := west.store.Projects.Create(t.Context(), tenant.Tenant{Name: "shop"})
	west.check(err)
	_, err = west.Map(t.Context(), federation.Mapping{Project: "shop", Peer: "east", Theirs: "web",
		Role: access.Member})
	west.check(err)
	var servers []*assertion.Authenticator
	for range 3 {
		one := &installation{t, west.Service, west.server, etcdtest.Open(t, west.server)}
		book := one.reads()
		patient.Until(t, "the peers are read", func() bool { _, err := book.Called("east"); return err == nil })
		servers = append(servers, &assertion.Authenticator{Partition: west.Home, Book: book,
			Nonces: one.store.Partitions.NewNonces(), Most: 1 << 10})
	}
	for range 5 {
		r := httptest.NewRequest("GET", "/v1/instances", nil)
		signed, err := keys.Sign(assertion.Assertion{Issuer: east.Home, Audience: west.Home, User: "anna",
			Project: "web",
			Roles:   []access.Role{access.Member}, Request: assertion.RequestDigest(r.Method, r.URL, r.Header, nil)})
		west.check(err)
		var passed atomic.Int32
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				r := httptest.NewRequest("GET", "/v1/instances", nil)
				signed.SetHeaders(r.Header)
				_, ok, err := servers[i%3].Authenticate(t.Context(), r)
				if ok {
					passed.Add(1)
				} else if !strings.Contains(err.Error(), "used before") {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if passed.Load() != 1 {
			t.Errorf("one assertion passed %d times", passed.Load())
		}
	}
	// every nonce has a lease
	raw, err := clientv3.New(clientv3.Config{Endpoints: []string{west.server.Endpoint()}})
	west.check(err)
	defer raw.Close()
	got, err := raw.Get(t.Context(), "/croft/"+string(west.Home)+"/assertions/", clientv3.WithPrefix())
	west.check(err)
	if len(got.Kvs) != 5 {
		t.Errorf("%d nonces are kept, want 5", len(got.Kvs))
	}
	for _, kv := range got.Kvs {
		if kv.Lease == 0 {
			t.Errorf("%s is kept for ever", kv.Key)
		}
	}
}

func TestARemovedPeerIsCutAtOnce(t *testing.T) {
	t.Parallel()
	east, west := install(t), install(t)
	east.signs("https://east.example:8781")
	west.meet(east, "east", access.Member)
	book := west.reads()
	patient.Until(t, "the peers are read", func() bool { _, err := book.Called("east"); return err == nil })
	_, err := west.Remove(t.Context(), "east")
	if croft.KindOf(err) != croft.Invalid {
		t.Errorf("removing the import of a peer that has none: %v", err)
	}
	_, err = west.RemovePeer(t.Context(), "east")
	west.check(err)
	patient.Until(t, "the peers are read", func() bool {
		_,
			err := book.Called("east")
		return croft.KindOf(err) == croft.NotFound
	})
}

// TestAPeerOutlivesItsImport removes the import, and then the peer.
func TestAPeerOutlivesItsImport(t *testing.T) {
	east, west := install(t), install(t)
	east.signs("https://east.example:8781")
	west.meet(east, "east", access.Member)
	_, _, err := west.take(east.export("east"), "")
	west.check(err)
	_, err = west.Remove(t.Context(), "east")
	west.check(err)
	if p, err := west.Find(t.Context(), "east"); err != nil || p.Peer == nil || p.Imported != nil {
		t.Errorf("without its import, the peer is %+v, %v", p, err)
	}
	if _, err := west.RemovePeer(t.Context(), "east"); err != nil {
		t.Error(err)
	}
	if _, err := west.Find(t.Context(), "east"); croft.KindOf(err) != croft.NotFound {
		t.Errorf("a partition that is neither imported nor a peer is still there: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestTheMappingsOfOtherPeersStay removes one of several peers.
func TestTheMappingsOfOtherPeersStay(t *testing.T) {
	t.Parallel()
	east, west, south := install(t), install(t), install(t)
	west.signs("https://west.example:8781")
	south.signs("https://south.example:8781")
	east.meet(west, "west", access.Member)
	east.meet(south, "south", access.Member)
	_, err := east.store.Projects.Create(t.Context(), tenant.Tenant{Name: "shop"})
	east.check(err)
	for _, peer := range []croft.PartitionID{"west", "south"} {
		_, err := east.Map(t.Context(), federation.Mapping{Project: "shop", Peer: peer, Theirs: "web",
			Role: access.Member})
		east.check(err)
	}
	_, err = east.RemovePeer(t.Context(), "west")
	east.check(err)
	if all, err := east.Mappings(t.Context(), ""); err != nil || len(all) != 1 || all[0].Alias != "south" {
		t.Errorf("mappings: %+v, %v, want the one of south", all, err)
	}
}

// TestAMappingIsPinnedOnce has many servers pin a mapping at once, each to the project that it has read.
func TestAMappingIsPinnedOnce(t *testing.T) {
	t.Parallel()
	east, west := install(t), install(t)
	west.signs("https://west.example:8781")
	east.meet(west, "west", access.Member)
	_, err := east.store.Projects.Create(t.Context(), tenant.Tenant{Name: "shop"})
	east.check(err)
	for range 10 {
		_, err := east.Map(t.Context(), federation.Mapping{Project: "shop", Peer: "west", Theirs: "web",
			Role: access.Member})
		east.check(err)
		all, err := east.store.Partitions.Mappings(t.Context())
		east.check(err)
		var pinned atomic.Int32
		var work sync.WaitGroup
		for range 8 {
			id := croft.ProjectID(uuid.NewString())
			work.Go(func() {
				switch err := east.store.Partitions.PinMapping(t.Context(), all[0], id); croft.KindOf(err) {
				case "":
					pinned.Add(1)
				case croft.Conflict:
				default:
					t.Error(err)
				}
			})
		}
		work.Wait()
		if n := pinned.Load(); n != 1 {
			t.Errorf("%d of 8 were pinned", n)
		}
		east.check(east.Unmap(t.Context(), federation.Mapping{Project: "shop", Peer: "west", Theirs: "web"}))
	}
}
