package etcdstore_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/freeport"
	"croft/internal/testing/patient"
)

// members returns the members of etcd. On a busy machine they may be electing a leader.
func members(t *testing.T, store *etcdstore.Store) (all []croft.EtcdMember) {
	t.Helper()
	patiently(t, "the members can be read", func() (err error) {
		all, err = store.Cluster.EtcdMembers(t.Context())
		return err
	})
	return all
}

// mustCreate creates an instance, also while a leader is being elected. Then the answer may be lost.
func mustCreate(t *testing.T, store *etcdstore.Store, name string) {
	t.Helper()
	lost := false
	patiently(t, "instance "+name+" is created", func() error {
		_, err := store.Instances.Create(t.Context(), etcdtest.NewInstance(name))
		if lost && croft.KindOf(err) == croft.Conflict {
			return nil
		}
		lost = lost || err != nil
		return err
	})
}

// mustRemove removes a member, also while a leader is being elected. Then the answer may be lost.
func mustRemove(t *testing.T, store *etcdstore.Store, host croft.HostID) {
	t.Helper()
	lost := false
	patiently(t, "a member is removed", func() error {
		err := store.Cluster.RemoveEtcdMember(t.Context(), host)
		if lost && croft.KindOf(err) == croft.NotFound {
			return nil
		}
		lost = lost || err != nil
		return err
	})
}

// mayNotRemove fails the test unless a member may not be removed, and returns why.
func mayNotRemove(t *testing.T, store *etcdstore.Store, host croft.HostID) (why error) {
	t.Helper()
	var removal error
	patient.Until(t, "etcd answers whether a member may be removed", func() bool {
		why = store.Cluster.MayRemoveEtcdMember(t.Context(), host)
		removal = store.Cluster.RemoveEtcdMember(t.Context(), host)
		return croft.KindOf(why) != croft.Unavailable && croft.KindOf(removal) != croft.Unavailable
	})
	etcdtest.WantKind(t, why, croft.Conflict)
	etcdtest.WantKind(t, removal, croft.Conflict)
	return why
}

// patiently repeats do until etcd answers. Any other error fails the test.
func patiently(t *testing.T, what string, do func() error) {
	t.Helper()
	patient.Until(t, what, func() bool {
		err := do()
		if err != nil && croft.KindOf(err) != croft.Unavailable {
			t.Fatal(err)
		}
		return err == nil
	})
}

func TestAServerJoinsStopsAndLeaves(t *testing.T) {
	t.Parallel() // mostly waits until etcd accepts a new member
	c := etcdtest.StartCluster(t, 1)
	first := c.Open(t, 0)
	roles := func(want ...croft.MemberRole) {
		t.Helper()
		got := []croft.MemberRole{}
		for _, m := range members(t, first) {
			got = append(got, m.Role)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the members are %q, want %q", got, want)
		}
	}
	roles(croft.MemberLeads)
	mayNotRemove(t, first, c.Members[0].Host)
	c.Join(t)
	c.Join(t)
	roles(croft.MemberLeads, croft.MemberFollows, croft.MemberFollows)

	// With one member down, everything continues, and no other member may be removed.
	mustCreate(t, c.Open(t, 1), "before")
	c.Stop(t, 2)
	roles(croft.MemberLeads, croft.MemberFollows, croft.MemberSilent)
	mustCreate(t, first, "during")
	err := mayNotRemove(t, first, c.Members[1].Host)
	etcdtest.WantSays(t, fmt.Sprint(err), "1 of 2 members would answer, and 2 have to", c.Members[2].Clients[0])
	// If it returns with its data, one member may be removed; a member that is down may be removed immediately.
	c.Start(t, 2)
	roles(croft.MemberLeads, croft.MemberFollows, croft.MemberFollows)
	mustRemove(t, first, c.Members[1].Host)
	etcdtest.WantKind(t, c.Servers[1].Wait(t.Context()), croft.NotFound)
	roles(croft.MemberLeads, croft.MemberFollows)
	mustCreate(t, first, "after")
}

// The others elect another leader before they can remove the record of the old one's services.
func TestTheLeaderIsTakenOut(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	all := members(t, c.Open(t, 0))
	leader := all[slices.IndexFunc(all, func(m croft.EtcdMember) bool { return m.Role == croft.MemberLeads })]
	through := slices.IndexFunc(c.Members, func(m croft.EtcdMember) bool { return m.Host == leader.Host })
	store := c.Open(t, through)
	mustRemove(t, store, leader.Host)
	left := members(t, store)
	if len(left) != 2 || slices.ContainsFunc(left, func(m croft.EtcdMember) bool { return m.Host == leader.Host }) {
		t.Errorf("left: %+v", left)
	}
}

func TestADeadMemberMakesRoom(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	store := c.Open(t, 0)
	c.Stop(t, 2)
	c.Lose(t, 2) // it returns without its data
	c.Start(t, 2)
	for _, m := range members(t, store) {
		if m.Role != croft.MemberLeads && m.Role != croft.MemberFollows {
			t.Errorf("%s is %s", m.Name, m.Role)
		}
	}
	mustCreate(t, c.Open(t, 2), "through-the-new-one")
	c.Stop(t, 1)
	mustRemove(t, store, c.Members[1].Host)
	if left := members(t, store); len(left) != 2 {
		t.Errorf("left: %+v", left)
	}
}

// An interrupted join has no effect: its member does not vote, a second attempt resumes it, and it may be removed at
// any time.
func TestAJoinThatDiesCostsNothing(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 1)
	store := c.Open(t, 0)
	m := c.NewMember(t)
	cluster := etcdtest.Must(store.Cluster.AddEtcdMember(t.Context(), m))(t)
	mustCreate(t, store, "meanwhile")
	all := members(t, store)
	if i := slices.IndexFunc(all, func(o croft.EtcdMember) bool {
		return o.Host == m.Host
	}); i < 0 || all[i].Role != croft.MemberLearns {
		t.Errorf("the members are %+v, want one that learns", all)
	}
	if again := etcdtest.Must(store.Cluster.AddEtcdMember(t.Context(), m))(t); again != cluster {
		t.Errorf("the second try got %q, the first %q", again, cluster)
	}
	mustRemove(t, store, m.Host)
	if left := members(t, store); len(left) != 1 {
		t.Errorf("left: %+v", left)
	}
	if err := store.Cluster.RemoveEtcdMember(t.Context(), m.Host); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// Only one member joins at a time; another waits for it.
func TestJoinsWaitForEachOther(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 1)
	store := c.Open(t, 0)
	one, two := c.NewMember(t), c.NewMember(t)
	etcdtest.Must(store.Cluster.AddEtcdMember(t.Context(), one))(t)
	var err error
	for patience := time.Second; patience < time.Minute; patience *= 2 { // the first answer may be slow
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err = store.Cluster.AddEtcdMember(ctx, two)
		cancel()
		if !strings.Contains(fmt.Sprint(err), "does not answer") {
			break
		}
	}
	etcdtest.WantKind(t, err, croft.Unavailable)
	etcdtest.WantSays(t, fmt.Sprint(err), "another host joins and has not finished", "croft host list")
}

func TestAClusterThatNobodyReachesTakesNone(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t) // its peer port is on loopback only
	store := etcdtest.Open(t, server)
	_, err := store.Cluster.AddEtcdMember(t.Context(), croft.EtcdMember{Host: croft.NewHostID(),
		Peer: "http://127.0.0.1:2380"})
	etcdtest.WantKind(t, err, croft.Invalid)
	etcdtest.WantSays(t, fmt.Sprint(err), "has no address for other members", "etcd.listen")
}

// A single server can later get a peer address that others reach.
func TestAServerGetsAPeerAddressLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	alone, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: dir, Listen: "127.0.0.1:0",
		Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, etcdtest.Open(t, alone), "web")
	alone.Close()
	host, peer := croft.NewHostID(), freeport.For(t, "127.0.0.1")
	found, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: dir, Listen: "127.0.0.1:0",
		Unsynced: true, Host: host, Peer: peer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(found.Close)
	conn, err := net.Dial("tcp", peer)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	store := etcdtest.Open(t, found)
	if _, err := store.Cluster.AddEtcdMember(t.Context(), croft.EtcdMember{Host: croft.NewHostID(),
		Peer: "http://" + freeport.For(t, "127.0.0.1")}); err != nil {
		t.Error(err)
	}
	if all := etcdtest.Must(store.Instances.List(t.Context(), ""))(t); len(all) != 1 {
		t.Errorf("instances: %v", all)
	}
}
