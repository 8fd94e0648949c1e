package clusters_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/registry"
	"croft/cluster/seal"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/tenant"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

func TestTheStoreKeepsTheContracts(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	open := func(t *testing.T) clustertest.Stores {
		s := etcdtest.Open(t, server)
		t.Cleanup(func() { wipe(t, server.Endpoint()) })
		return s.Clusters
	}
	clustertest.RunRecords(t, open)
	clustertest.RunCatalogue(t, open)
	clustertest.RunAccounts(t, open)
	etcdtest.CheckDump(t, server.Endpoint())
}

func raw(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// wipe removes all clusters, for the next test.
func wipe(t *testing.T, endpoint string) {
	ctx := context.WithoutCancel(t.Context())
	client := raw(t, endpoint)
	for _, key := range keysOf(t, client, "") {
		if _, err := client.Delete(ctx, key); err != nil {
			t.Error(err)
		}
	}
}

// keysOf lists the keys of clusters, except those of the given kinds.
func keysOf(t *testing.T, client *clientv3.Client, without ...string) (all []string) {
	t.Helper()
	got, err := client.Get(context.WithoutCancel(t.Context()), "/croft/", clientv3.WithPrefix(),
		clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, stored := range got.Kvs {
		key := string(stored.Key)
		_, inside, is := strings.Cut(key, "/clusters/")
		for _, kind := range without {
			is = is && (kind == "" || !strings.HasPrefix(inside, kind+"/"))
		}
		if is {
			all = append(all, key)
		}
	}
	return all
}

func start(t *testing.T) (*etcdstore.Store, *clientv3.Client) {
	server := etcdtest.Server(t)
	return etcdtest.Open(t, server), raw(t, server.Endpoint())
}

func used(t *testing.T, s *etcdstore.Store, p croft.Project) int64 {
	t.Helper()
	accounts, err := s.Projects.Accounts(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if bad, err := s.Projects.Check(t.Context()); err != nil || len(bad) > 0 {
		t.Errorf("the counters are wrong: %+v, %v", bad, err)
	}
	return accounts[0].Used[tenant.CountClusters]
}

func TestClustersCountForTheQuota(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	ctx := t.Context()
	for _, p := range []tenant.Tenant{{Name: "org", Limits: tenant.Limits{tenant.CountClusters: 2}},
		{Name: "dev", Parent: "org"}} {
		if _, err := s.Projects.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	var made []cluster.Cluster
	for n := range 3 {
		c := clustertest.NewCluster(fmt.Sprint("c", n))
		c.User = fmt.Sprint("user", n)
		c, err := s.Clusters.Create(ctx, c, 0)
		if n < 2 && err != nil {
			t.Fatal(err)
		}
		if refusal, _ := errors.AsType[*tenant.Refusal](err); n == 2 && (croft.KindOf(err) != croft.OverQuota ||
			refusal == nil || refusal.Project != "org") {
			t.Fatalf("the third: %v", err)
		}
		made = append(made, c)
	}
	if used(t, s, "org") != 2 || used(t, s, "dev") != 2 {
		t.Error("they are not counted")
	}
	etcdtest.WantKind(t, s.Projects.Remove(ctx, "dev"), croft.Conflict)
	for _, state := range []cluster.State{cluster.Failed, cluster.Deleted} {
		c := made[0]
		c.State = state
		c, err := s.Clusters.Update(ctx, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		made[0] = c
	}
	if n := used(t, s, "dev"); n != 1 {
		t.Errorf("after one was deleted, %d are counted", n)
	}
	made[0].Step = "a tombstone is written again"
	again, err := s.Clusters.Update(ctx, made[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Clusters.Forget(ctx, again.ID); err != nil {
		t.Fatal(err)
	}
	again.Revised = 0
	again.State = cluster.Scheduling // its ID is reused
	if again, err = s.Clusters.Create(ctx, again, 0); err != nil {
		t.Fatal(err)
	}
	if n := used(t, s, "dev"); n != 2 {
		t.Errorf("%d are counted", n)
	}
	for _, c := range []cluster.Cluster{again, made[1]} {
		c.State = cluster.Deleted
		if _, err := s.Clusters.Update(ctx, c, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := used(t, s, "dev"); n != 0 {
		t.Errorf("%d are counted", n)
	}
	if err := s.Projects.Remove(ctx, "dev"); err != nil {
		t.Error(err)
	}
}

func TestAProjectStaysWhileItHasCredentialsOrAppliances(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	ctx := t.Context()
	_, k := clustertest.Furnish(t, s.Clusters)
	_, err := s.Projects.Create(ctx, tenant.Tenant{Name: "dev"})
	if err != nil {
		t.Fatal(err)
	}
	etcdtest.WantKind(t, s.Projects.Remove(ctx, "dev"), croft.Conflict)
	if _, err := s.Clusters.PutAppliance(ctx, cluster.Appliance{Name: "own", Project: "dev"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Clusters.RemoveCredential(ctx, k.ID); err != nil {
		t.Fatal(err)
	}
	etcdtest.WantKind(t, s.Projects.Remove(ctx, "dev"), croft.Conflict)
	if err := s.Clusters.RemoveAppliance(ctx, "own"); err != nil {
		t.Fatal(err)
	}
	if err := s.Projects.Remove(ctx, "dev"); err != nil {
		t.Error(err)
	}
}

// TestNothingIsLeft runs a cluster from its creation to its removal, after which etcd has none of its keys.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	s, client := start(t)
	ctx := t.Context()
	i, k := clustertest.Furnish(t, s.Clusters)
	c := clustertest.NewCluster("one")
	c.User, c.Site, c.Credential, c.Implementation = "a/b ü", "sim", k.ID, i.ID
	c, err := s.Clusters.Create(ctx, c, 0)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Clusters.Hold(ctx, c.ID)
	err = errors.Join(err, s.Clusters.AddAccount(ctx, cluster.Account{Cluster: c.ID, User: "x/y"}),
		s.Clusters.Note(ctx, c, cluster.Event{Message: "here"}))
	if err != nil {
		t.Fatal(err)
	}
	c.Name, c.State = "renamed", cluster.Ready
	if c, err = s.Clusters.Update(ctx, c, h); err != nil {
		t.Fatal(err)
	}
	c.State = cluster.Deleted
	if c, err = s.Clusters.Update(ctx, c, h); err != nil {
		t.Fatal(err)
	}
	for _, key := range keysOf(t, client, "records", "events", "holders", "sites", "credentials", "appliances",
		"implementations", "implemented", "revisions", "owned/dev/credentials") {
		t.Errorf("after its end there is %s", key)
	}
	if err := s.Clusters.Forget(ctx, c.ID); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(s.Clusters.RemoveImplementation(ctx, i.ID), s.Clusters.RemoveCredential(ctx, k.ID),
		s.Clusters.RemoveSite(ctx, "sim"), s.Clusters.RemoveAppliance(ctx, "slurm"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keysOf(t, client, "") {
		t.Errorf("in the end there is %s", key)
	}
}

// TestOfRemovalsAtOnceOneRemoves: of several concurrent removals one succeeds, so that the usage is reduced only once.
func TestOfRemovalsAtOnceOneRemoves(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	for range 5 {
		if _, err := s.Clusters.PutImage(t.Context(), cluster.SiteImage{Name: "debian"}); err != nil {
			t.Fatal(err)
		}
		var removed atomic.Int32
		var work sync.WaitGroup
		for range 8 {
			work.Go(func() {
				switch err := s.Clusters.RemoveImage(t.Context(), "debian"); croft.KindOf(err) {
				case "":
					removed.Add(1)
				case croft.NotFound:
				default:
					t.Error(err)
				}
			})
		}
		work.Wait()
		if n := removed.Load(); n != 1 {
			t.Errorf("%d of 8 removed the image", n)
		}
	}
}

// site accepts every credential.
type site struct{ cluster.Driver }

func (site) Probe(context.Context, cluster.SiteAccess) (cluster.Probe, error) {
	return cluster.Probe{Accepted: true}, nil
}

func TestSecretsInEtcdAreSealed(t *testing.T) {
	t.Parallel()
	server, key := etcdtest.Server(t), filepath.Join(t.TempDir(), "key")
	s := etcdtest.Open(t, server)
	_, err := seal.Generate(key)
	vault, err2 := seal.Load(key)
	r, err3 := registry.New(registry.Config{Backends: cluster.Backends{Partition: s.Partition(),
		Catalogue: s.Clusters, Vault: vault,
		Drivers: map[cluster.SiteType]cluster.Driver{cluster.Sim: site{}}}})
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Sites().Create(t.Context(), cluster.Site{Name: "sim", Type: cluster.Sim}); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"sixteen letters and more", "and another secret, rotated in"} {
		etcdtest.Issued(secret)
		plain := cluster.NewSecret(secret)
		n := cluster.NewCredential{Plain: plain, Credential: cluster.Credential{Name: "mine", Project: "dev",
			User: "ann", Site: "sim", Username: "annie", ProjectName: "hpc"}}
		// the second credential
		if _, err = r.Credentials().Create(t.Context(), n); croft.KindOf(err) == croft.Conflict {
			change := cluster.CredentialChange{Plain: &plain}
			_, err = r.Credentials().Change(t.Context(), "dev", "ann", "mine", change, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := s.Clusters.Credentials(t.Context(), "dev", "ann")
	if err != nil || len(c) != 1 {
		t.Fatalf("got %d, %v", len(c), err)
	}
	got, err := vault.Open(c[0].Secret, cluster.AboutCredential(s.Partition(), c[0]))
	if err != nil || got.Reveal() != "and another secret, rotated in" {
		t.Errorf("it opens as %q, %v", got.Reveal(), err)
	}
	etcdtest.CheckDump(t, server.Endpoint())
}

// TestACloudOfTheVersionBeforeHasNoClusters uses a schema version that programs of the previous version know.
func TestACloudOfTheVersionBeforeHasNoClusters(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	ctx := t.Context()
	if err := etcdtest.PutHome(ctx, server.Endpoint(), croft.NewPartitionID(), "1.6"); err != nil {
		t.Fatal(err)
	}
	s, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{server.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Clusters.PutSite(ctx, cluster.Site{Name: "one", Type: cluster.Sim})
	_, err2 := s.Clusters.Create(ctx, clustertest.NewCluster("one"), 0)
	for _, err := range []error{err, err2} {
		etcdtest.WantKind(t, err, croft.Invalid)
		etcdtest.WantSays(t, err.Error(), "upgrade the cloud")
	}
	if all, err := s.Clusters.List(ctx, ""); err != nil || len(all) != 0 {
		t.Errorf("there are %d clusters, %v", len(all), err)
	}
}

// TestAHoldEndsWithItsProcess closes the connection that holds a cluster.
func TestAHoldEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s := etcdtest.Open(t, server)
	ctx := t.Context()
	c, err := s.Clusters.Create(ctx, clustertest.NewCluster("one"), 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{server.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := other.Clusters.Hold(ctx, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Clusters.Hold(ctx, c.ID)
	etcdtest.WantKind(t, err, croft.Conflict)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Clusters.Hold(ctx, c.ID); err != nil {
		t.Error(err)
	}
	_, err = s.Clusters.Update(ctx, c, h)
	etcdtest.WantKind(t, err, croft.Conflict)
}

// TestAHoldWhoseAnswerWasLostIsTakenOver loses a release.
func TestAHoldWhoseAnswerWasLostIsTakenOver(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s, other := etcdtest.Open(t, server), etcdtest.Open(t, server)
	ctx := t.Context()
	c, err := s.Clusters.Create(ctx, clustertest.NewCluster("one"), 0)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Clusters.Hold(ctx, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Clusters.Release(gone, h); err == nil {
		t.Fatal("the release was done")
	}
	_, err = other.Clusters.Hold(ctx, c.ID)
	etcdtest.WantKind(t, err, croft.Conflict)
	again, err := s.Clusters.Hold(ctx, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Clusters.Hold(ctx, c.ID)
	etcdtest.WantKind(t, err, croft.Conflict)
	if _, err := s.Clusters.Update(ctx, c, again); err != nil {
		t.Error(err)
	}
}

func TestARecordThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	c := clustertest.NewCluster("one")
	c.Outputs = map[string]any{"log": strings.Repeat("x", 1<<20)}
	_, err := s.Clusters.Create(t.Context(), c, 0)
	etcdtest.WantKind(t, err, croft.Invalid)
	etcdtest.WantSays(t, err.Error(), "outputs")
	for name, bad := range map[string]func(*cluster.Cluster){
		"a name with a slash":       func(c *cluster.Cluster) { c.Name = "a/b" },
		"a project with a slash":    func(c *cluster.Cluster) { c.Project = "a/b" },
		"an appliance with a slash": func(c *cluster.Cluster) { c.Appliance = "a/b" },
		"an ID that is none":        func(c *cluster.Cluster) { c.ID = "x/y" },
	} {
		c := clustertest.NewCluster("one")
		bad(&c)
		if _, err := s.Clusters.Create(t.Context(), c, 0); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	all, err := s.Clusters.List(t.Context(), "")
	if diff := cmp.Diff([]cluster.Cluster{}, all); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
}
