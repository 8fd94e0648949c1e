package manager_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/manager"
	"croft/cluster/requests"
	"croft/cluster/seal"
	"croft/cluster/sim"
)

// raceEnabled reports whether this program has the race detector.
var raceEnabled bool

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const partition croft.PartitionID = "6a0f0c1e-5f2e-4a52-8d5e-1b2c3d4e5f60"

const template = `
parameters: {cluster_size: {type: number}, admin_password: {type: string, default: none}}
outputs: {login_password: swordfish, port: 22}
`

// bench is a cloud of clusters in a synctest bubble: a store, the sites east and west that build slurm, and its users.
type bench struct {
	*requests.Service
	*testing.T
	store *clustertest.Store
	sites *sim.Site
	keys  *seal.Keys
	logs  *lines
	log   *slog.Logger
	mu    sync.Mutex
	looks map[string][]time.Time // times of the observations of each site
	ends  []func()
}

// lines is a log for concurrent writers.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

// inBubble runs a test on a bench, and stops all managers at the end.
func inBubble(t *testing.T, test func(b *bench)) {
	keys := loadKeys(t)
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, keys)
		defer func() {
			for _, end := range b.ends {
				end()
			}
			if t.Failed() && testing.Verbose() {
				_, _ = io.WriteString(os.Stderr, b.logs.String())
			}
		}()
		test(b)
	})
}

func loadKeys(t *testing.T) *seal.Keys {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("one:"+strings.Repeat("A", 43)+"=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func newBench(t *testing.T, keys *seal.Keys) *bench {
	b := &bench{T: t, store: clustertest.NewStore(), sites: sim.New(), keys: keys, logs: &lines{},
		looks: map[string][]time.Time{}}
	b.log = slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, name := range []string{"east", "west"} {
		b.site(cluster.Site{Name: name, Type: cluster.Sim, Enabled: true})
	}
	_, err := b.store.PutAppliance(t.Context(), cluster.Appliance{Name: "slurm", Public: true})
	b.fatal(err)
	b.implementation(cluster.Implementation{Site: "east", Template: template})
	b.implementation(cluster.Implementation{Site: "west", Template: template})
	b.Service, err = requests.New(requests.Config{Backends: cluster.Backends{Partition: partition,
		Records: b.store, Catalogue: b.store, Accounts: b.store,
		Drivers: b.drivers(b.sites), Vault: keys, Log: b.log}})
	b.fatal(err)
	return b
}

func (b *bench) drivers(d cluster.Driver) map[cluster.SiteType]cluster.Driver {
	return map[cluster.SiteType]cluster.Driver{cluster.Sim: watched{d, b}}
}

// watched records when sites are observed.
type watched struct {
	cluster.Driver
	b *bench
}

func (w watched) Observe(ctx context.Context, at cluster.SiteAccess, all []cluster.Build) (
	map[croft.ClusterID]cluster.Seen, error) {
	w.b.mu.Lock()
	w.b.looks[at.Site.Name] = append(w.b.looks[at.Site.Name], time.Now())
	w.b.mu.Unlock()
	return w.Driver.Observe(ctx, at, all)
}

// observed counts the observations of a site since a time.
func (b *bench) observed(site string, since time.Time) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.looks[site] {
		if at.After(since) {
			n++
		}
	}
	return n
}

func (b *bench) site(s cluster.Site) {
	b.Helper()
	_, err := b.store.PutSite(b.Context(), s)
	b.fatal(err)
}

func (b *bench) implementation(i cluster.Implementation) cluster.ImplementationID {
	b.Helper()
	i.ID, i.Appliance, i.Enabled = cluster.NewImplementationID(), "slurm", true
	i, err := b.store.AddImplementation(b.Context(), i)
	b.fatal(err)
	return i.ID
}

// credential stores a credential of ada for a site.
func (b *bench) credential(site string) cluster.Credential {
	b.Helper()
	c := cluster.Credential{ID: cluster.NewCredentialID(), Name: "at-" + site, Project: "physics", User: "ada",
		Site: site,
		Kind: cluster.Password, Username: "ada"}
	var err error
	c.Secret, err = b.keys.Seal(cluster.NewSecret("hunter2"), cluster.AboutCredential(partition, c))
	b.fatal(err)
	c, err = b.store.PutCredential(b.Context(), c)
	b.fatal(err)
	return c
}

func (b *bench) fatal(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// start runs a manager until it is stopped.
func (b *bench) start(change ...func(c *manager.Config)) (m *manager.Manager, stop func()) {
	b.Helper()
	c := manager.Config{Backends: cluster.Backends{Partition: partition, Records: b.store,
		Catalogue: b.store, Drivers: b.drivers(b.sites), Vault: b.keys, Log: b.log}}
	for _, f := range change {
		f(&c)
	}
	m, err := manager.New(c)
	b.fatal(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := m.Run(ctx); err != nil {
			b.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	b.ends = append(b.ends, stop)
	return m, stop
}

// at changes the faults of a site.
func (b *bench) at(site string, change func(f *sim.Faults)) { b.sites.Change(site, change) }

// ask returns a request of ada for slurm with two slaves.
func ask(name string, sites ...string) cluster.Request {
	return cluster.Request{Project: "physics", User: "ada", Spec: cluster.Spec{Name: name, Appliance: "slurm",
		Slaves: 2, Reuse: cluster.ReuseNever, Hints: cluster.Hints{PreferSites: []string{"east"}, Sites: sites}}}
}

func (b *bench) create(r cluster.Request) croft.ClusterID {
	b.Helper()
	made, err := b.Create(b.Context(), r)
	b.fatal(err)
	return made.Cluster.ID
}

func (b *bench) get(id croft.ClusterID) cluster.Cluster {
	b.Helper()
	c, err := b.store.Get(b.Context(), id)
	b.fatal(err)
	return c
}

// until waits for a condition on a cluster, at most for most.
func (b *bench) until(id croft.ClusterID, most time.Duration, what string,
	is func(c cluster.Cluster) bool) cluster.Cluster {
	b.Helper()
	c := b.get(id)
	for end := time.Now().Add(most); !is(c); c = b.get(id) {
		if time.Now().After(end) {
			b.Fatalf("it is not %s within %s, but %s: %s, error %+v, %+v", what, most, c.State, c.Step, c.Error,
				c.Members)
		}
		time.Sleep(250 * time.Millisecond)
	}
	return c
}

func (b *bench) untilState(id croft.ClusterID, s cluster.State) cluster.Cluster {
	b.Helper()
	return b.until(id, 5*time.Minute, string(s), func(c cluster.Cluster) bool { return c.State == s })
}

func (b *bench) ready(id croft.ClusterID, slaves int) cluster.Cluster {
	b.Helper()
	return b.until(id, 5*time.Minute, "ready", func(c cluster.Cluster) bool {
		return c.State == cluster.Ready && c.Slaves == slaves && c.Good == slaves
	})
}

func (b *bench) delete(id croft.ClusterID) {
	b.Helper()
	_, err := b.Delete(b.Context(), "physics", string(id), cluster.Removal{User: "ada"})
	b.fatal(err)
}

// has returns the number of our clusters at a site.
func (b *bench) has(site string) int {
	b.Helper()
	at := cluster.SiteAccess{Partition: partition, Site: cluster.Site{Name: site}}
	all, err := b.sites.List(b.Context(), at)
	b.fatal(err)
	return len(all)
}

// heard reports whether an event of a cluster contains a text.
func (b *bench) heard(id croft.ClusterID, text string) bool {
	b.Helper()
	all, err := b.store.Events(b.Context(), id)
	b.fatal(err)
	for _, e := range all {
		if strings.Contains(e.Message, text) {
			return true
		}
	}
	return false
}

func (b *bench) mustHear(id croft.ClusterID, text string) {
	b.Helper()
	if !b.heard(id, text) {
		all, _ := b.store.Events(b.Context(), id)
		b.Errorf("no event of the cluster says %q: %+v", text, all)
	}
}
