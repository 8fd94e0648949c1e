// Package controltest serves the API of a simulated cloud to tests.
package controltest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/cluster/seal"
	"croft/cluster/sim"
	"croft/control"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/cloud"
	"croft/control/cloud/cloudtest"
	"croft/control/cloud/direct"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/tenant/access"
	"croft/tenant/objects"
	"croft/tenant/usage"
	"croft/test/simcloud"
)

// Callers maps tokens to callers.
type Callers map[string]access.Caller

// Authenticate implements access.Authenticator.
func (c Callers) Authenticate(_ context.Context, r *http.Request) (access.Caller, bool, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	caller, known := c[token]
	if ok && !known {
		return caller, false, croft.Errorf(croft.Denied, "the token is unknown")
	}
	return caller, known, nil
}

// Known are the callers of every test: an operator, and callers of several projects in each role.
var Known = Callers{
	"operator": {User: "olga", Roles: []access.Role{access.PartitionAdmin}, Via: "token 1"},
	"anna":     {User: "anna", Project: "anna", Roles: []access.Role{access.Member}, Via: "token 2"},
	"berta":    {User: "berta", Project: "berta", Roles: []access.Role{access.Member}, Via: "token 3"},
	"admin":    {User: "ada", Project: "anna", Roles: []access.Role{access.ProjectAdmin}, Via: "token 6"},
	"adam": access.Caller{User: "adam", Project: "org", Roles: []access.Role{access.ProjectAdmin}, Via: "token 5"}.
		In(tree{}),
	"dora":   {User: "dora", Project: "dev", Roles: []access.Role{access.Member}, Via: "token 7"},
	"reader": {User: "rita", Project: "anna", Roles: []access.Role{access.Reader}, Via: "token 4"},
	"bertil": {User: "bertil", Project: "berta", Roles: []access.Role{access.Reader}, Via: "token 8"},
	"bente":  {User: "bente", Project: "berta", Roles: []access.Role{access.Member}, Via: "token 9"},
	"birgit": {User: "birgit", Project: "berta", Roles: []access.Role{access.ProjectAdmin}, Via: "token 10"},
}

// tree is a tree of projects in which dev is below org.
type tree struct{}

// Below implements access.Tree.
func (tree) Below(p croft.Project) []croft.Project {
	if p == "org" {
		return []croft.Project{"org", "dev"}
	}
	return []croft.Project{p}
}

// ID implements access.Tree.
func (tree) ID(croft.Project) croft.ProjectID { return "" }

// Start serves the API of a simulated cloud with one host, host1, which has room for cloudtest.Room instances.
func Start(t testing.TB) (url string, c *simcloud.Cloud) {
	t.Helper()
	return StartWith(t, func(*cloud.Cloud) {})
}

// StartWith is Start with a change of the served cloud.
func StartWith(t testing.TB, change func(*cloud.Cloud)) (url string, c *simcloud.Cloud) {
	t.Helper()
	return StartConfigured(t, func(_ *simcloud.Cloud, c *control.Config) { change(c.Cloud) })
}

// StartWithPools is Start with Pools, so that some projects are charged from the start.
func StartWithPools(t testing.TB, change ...func(*simcloud.Cloud, *control.Config)) (url string, c *simcloud.Cloud) {
	t.Helper()
	return start(t, Pools, func(c *simcloud.Cloud, config *control.Config) {
		for _, one := range change {
			one(c, config)
		}
	})
}

// StartConfigured is Start with a change of the configuration of the server.
func StartConfigured(t testing.TB, change func(*simcloud.Cloud, *control.Config)) (url string, c *simcloud.Cloud) {
	t.Helper()
	return start(t, cloudtest.Pools, change)
}

// start serves the API of a simulated cloud with the pools of a file.
func start(t testing.TB, file string, change func(*simcloud.Cloud, *control.Config)) (url string, c *simcloud.Cloud) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // the cloud ends with Close
	c, err := simcloud.New(ctx, t.TempDir(), etcdserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	t.Cleanup(func() { etcdtest.CheckDump(t, c.Etcd.Endpoint()) })
	c.ForVolumes = 1 // of the tenant of the tests
	if err := c.AddHost(ctx, "host1", cloudtest.Room); err != nil {
		t.Fatal(err)
	}
	s := direct.Defaults()
	s.Etcd.Endpoints, s.Placement.Endpoint = []string{c.Etcd.Endpoint()}, c.Placement.URL
	building := clusters(t)
	under, err := direct.Over(c.Store, c.Claims, s, direct.Scheduling{Clusters: building})
	if err != nil {
		t.Fatal(err)
	}
	builds, err := building.Manager()
	if err != nil {
		t.Fatal(err)
	}
	served, err := c.ServePools(ctx, "pools", file)
	if err != nil {
		t.Fatal(err)
	}
	manager, err := served.Client()
	if err != nil {
		t.Fatal(err)
	}
	recorder := actions.NewRecorder(c.Store.Actions, nil)
	config := control.Config{Cloud: under, Callers: access.First(Known), Actions: recorder,
		Pools: manager, Version: "test", Objects: objects.New(c.Store.Objects), Images: Images{},
		Rate: 10_000, Burst: 10_000}
	change(c, &config)
	under.Access = noted{under.Access}
	server, err := control.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() { _ = server.Run(ctx) })
	run.Go(func() {
		if err := recorder.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	run.Go(func() { _ = usage.Recorder{Name: "test", Store: c.Store.Usage, Every: time.Second}.Run(ctx) })
	run.Go(func() {
		_ = usage.Surveyor{Store: c.Store.Usage, Offered: under.Fleet.Offered, Every: 200 * time.Millisecond,
			Log: slog.New(slog.DiscardHandler)}.Run(ctx)
	})
	run.Go(func() { _ = under.Backups.Run(ctx) })
	run.Go(func() { building.Ensure(ctx); _ = builds.Run(ctx) })
	front := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
		server.Close()
		manager.CloseIdle()
		cancel()
		run.Wait()
		if err := under.Close(); err != nil {
			t.Error(err)
		}
	})
	return front.URL, c
}

// clusters returns the building of clusters: those at simulated sites are ready after 10 ms, and secrets are sealed.
func clusters(t testing.TB) *direct.Clusters {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if _, err := seal.Generate(file); err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	pretended := sim.New()
	pretended.Delay = 10 * time.Millisecond
	return &direct.Clusters{Vault: keys, Sim: pretended}
}

// noted records the tokens that the API creates; the dump of etcd at the end must not contain them.
type noted struct{ cloud.Access }

// Create implements cloud.Access.
func (n noted) Create(ctx context.Context, wanted cloud.NewAccess) (api.AccessToken, error) {
	made, err := n.Access.Create(ctx, wanted)
	etcdtest.Issued(made.Secret)
	return made, err
}

// Pools is a file of pools: one each of anna, of berta, of org for all projects, and of no project.
const Pools = `
annas:
  project: anna
  cmd_new: echo secret-$RESALLOC_ID
  cmd_delete: "true"
  max: 4
  max_prealloc: 1
  tags: [annas]
victims:
  project: berta
  description: of the victim
  cmd_new: echo victim-$RESALLOC_ID
  cmd_delete: "true"
  max: 4
  max_prealloc: 2
  tags: [victim-tag]
everybodys:
  project: org
  shared: true
  cmd_new: echo secret-$RESALLOC_ID
  cmd_delete: "true"
  max: 3
  max_prealloc: 1
  tags: [shared]
apart:
  cmd_new: echo secret-$RESALLOC_ID
  cmd_delete: "true"
  max_prealloc: 1
  tags: [shared, apart]
`

// Images is a catalog of debian-12, and of debian-12-arm for aarch64; tenants may name others on images.example.
type Images struct{}

// Reference implements control.Images.
func (Images) Reference(name string) (string, croft.Arch, error) {
	switch {
	case name == "debian-12":
		return "https://other.example/debian-12.qcow2", "", nil
	case name == "debian-12-arm":
		return "https://other.example/debian-12-arm.qcow2", croft.ArchAArch64, nil
	case strings.ContainsAny(name, "/:#"):
		return name, "", nil
	}
	return "", "", croft.Errorf(croft.NotFound, "there is no image %q in the catalog", name)
}

// CheckSource implements control.Images.
func (Images) CheckSource(reference string) error {
	if !strings.HasPrefix(reference, "https://images.example/") {
		return croft.Errorf(croft.Denied, "the cloud takes no image from there")
	}
	return nil
}

// Public implements control.Images.
func (Images) Public(reference string) bool {
	return strings.HasPrefix(reference, "https://images.example/public/")
}

// List implements control.Images.
func (Images) List() (api.Catalog, error) {
	return api.Catalog{Images: []api.Image{{Name: "debian-12", VerifiedBy: "nothing",
		URL: "https://other.example/debian-12.qcow2"}}, Sources: []string{"https://images.example/"}}, nil
}

// Serve serves a handler until the test ends.
func Serve(t testing.TB, h http.Handler) (url string) {
	t.Helper()
	served := httptest.NewServer(h)
	t.Cleanup(func() { served.CloseClientConnections(); served.Close() })
	return served.URL
}
