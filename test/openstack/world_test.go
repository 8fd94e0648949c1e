package openstack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/heat"
	"croft/cluster/heat/heattest"
	"croft/cluster/manager"
	"croft/cluster/registry"
	"croft/cluster/requests"
	"croft/cluster/seal"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
)

// Environment variables that make this binary run a manager instead of tests.
const (
	managedEtcd = "CROFT_TEST_MANAGED_ETCD"
	managedKey  = "CROFT_TEST_MANAGED_KEY"
)

// manage builds the clusters of an etcd until the process ends.
func manage() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	store, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{os.Getenv(managedEtcd)},
		DialTimeout: 20 * time.Second, SessionTTL: 2 * time.Second})
	if err != nil {
		return err
	}
	keys, err := seal.Load(os.Getenv(managedKey))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	driver := newDriver(log)
	defer driver.Close()
	m, err := manager.New(manager.Config{Backends: cluster.Backends{Partition: store.Partition(),
		Records: store.Clusters, Catalogue: store.Clusters,
		Drivers: map[cluster.SiteType]cluster.Driver{cluster.OpenStack: driver},
		Vault:   keys, Log: log}, Standby: 500 * time.Millisecond, Sweep: 5 * time.Second})
	if err != nil {
		return err
	}
	return errors.Join(m.Run(ctx), store.Close())
}

func newDriver(log *slog.Logger) *heat.Driver {
	return heat.New(heat.Config{Log: log, Timeout: 20 * time.Second, Settle: 3 * time.Second})
}

// output collects the output of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// world is a cloud that builds clusters at sites of OpenStack: an etcd, the services that answer requests, and a
// manager in a separate process, which may be killed at any time.
type world struct {
	*testing.T
	etcd     *etcdserver.Server
	store    *etcdstore.Store
	asks     *requests.Service
	registry *registry.Registry
	driver   *heat.Driver
	keys     *seal.Keys
	key      string // file
	manager  *exec.Cmd
	logs     output // of managers and of the services here
	fronts   map[string]*heattest.Front
	clouds   map[string]map[string]heattest.Cloud // by site and user
	told     []string                             // all answers, as printed
	kills    int
}

// newWorld creates a site for each variable, each behind a front: east, then west. Users ada of physics and bob of
// chemistry have credentials for them, and the appliance small is public.
func newWorld(t *testing.T, variables ...string) *world {
	w := &world{T: t, fronts: map[string]*heattest.Front{}, clouds: map[string]map[string]heattest.Cloud{}}
	for i, v := range variables {
		site := []string{"east", "west"}[i]
		w.clouds[site] = heattest.Clouds(t, v)
		w.fronts[site] = heattest.NewFront(t, w.clouds[site]["demo"])
	}
	w.etcd = etcdtest.Server(t)
	w.store = etcdtest.Open(t, w.etcd)
	w.key = filepath.Join(t.TempDir(), "key")
	if _, err := seal.Generate(w.key); err != nil {
		t.Fatal(err)
	}
	w.keys = must(seal.Load(w.key))(t)
	w.serve()
	for i, v := range variables {
		site := []string{"east", "west"}[i]
		_ = v
		w.addSite(site, 10-i)
	}
	w.start()
	t.Cleanup(w.end)
	return w
}

// must ends the test on an error: must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// serve creates the services that answer requests.
func (w *world) serve() {
	log := slog.New(slog.NewTextHandler(&w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.driver = newDriver(log)
	w.Cleanup(w.driver.Close)
	drivers := map[cluster.SiteType]cluster.Driver{cluster.OpenStack: w.driver}
	s := w.store.Clusters
	w.asks = must(requests.New(requests.Config{Backends: cluster.Backends{Partition: w.store.Partition(),
		Records: s, Catalogue: s, Accounts: s, Drivers: drivers, Vault: w.keys, Log: log}}))(w.T)
	w.registry = must(registry.New(registry.Config{Backends: cluster.Backends{Partition: w.store.Partition(),
		Catalogue: s, Records: s, Accounts: s, Drivers: drivers, Vault: w.keys, Log: log}}))(w.T)
	must(w.registry.Appliances().Create(w.Context(), cluster.Appliance{Name: "small", Owner: "ops", Public: true}))(w.T)
}

func (w *world) addSite(name string, priority int) {
	c := w.clouds[name]["demo"]
	must(w.registry.Sites().Create(w.Context(), cluster.Site{Name: name, Type: cluster.OpenStack, Enabled: true,
		AuthURL: w.fronts[name].AuthURL(), Region: c.Region, Priority: priority}))(w.T)
	must(w.registry.Appliances().AddImplementation(w.Context(), cluster.Implementation{Appliance: "small", Site: name,
		Template: small, Enabled: true}))(w.T)
	w.addCredential(name, "physics", "ada", w.clouds[name]["demo"])
	w.addCredential(name, "chemistry", "bob", w.clouds[name]["demo2"])
}

func (w *world) addCredential(site string, project croft.Project, user string, c heattest.Cloud) cluster.Credential {
	n := cluster.NewCredential{Credential: c.Access(site, "").Credential, Plain: cluster.NewSecret(c.Auth.Password)}
	n.ID, n.Name, n.Project, n.User = "", "mine-"+site, project, user
	etcdtest.Issued(c.Auth.Password)
	made := must(w.registry.Credentials().Create(w.Context(), n))(w.T)
	w.tell(made)
	return made
}

// tell records an answer in the form that a user or a log would see.
func (w *world) tell(v any) { w.told = append(w.told, fmt.Sprintf("%v %+v %#v", v, v, v)) }

// start runs a manager.
func (w *world) start() {
	w.manager = exec.Command(os.Args[0])
	w.manager.Env = append(os.Environ(), managedEtcd+"="+w.etcd.Endpoint(), managedKey+"="+w.key, "GOTRACEBACK=all")
	w.manager.Stderr, w.manager.Stdout = &w.logs, &w.logs
	if err := w.manager.Start(); err != nil {
		w.Fatal(err)
	}
}

// kill kills the manager, as a power failure would, and starts another one.
func (w *world) kill() {
	w.stop(syscall.SIGKILL)
	w.kills++
	w.start()
}

func (w *world) stop(s os.Signal) {
	_ = w.manager.Process.Signal(s)
	_ = w.manager.Wait() // it was killed
}

// end removes all clusters, and checks that nothing is left of them.
func (w *world) end() {
	defer w.stop(syscall.SIGKILL)
	for _, f := range w.fronts {
		f.Change(func(s *heattest.Faults) { *s = heattest.Faults{} })
	}
	if w.Failed() {
		w.Log(w.tail())
	}
	ctx := context.WithoutCancel(w.Context())
	all, err := w.asks.List(ctx, "", cluster.Filter{})
	if err != nil {
		w.Error(err)
	}
	for _, c := range all {
		if _, err := w.asks.Delete(ctx, c.Project, string(c.ID), cluster.Removal{User: c.User,
			Force: true}); err != nil {
			w.Error(err)
		}
	}
	w.wantNoClusters(ctx)
	for site := range w.clouds {
		w.wantNoStacks(ctx, site)
	}
	etcdtest.CheckDump(w.T, w.etcd.Endpoint())
	w.wantNoSecrets()
	w.Logf("the manager was killed %d times", w.kills)
}

// wantNoClusters waits until no cluster is left. The context of the test has ended.
func (w *world) wantNoClusters(ctx context.Context) {
	w.Helper()
	for end := time.Now().Add(3 * time.Minute); ; <-time.After(200 * time.Millisecond) {
		all, err := w.asks.List(ctx, "", cluster.Filter{})
		if err == nil && len(all) == 0 {
			return
		}
		if time.Now().After(end) {
			w.Errorf("%+v, %v are left", all, err)
			return
		}
	}
}

func (w *world) wantNoStacks(ctx context.Context, site string) {
	w.Helper()
	for _, user := range []string{"demo", "demo2"} {
		at := w.clouds[site][user].Access(site, w.fronts[site].AuthURL())
		at.Partition = w.store.Partition()
		found, err := w.driver.List(ctx, at)
		if err != nil || len(found) > 0 {
			w.Errorf("site %s still has %+v, %v of %s", site, found, err, user)
		}
	}
}

// tail returns the end of the logs.
func (w *world) tail() string {
	text := w.logs.String()
	return text[max(0, len(text)-20000):]
}

// wantNoSecrets searches for passwords in logs, answers, and the arguments of all processes.
func (w *world) wantNoSecrets() {
	w.Helper()
	arguments, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	everything := w.logs.String() + strings.Join(w.told, "\n")
	for _, path := range arguments {
		text, _ := os.ReadFile(path) // a process may have ended
		everything += string(text)
	}
	for _, users := range w.clouds {
		for name, c := range users {
			for _, form := range forms(c.Auth.Password) {
				if i := strings.Index(everything, form); i >= 0 {
					w.Errorf("the password of %s is in: %.200s", name, everything[max(0, i-100):i])
				}
			}
		}
	}
}

// ask requests a cluster of small for a user.
func (w *world) ask(project croft.Project, user, name string, slaves int, change ...func(*cluster.Request)) (
	cluster.Created, error) {
	r := cluster.Request{Project: project, User: user,
		Spec: cluster.Spec{Name: name, Appliance: "small", Slaves: slaves}}
	for _, c := range change {
		c(&r)
	}
	made, err := w.asks.Create(w.Context(), r)
	w.tell(made)
	w.tell(err)
	return made, err
}

func (w *world) mustAsk(name string, slaves int, change ...func(*cluster.Request)) cluster.Cluster {
	w.Helper()
	return must(w.ask("physics", "ada", name, slaves, append(change, fresh)...))(w.T).Cluster
}

// fresh requests a new cluster.
func fresh(r *cluster.Request) { r.Reuse = cluster.ReuseNever }

func (w *world) find(c cluster.Cluster) cluster.Cluster {
	w.Helper()
	got, err := w.asks.Find(w.Context(), c.Project, string(c.ID))
	if err != nil {
		w.Fatal(err)
	}
	w.tell(got)
	return got
}

// until waits for a state of a cluster. With deaths the manager is killed immediately, and again later.
func (w *world) until(c cluster.Cluster, want cluster.State, deaths bool) cluster.Cluster {
	w.Helper()
	return w.untilIt(c, "it is "+string(want), deaths, func(c cluster.Cluster) bool { return c.State == want })
}

func (w *world) untilIt(c cluster.Cluster, what string, deaths bool, is func(cluster.Cluster) bool) cluster.Cluster {
	w.Helper()
	began, died := time.Now(), 0
	patient.Until(w.T, what+": "+c.Name, func() bool {
		if deaths && died < 2 && time.Since(began) > time.Duration(died)*3*time.Second {
			w.kill()
			died++
		}
		c = w.find(c)
		return is(c)
	})
	return c
}
