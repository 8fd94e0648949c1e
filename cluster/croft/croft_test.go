package croft_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	elsewhere "croft/cluster/croft"
	"croft/cluster/manager"
	"croft/cluster/requests"
	"croft/cluster/seal"
	"croft/cluster/sim"
	"croft/control/api"
	"croft/internal/testing/patient"
)

func TestMain(m *testing.M) {
	patient.SideBySide(8)
	goleak.VerifyTestMain(m)
}

// other is the other cloud, with one site in memory.
type other struct {
	*requests.Service
	site *sim.Site

	away, hangs, denied bool
}

func newOther(t *testing.T) *other {
	t.Helper()
	store, site, partition := clustertest.NewStore(), sim.New(), croft.NewPartitionID()
	drivers := map[cluster.SiteType]cluster.Driver{cluster.Sim: site}
	site.Change("there", func(f *sim.Faults) { f.Delay = 20 * time.Millisecond })
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := filepath.Join(t.TempDir(), "key")
	must(seal.Generate(key))
	vault, err := seal.Load(key)
	must(nil, err)
	mine := cluster.Credential{ID: cluster.NewCredentialID(), Name: "mine", Project: "physics", User: "ada",
		Site: "there", Kind: cluster.Password}
	mine.Secret, err = vault.Seal(cluster.NewSecret("sesame"), cluster.AboutCredential(partition, mine))
	must(nil, err)
	must(store.PutSite(ctx, cluster.Site{Name: "there", Type: cluster.Sim, Enabled: true}))
	must(store.PutCredential(ctx, mine))
	must(store.PutAppliance(ctx, cluster.Appliance{Name: "hosts", Public: true}))
	must(store.AddImplementation(ctx, cluster.Implementation{ID: cluster.NewImplementationID(), Appliance: "hosts",
		Site: "there", Enabled: true, Template: "outputs: {port: 22}"}))
	asks, err := requests.New(requests.Config{Backends: cluster.Backends{Partition: partition,
		Records: store, Catalogue: store, Accounts: store, Drivers: drivers, Vault: vault,
		Log: slog.New(slog.DiscardHandler)}})
	must(nil, err)
	works, err := manager.New(manager.Config{Backends: cluster.Backends{Partition: partition,
		Records: store, Catalogue: store, Drivers: drivers, Vault: vault,
		Log: slog.New(slog.DiscardHandler)}})
	must(nil, err)
	running, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- works.Run(running) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &other{Service: asks, site: site}
}

// connect returns a connection to the other cloud, subject to its faults.
func (o *other) connect(cluster.SiteAccess) (elsewhere.Peer, error) {
	return elsewhere.Peer{Clusters: faulty{served{o.Service}, o}, Close: func() error { return nil },
		Version: func(ctx context.Context) (string, error) { return "1", o.fault(ctx) }}, nil
}

func (o *other) fault(ctx context.Context) error {
	switch {
	case o.hangs:
		<-ctx.Done()
		return croft.Errorf(croft.Unavailable, "it does not answer: %w", ctx.Err())
	case o.away:
		return croft.Errorf(croft.Unavailable, "connection refused")
	case o.denied:
		return croft.Errorf(croft.Denied, "the token is not valid")
	}
	return nil
}

// served calls the service of the other cloud as its API does.
type served struct{ s *requests.Service }

func (v served) CreateCluster(ctx context.Context, in api.NewCluster) (api.Cluster, error) {
	made, err := v.s.Create(ctx, cluster.Request{Spec: in.Spec, Project: in.Project, User: user})
	return api.ClusterOf(made.Cluster), err
}

func (v served) ExplainCluster(ctx context.Context, in api.ClusterCandidates) (cluster.Explanation, error) {
	return v.s.Explain(ctx, cluster.Request{Spec: in.Spec, Project: in.Project, User: user})
}

func (v served) GetCluster(ctx context.Context, in api.ClusterAwaited) (api.Cluster, error) {
	c, err := v.s.Find(ctx, in.Project, in.ID)
	return api.ClusterOf(c), err
}

func (v served) ListClusters(ctx context.Context, in api.ClusterFilter, _ ...api.Listing) (
	list api.ClusterList, err error) {
	all, err := v.s.List(ctx, in.Project, cluster.Filter{})
	for _, c := range all {
		list.Clusters = append(list.Clusters, api.ClusterOf(c))
	}
	return list, err
}

func (v served) ChangeCluster(ctx context.Context, in api.ClusterChange) (api.Cluster, error) {
	c, err := v.s.Change(ctx, in.Project, in.ID, in.Change, nil)
	return api.ClusterOf(c), err
}

func (v served) RemoveClusterHost(ctx context.Context, in api.ClusterHostNamed) (api.Cluster, error) {
	c, err := v.s.RemoveHost(ctx, in.Project, in.ID, in.Host)
	return api.ClusterOf(c), err
}

func (v served) DeleteCluster(ctx context.Context, in api.ClusterRemoval) (api.Cluster, error) {
	c, err := v.s.Delete(ctx, in.Project, in.ID, cluster.Removal{User: user, Force: in.Force})
	return api.ClusterOf(c), err
}

// user is the user of the token in the other cloud.
const user = "ada"

type faulty struct {
	elsewhere.Clusters
	o *other
}

func (f faulty) CreateCluster(ctx context.Context, in api.NewCluster) (api.Cluster, error) {
	if err := f.o.fault(ctx); err != nil {
		return api.Cluster{}, err
	}
	return f.Clusters.CreateCluster(ctx, in)
}

func (f faulty) ChangeCluster(ctx context.Context, in api.ClusterChange) (api.Cluster, error) {
	if err := f.o.fault(ctx); err != nil {
		return api.Cluster{}, err
	}
	return f.Clusters.ChangeCluster(ctx, in)
}

func (f faulty) ExplainCluster(ctx context.Context, in api.ClusterCandidates) (cluster.Explanation, error) {
	if err := f.o.fault(ctx); err != nil {
		return cluster.Explanation{}, err
	}
	return f.Clusters.ExplainCluster(ctx, in)
}

func (f faulty) GetCluster(ctx context.Context, in api.ClusterAwaited) (api.Cluster, error) {
	if err := f.o.fault(ctx); err != nil {
		return api.Cluster{}, err
	}
	return f.Clusters.GetCluster(ctx, in)
}

func (f faulty) ListClusters(ctx context.Context, in api.ClusterFilter, _ ...api.Listing) (api.ClusterList, error) {
	if err := f.o.fault(ctx); err != nil {
		return api.ClusterList{}, err
	}
	return f.Clusters.ListClusters(ctx, in)
}

func (f faulty) DeleteCluster(ctx context.Context, in api.ClusterRemoval) (api.Cluster, error) {
	if err := f.o.fault(ctx); err != nil {
		return api.Cluster{}, err
	}
	return f.Clusters.DeleteCluster(ctx, in)
}

const text = "appliance: hosts\nremove_named: true\n"

func TestTheContract(t *testing.T) {
	clustertest.RunDriver(t, func(t *testing.T) clustertest.Harness {
		t.Parallel() // the other cloud's manager looks at its site only every two seconds
		o := newOther(t)
		change := func(set func(f *sim.Faults, on bool)) func(bool) {
			return func(on bool) { o.site.Change("there", func(f *sim.Faults) { set(f, on) }) }
		}
		return clustertest.Harness{
			Driver: func(*testing.T) cluster.Driver { return elsewhere.New(o.connect) },
			At: cluster.SiteAccess{Site: cluster.Site{Name: "friend", Type: cluster.Croft, Enabled: true},
				Credential: cluster.Credential{ID: cluster.NewCredentialID(), Site: "friend", Kind: cluster.Token,
					ProjectName: "physics"}},
			Implementation: cluster.Implementation{Site: "friend", Template: text},
			Bad:            cluster.Implementation{Site: "friend", Template: "applianze: hosts"},

			Freeze: change(func(f *sim.Faults, on bool) { f.Frozen = on }),
			Fail: change(func(f *sim.Faults, on bool) {
				if f.Fails = ""; on {
					f.Fails = "it is told to"
				}
			}),
			Fill: change(func(f *sim.Faults, on bool) {
				if f.Room = 0; on {
					f.Room = 1
				}
			}),
			Cut:  func(on bool) { o.away = on },
			Hang: func(on bool) { o.hangs = on },
			Deny: func(on bool) { o.denied = on },
		}
	})
}

func TestTextsOfImplementations(t *testing.T) {
	t.Parallel()
	d := elsewhere.New(nil)
	for _, c := range []struct{ name, text, want string }{
		{"an appliance is enough", "appliance: slurm", ""},
		{"a text without an appliance is refused", "sites: [a]", "is not a name for an appliance"},
		{"an unknown key is refused", "appliance: slurm\nsize: 3", "field size not found"},
		{"an unknown type of a parameter is refused", "appliance: slurm\nparameters: {a: {type: int}}", "use one of"},
		{"no text is refused", "", "names an appliance of the other cloud"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := d.Check(t.Context(), cluster.Implementation{Template: c.text})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
				croft.KindOf(err) != croft.Invalid) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestALostRequestIsSettledByMakingItAgain(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	d := elsewhere.New(o.connect)
	at := cluster.SiteAccess{Site: cluster.Site{Name: "friend"}, Credential: cluster.Credential{ProjectName: "physics"}}
	b := cluster.Build{Partition: croft.NewPartitionID(), Cluster: croft.NewClusterID(), User: "ada",
		Implementation: cluster.Implementation{Template: text}, Remote: cluster.Remote{Name: "croft-x", Asked: true}}
	if err := d.Destroy(t.Context(), at, b); err != nil {
		t.Fatal(err)
	}
	// The lost request arrives after all.
	if remote, err := d.Launch(t.Context(), at, b); err == nil {
		seen, err := d.Observe(t.Context(), at, []cluster.Build{b})
		if phase := seen[b.Cluster].Phase; err != nil || phase != cluster.Removing && phase != cluster.Absent {
			t.Errorf("a request that came late made %+v, which is %s, %v", remote, phase, err)
		}
	}
}

func TestWhoAskedMayLogInThereToo(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	d := elsewhere.New(o.connect)
	at := cluster.SiteAccess{Site: cluster.Site{Name: "friend"}, Credential: cluster.Credential{ProjectName: "physics"}}
	i := cluster.Implementation{Template: text}
	contract, err := d.Check(t.Context(), i)
	if err != nil {
		t.Fatal(err)
	}
	b := cluster.Build{Partition: croft.NewPartitionID(), Cluster: croft.NewClusterID(), User: "ada", Implementation: i,
		Remote: cluster.Remote{Name: "croft-x", Asked: true}}
	keys := []string{"ssh-ed25519 AAAA ada"}
	if b.Parameters, _, err = cluster.Fill(contract, cluster.Filling{Cluster: b.Cluster, Keys: keys}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Launch(t.Context(), at, b); err != nil {
		t.Fatal(err)
	}
	made, err := o.Find(t.Context(), "physics", string(b.Cluster))
	if err != nil || !slices.Equal(made.Keys, keys) || len(made.Parameters) > 0 {
		t.Errorf("the other cloud has the keys %q and the parameters %v, %v", made.Keys, made.Parameters, err)
	}
}

// standing waits until a cluster stands in the other cloud.
func standing(t *testing.T, d *elsewhere.Driver, at cluster.SiteAccess, b cluster.Build) (seen cluster.Seen) {
	t.Helper()
	patient.Until(t, "it stands", func() bool {
		all, err := d.Observe(t.Context(), at, []cluster.Build{b})
		seen = all[b.Cluster]
		return err == nil && seen.Phase == cluster.Standing
	})
	return seen
}

func friend() cluster.SiteAccess {
	return cluster.SiteAccess{Site: cluster.Site{Name: "friend"}, Credential: cluster.Credential{
		ProjectName: "physics"}}
}

// lostLaunch returns a build whose request had no answer.
func lostLaunch() cluster.Build {
	return cluster.Build{Partition: croft.NewPartitionID(), Cluster: croft.NewClusterID(), User: "ada", Name: "c",
		Implementation: cluster.Implementation{Template: text},
		Remote:         cluster.Remote{Name: "croft-x", Asked: true}}
}

// TestSlavesHaveTheSameIndexesInBothClouds also covers a resize that was refused here and never reached the other
// cloud.
func TestSlavesHaveTheSameIndexesInBothClouds(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	d, at, b := elsewhere.New(o.connect), friend(), lostLaunch()
	b.Indexes = []int{0}
	if _, err := d.Launch(t.Context(), at, b); err != nil {
		t.Fatal(err)
	}
	standing(t, d, at, b)
	o.site.Change("there", func(f *sim.Faults) { f.Room = 1 })
	b.Indexes = []int{0, 1}
	if err := d.Resize(t.Context(), at, b); croft.KindOf(err) != croft.NoCapacity {
		t.Fatalf("without room: %v", err)
	}
	o.site.Change("there", func(f *sim.Faults) { f.Room = 0 })
	for _, indexes := range [][]int{{0, 2}, {2}, {2, 5, 6}} {
		b.Indexes = indexes
		if err := d.Resize(t.Context(), at, b); err != nil {
			t.Fatalf("%v: %v", indexes, err)
		}
		seen := standing(t, d, at, b)
		var got []int
		for _, m := range seen.Members {
			if m.Role == cluster.Slave && m.ID == cluster.IDOf(b.Cluster, cluster.Slave, m.Index) {
				got = append(got, m.Index)
			}
		}
		if !slices.Equal(got, indexes) {
			t.Errorf("the other cloud has the slaves %v, want %v", got, indexes)
		}
	}
	b.Indexes = []int{0, 5}
	if err := d.Resize(t.Context(), at, b); croft.KindOf(err) != croft.Conflict {
		t.Errorf("an index is used twice: %v", err)
	}
}

// older is a cloud of a version that does not accept indexes.
type older struct{ elsewhere.Clusters }

func (o older) ChangeCluster(ctx context.Context, in api.ClusterChange) (api.Cluster, error) {
	if in.Indexes != nil {
		return api.Cluster{}, croft.Errorf(croft.Invalid, "additional properties 'indexes' not allowed")
	}
	return o.Clusters.ChangeCluster(ctx, in)
}

func TestACloudOfAnOlderVersionIsResizedByNumber(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	d := elsewhere.New(func(cluster.SiteAccess) (elsewhere.Peer, error) {
		return elsewhere.Peer{Clusters: older{served{o.Service}}, Close: func() error { return nil }}, nil
	})
	at, b := friend(), lostLaunch()
	b.Indexes = []int{0}
	if _, err := d.Launch(t.Context(), at, b); err != nil {
		t.Fatal(err)
	}
	standing(t, d, at, b)
	b.Indexes = []int{0, 1}
	if err := d.Resize(t.Context(), at, b); err != nil {
		t.Fatal(err)
	}
	standing(t, d, at, b)
}

// TestARefusalForLackOfRoomSettlesNothing: a launch that is still in progress may find room.
func TestARefusalForLackOfRoomSettlesNothing(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	d, at, b := elsewhere.New(o.connect), friend(), lostLaunch()
	o.site.Change("there", func(f *sim.Faults) { f.Room = 1 })
	b.Indexes = []int{0, 1}
	if err := d.Destroy(t.Context(), at, b); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("got %v (%s), want that it is not known", err, croft.KindOf(err))
	}
}

// between calls do after the first removal.
type between struct {
	elsewhere.Clusters
	do func()
}

func (b *between) DeleteCluster(ctx context.Context, in api.ClusterRemoval) (api.Cluster, error) {
	c, err := b.Clusters.DeleteCluster(ctx, in)
	if do := b.do; do != nil {
		b.do = nil
		do()
	}
	return c, err
}

// TestALaunchThatArrivesWhileItIsDestroyedIsRemoved: the manager repeats the request without its parameters, which
// makes it a different request with the same ID.
func TestALaunchThatArrivesWhileItIsDestroyedIsRemoved(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	launching, at, b := elsewhere.New(o.connect), friend(), lostLaunch()
	contract, err := launching.Check(t.Context(), b.Implementation)
	if err != nil {
		t.Fatal(err)
	}
	asked := b
	asked.Parameters, _, err = cluster.Fill(contract, cluster.Filling{Cluster: b.Cluster,
		Keys: []string{"ssh-ed25519 AAAA ada"}})
	if err != nil {
		t.Fatal(err)
	}
	clusters := &between{Clusters: served{o.Service}, do: func() {
		if _, err := launching.Launch(t.Context(), at, asked); err != nil {
			t.Error(err)
		}
	}}
	d := elsewhere.New(func(cluster.SiteAccess) (elsewhere.Peer, error) {
		return elsewhere.Peer{Clusters: clusters, Close: func() error { return nil }}, nil
	})
	if err := d.Destroy(t.Context(), at, b); err != nil {
		t.Fatal(err)
	}
	seen, err := launching.Observe(t.Context(), at, []cluster.Build{b})
	if phase := seen[b.Cluster].Phase; err != nil || phase != cluster.Removing && phase != cluster.Absent {
		t.Errorf("it is %s in the other cloud, %v", phase, err)
	}
}
