package tenants_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/schedule"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// stored returns the amounts that a project stores.
func stored(t *testing.T, s *etcdstore.Store, p croft.Project) tenant.Amounts {
	t.Helper()
	return etcdtest.Must(s.Projects.Accounts(t.Context(), p))(t)[0].Stored
}

func newKey(p croft.Project, name string) schedule.Key {
	return schedule.Key{Project: p, Name: name, Line: "ssh-ed25519 AAAA " + name}
}

// countsAreRight fails the test unless the counters equal the sums over the records now.
func countsAreRight(t *testing.T, s *etcdstore.Store) {
	t.Helper()
	if found := etcdtest.Must(s.Projects.Check(t.Context()))(t); len(found) > 0 {
		t.Errorf("counted wrongly: %+v", found)
	}
}

// wantRefusal fails the test unless an error refuses more of a measure because of the limit of a project.
func wantRefusal(t *testing.T, err error, m tenant.Measure, by croft.Project) {
	t.Helper()
	refusal, is := errors.AsType[*tenant.Refusal](err)
	if croft.KindOf(err) != croft.OverQuota || !is || refusal.Measure != m || refusal.Project != by {
		t.Errorf("got %v, want a refusal of %s by %s", err, m, by)
	}
}

func TestAProjectWithoutLimitsStoresABoundedNumberOfRecords(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	newProject(t, s, "evil", "", nil)
	for i := range 101 {
		_, err := s.Projects.Create(t.Context(), tenant.Tenant{Name: croft.Project(fmt.Sprint("f", i)), Parent: "evil"})
		switch {
		case i < 100 && err != nil:
			t.Fatal(err)
		case i == 100:
			wantRefusal(t, err, tenant.CountProjects, "evil")
		}
	}
	countsAreRight(t, s)
}

func TestMembersOfProjectsBelowCountForTheProjectAbove(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	newProject(t, s, "org", "", tenant.Limits{tenant.CountMembers: 3})
	dev := newProject(t, s, "dev", "org", nil)
	dev.Members = map[string]access.Role{"ann": access.Reader, "bob": access.Reader, "cyd": access.Reader}
	dev = etcdtest.Must(s.Projects.Change(t.Context(), dev))(t)
	dev.Members["dan"] = access.Reader
	_, err := s.Projects.Change(t.Context(), dev)
	wantRefusal(t, err, tenant.CountMembers, "org")
	dev.Members = nil
	etcdtest.Must(s.Projects.Change(t.Context(), dev))(t)
	if n := stored(t, s, "org")[tenant.CountMembers]; n != 0 {
		t.Errorf("%d members are counted after all left", n)
	}
	countsHold(t, s)
	if err := s.Projects.Remove(t.Context(), "dev"); err != nil {
		t.Fatal(err)
	}
	if left := stored(t, s, "org"); len(left) > 0 {
		t.Errorf("a removed project leaves %s", left)
	}
}

func TestKeysAreLimitedWhoeverAddsThemAtOnce(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	stores := []*etcdstore.Store{etcdtest.Open(t, server), etcdtest.Open(t, server)}
	s := stores[0]
	newProject(t, s, "org", "", tenant.Limits{tenant.CountKeys: 5})
	newProject(t, s, "dev", "org", nil)
	var made atomic.Int64
	var work sync.WaitGroup
	for i := range 12 {
		work.Go(func() {
			err := stores[i%2].SSHKeys.AddKey(t.Context(), newKey("dev", fmt.Sprint("k", i)))
			if err == nil {
				made.Add(1)
			} else {
				wantRefusal(t, err, tenant.CountKeys, "org")
			}
		})
	}
	work.Wait()
	if made.Load() != 5 {
		t.Errorf("%d keys are stored, want 5", made.Load())
	}
	countsHold(t, s)
	all := etcdtest.Must(s.SSHKeys.ListKeys(t.Context(), "dev"))(t)
	if err := s.SSHKeys.RemoveKey(t.Context(), "dev", all[0].Name); err != nil {
		t.Fatal(err)
	}
	if err := s.SSHKeys.AddKey(t.Context(), newKey("dev", "late")); err != nil {
		t.Errorf("the place of a removed key is not free: %v", err)
	}
	countsHold(t, s)
	if err := s.Projects.Remove(t.Context(), "dev"); err != nil {
		t.Fatal(err)
	}
	if n := stored(t, s, "org")[tenant.CountKeys]; n != 0 {
		t.Errorf("%d keys of a removed project are counted", n)
	}
}

func TestBytesOfImplementationsAreLimited(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	newProject(t, s, "org", "", tenant.Limits{tenant.StoredBytes: 20_000})
	etcdtest.Must(s.Clusters.PutSite(t.Context(), cluster.Site{Name: "local", Type: "local"}))(t)
	a := etcdtest.Must(s.Clusters.PutAppliance(t.Context(), cluster.Appliance{Name: "lab", Project: "org"}))(t)
	add := func() (cluster.Implementation, error) {
		return s.Clusters.AddImplementation(t.Context(), cluster.Implementation{ID: cluster.NewImplementationID(),
			Appliance: "lab", Site: "local", Template: strings.Repeat("x", 15_000)})
	}
	first := etcdtest.Must(add())(t)
	_, err := add()
	wantRefusal(t, err, tenant.StoredBytes, "org")
	countsHold(t, s)
	if _, err := s.Clusters.EnableImplementation(t.Context(), first.ID, false); err != nil {
		t.Fatal(err)
	}
	countsHold(t, s)
	if err := s.Clusters.RemoveImplementation(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	a.Description = "for the lab"
	etcdtest.Must(s.Clusters.PutAppliance(t.Context(), a))(t)
	countsHold(t, s)
	etcdtest.Must(add())(t)
	countsHold(t, s)
}

func TestCredentialsAreCounted(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	newProject(t, s, "org", "", tenant.Limits{tenant.CountCredentials: 1})
	etcdtest.Must(s.Clusters.PutSite(t.Context(), cluster.Site{Name: "cloud", Type: "openstack"}))(t)
	put := func(name string) (cluster.Credential, error) {
		return s.Clusters.PutCredential(t.Context(), cluster.Credential{ID: cluster.NewCredentialID(), Name: name,
			Project: "org", User: "ann", Site: "cloud"})
	}
	first := etcdtest.Must(put("a"))(t)
	_, err := put("b")
	wantRefusal(t, err, tenant.CountCredentials, "org")
	first.Name = "c"
	etcdtest.Must(s.Clusters.PutCredential(t.Context(), first))(t)
	countsHold(t, s)
	if err := s.Clusters.RemoveCredential(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	if left := stored(t, s, "org"); len(left) > 0 {
		t.Errorf("a removed credential leaves %s", left)
	}
}

func TestPropertiesOfImagesAreCounted(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	newProject(t, s, "org", "", tenant.Limits{tenant.CountDescribed: 1})
	tag := func(id string, tags ...string) error {
		ref := objects.Ref{Kind: objects.Image, Project: "org", ID: id}
		before, err := s.Objects.Read(t.Context(), access.Everything(), ref)
		if err != nil {
			return err
		}
		_, err = s.Objects.Write(t.Context(), before, objects.Object{Ref: ref, Tags: tags})
		return err
	}
	for _, tags := range [][]string{{"old"}, {"old", "older"}} {
		if err := tag("one", tags...); err != nil {
			t.Fatal(err)
		}
	}
	countsHold(t, s)
	wantRefusal(t, tag("two", "old"), tenant.CountDescribed, "org")
	if err := tag("one"); err != nil {
		t.Fatal(err)
	}
	if left := stored(t, s, "org"); len(left) > 0 {
		t.Errorf("an image without properties leaves %s", left)
	}
}

// A program of an earlier version stores keys without counting them.
func TestWhatAnEarlierVersionStoredCounts(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s := etcdtest.Open(t, server)
	newProject(t, s, "org", "", tenant.Limits{tenant.CountKeys: 1})
	old := newKey("org", "old")
	old.Added = time.Now().UTC()
	write := func(k schedule.Key) {
		t.Helper()
		text := string(etcdtest.Must(json.Marshal(k))(t))
		err := etcdtest.Put(t.Context(), server.Endpoint(), s.Partition(), "keys/org/"+k.Name, text)
		if err != nil {
			t.Fatal(err)
		}
	}
	write(old)
	wantRefusal(t, s.SSHKeys.AddKey(t.Context(), newKey("org", "new")), tenant.CountKeys, "org")
	write(newKey("org", "older")) // the counter does not include it
	found := etcdtest.Must(s.Projects.Check(t.Context()))(t)
	if len(found) != 1 || found[0].Counted[tenant.CountKeys] != 1 || found[0].Records[tenant.CountKeys] != 2 {
		t.Errorf("the check finds %+v", found)
	}
	if err := s.Projects.Recount(t.Context(), "org"); err != nil {
		t.Fatal(err)
	}
	if n := stored(t, s, "org")[tenant.CountKeys]; n != 2 {
		t.Errorf("%d keys are counted, want 2", n)
	}
	countsAreRight(t, s)
}
