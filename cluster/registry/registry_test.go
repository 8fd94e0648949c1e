package registry_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/registry"
	"croft/cluster/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// driver is a site that accepts one secret, and templates that contain parameters.
type driver struct {
	cluster.Driver // not called

	right  string
	fail   error // of Probe
	probes int
	seen   cluster.SiteAccess
	brings int
	answer cluster.Placed
}

func (d *driver) Probe(_ context.Context, at cluster.SiteAccess) (cluster.Probe, error) {
	d.probes++
	d.seen = at
	if d.fail != nil {
		return cluster.Probe{}, d.fail
	}
	if s := at.Secret.Reveal(); s != "" && s != d.right {
		return cluster.Probe{}, croft.Errorf(croft.Denied, "401 Unauthorized for %s", at.Credential.Username)
	}
	return cluster.Probe{Version: "v3.14", Builds: true, Accepted: !at.Secret.Empty()}, nil
}

func (d *driver) Check(_ context.Context, i cluster.Implementation) (cluster.Contract, error) {
	if i.Template == "bad" {
		return cluster.Contract{}, croft.Errorf(croft.Invalid, "line 1: there are no resources")
	}
	return cluster.Contract{Declared: map[string]cluster.Declared{"flavor_name": {}, "network_name": {}}}, nil
}

func (d *driver) Bring(_ context.Context, at cluster.SiteAccess, _ cluster.SiteImage) (cluster.Placed, error) {
	d.brings++
	d.seen = at
	return d.answer, d.fail
}

// world is a registry with its dependencies.
type world struct {
	*registry.Registry
	store  *clustertest.Store
	driver *driver
	log    *bytes.Buffer
	key    string // its key file
}

func newWorld(t *testing.T) world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if _, err := seal.Generate(path); err != nil {
		t.Fatal(err)
	}
	vault, err := seal.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	w := world{store: clustertest.NewStore(), driver: &driver{right: "hunter2hunter2"}, log: &bytes.Buffer{},
		key: path}
	w.Registry, err = registry.New(registry.Config{Backends: cluster.Backends{Partition: "p1",
		Catalogue: w.store, Vault: vault, Records: w.store, Accounts: w.store,
		Log: slog.New(slog.NewJSONHandler(w.log, nil)),
		Images: func(name string) (cluster.SiteImage, error) {
			if name != "debian-12" {
				return cluster.SiteImage{}, croft.Errorf(croft.NotFound, "no image")
			}
			return cluster.SiteImage{
				Name:   name,
				URL:    "https://images.example/debian",
				SHA256: strings.Repeat("a", 64),
			}, nil
		},
		Drivers: map[cluster.SiteType]cluster.Driver{cluster.OpenStack: w.driver, cluster.Local: w.driver,
			cluster.Sim: w.driver}}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var openStack = cluster.Site{Name: "east", Type: cluster.OpenStack, AuthURL: "https://keystone.example:5000/v3",
	Enabled: true}

// withSite returns a world with the site east.
func withSite(t *testing.T) world {
	w := newWorld(t)
	if _, err := w.Sites().Create(t.Context(), openStack); err != nil {
		t.Fatal(err)
	}
	return w
}

func mine(name, secret string) cluster.NewCredential {
	return cluster.NewCredential{Credential: cluster.Credential{Name: name, Project: "dev", User: "ann", Site: "east",
		Username: "annie", ProjectName: "hpc"}, Plain: cluster.NewSecret(secret)}
}

func want(t *testing.T, what string, err error, kind croft.Kind, says string) {
	t.Helper()
	if err == nil || croft.KindOf(err) != kind || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: got %v of kind %q, want %s: %s", what, err, croft.KindOf(err), kind, says)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestSitesAreChecked(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		change func(*cluster.Site)
		says   string
	}{
		"a name with capitals": {func(s *cluster.Site) { s.Name = "East" }, "not a name"},
		"a name like an ID": {func(s *cluster.Site) { s.Name = "a3bb189e-8bf9-3888-9912-ace4e6543002" },
			"form of an ID"},
		"the local one":            {func(s *cluster.Site) { s.Name = "local" }, "croft itself"},
		"of type local":            {func(s *cluster.Site) { s.Type = cluster.Local }, "croft itself"},
		"an unknown type":          {func(s *cluster.Site) { s.Type = "vmware" }, "openstack"},
		"a type without a driver":  {func(s *cluster.Site) { s.Type = cluster.Croft }, "reaches no sites"},
		"no URL":                   {func(s *cluster.Site) { s.AuthURL = "" }, "needs a URL"},
		"a URL with a password":    {func(s *cluster.Site) { s.AuthURL = "https://a:b@x.example/" }, "password"},
		"the metadata server":      {func(s *cluster.Site) { s.AuthURL = "http://169.254.169.254/" }, "metadata"},
		"a sim with a URL":         {func(s *cluster.Site) { s.Type = cluster.Sim }, "no URL"},
		"an unknown interface":     {func(s *cluster.Site) { s.Interface = "secret" }, "public"},
		"no certificates":          {func(s *cluster.Site) { s.CACert = "x" }, "PEM"},
		"a priority out of bounds": {func(s *cluster.Site) { s.Priority = 5000 }, "1000"},
		"a negative limit":         {func(s *cluster.Site) { s.MaxClusters = -1 }, "no limit"},
		"a build of a second":      {func(s *cluster.Site) { s.BuildTimeout = 1e9 }, "1m"},
		"a secret as default": {func(s *cluster.Site) { s.Defaults = map[string]any{"admin_password": "x"} },
			"secret"},
		"a default without a name":  {func(s *cluster.Site) { s.Defaults = map[string]any{"": 1} }, "name"},
		"a default without a value": {func(s *cluster.Site) { s.Defaults = map[string]any{"a": nil} }, "no value"},
		"no address that may come": {func(s *cluster.Site) { s.Defaults = map[string]any{"allowed_ip": "x"} },
			"address"},
		"a default of a megabyte": {func(s *cluster.Site) {
			s.Defaults = map[string]any{"a": strings.Repeat("x", 1<<20)}
		}, "bytes"},
	} {
		s := openStack
		c.change(&s)
		_, err := w.Sites().Create(t.Context(), s)
		want(t, name, err, croft.Invalid, c.says)
	}
	if all, err := w.Sites().List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("there are %v, %v", all, err)
	}
}

func TestSitesAreChangedAndRemoved(t *testing.T) {
	w, ctx := withSite(t), t.Context()
	_, err := w.Sites().Create(ctx, openStack)
	want(t, "another one of its name", err, croft.Conflict, "already")
	first := must(w.Sites().Find(ctx, "east"))(t)
	off, seven := false, 7
	second := must(w.Sites().Change(ctx, "east", cluster.SiteChange{Enabled: &off}, &first.Generation))(t)
	if second.Enabled || second.AuthURL != openStack.AuthURL || second.Generation <= first.Generation {
		t.Errorf("changed to %+v", second)
	}
	_, err = w.Sites().Change(ctx, "east", cluster.SiteChange{Priority: &seven}, &first.Generation)
	want(t, "of an old generation", err, croft.Conflict, "generation")
	must(w.Sites().Change(ctx, "east", cluster.SiteChange{Priority: &seven}, nil))(t)
	bad := "file:///etc/passwd"
	_, err = w.Sites().Change(ctx, "east", cluster.SiteChange{AuthURL: &bad}, nil)
	want(t, "to a bad URL", err, croft.Invalid, "http://")
	_, err = w.Sites().Find(ctx, "eest")
	want(t, "a name mistyped", err, croft.NotFound, `"east"`)
	must(w.Credentials().Create(ctx, mine("one", "hunter2hunter2")))(t)
	want(t, "while it is used", w.Sites().Remove(ctx, "east"), croft.Conflict, "1 credentials")
	if err := w.Credentials().Remove(ctx, "dev", "ann", "one"); err != nil {
		t.Error(err)
	}
	if err := w.Sites().Remove(ctx, "east"); err != nil {
		t.Error(err)
	}
	want(t, "once more", w.Sites().Remove(ctx, "east"), croft.NotFound, "no site")
}

func TestTheLocalSiteIsThere(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	for range 2 {
		if err := w.EnsureLocal(ctx); err != nil {
			t.Fatal(err)
		}
	}
	off := false
	if got := must(w.Sites().Change(ctx, "local", cluster.SiteChange{Enabled: &off}, nil))(t); got.Enabled {
		t.Error("it cannot be disabled")
	}
	want(t, "removed", w.Sites().Remove(ctx, "local"), croft.Conflict, "disable")
	if err := w.EnsureLocal(ctx); err != nil {
		t.Fatal(err)
	}
	if all := must(w.Sites().List(ctx))(t); len(all) != 1 || all[0].Enabled {
		t.Errorf("got %+v", all)
	}
	n := mine("one", "x")
	n.Site = "local"
	_, err := w.Credentials().Create(ctx, n)
	want(t, "a credential for it", err, croft.Invalid, "needs no credential")
}

func TestASiteSaysHowItIs(t *testing.T) {
	w, ctx := withSite(t), t.Context()
	h := must(w.Sites().Health(ctx, "east", "dev", "ann"))(t)
	if !h.Reachable || h.Accepted || h.Version != "v3.14" || h.Error != "" || !w.driver.seen.Secret.Empty() {
		t.Errorf("without a credential: %+v", h)
	}
	must(w.Credentials().Create(ctx, mine("one", "hunter2hunter2")))(t)
	if h = must(w.Sites().Health(ctx, "east", "dev", "ann"))(t); !h.Accepted {
		t.Errorf("with a credential: %+v", h)
	}
	if h = must(w.Sites().Health(ctx, "east", "dev", "bob"))(t); h.Accepted {
		t.Errorf("with the credential of another: %+v", h)
	}
	if s := must(w.Sites().Find(ctx, "east"))(t); !s.Health.OK || s.Health.Since.IsZero() {
		t.Errorf("noted as %+v", s.Health)
	}
	w.driver.fail = croft.Errorf(croft.Unavailable, "connection refused")
	if h = must(w.Sites().Health(ctx, "east", "dev", "ann"))(t); h.Reachable || h.Error != "connection refused" {
		t.Errorf("while it does not answer: %+v", h)
	}
	if s := must(w.Sites().Find(ctx, "east"))(t); s.Health.OK || s.Health.Error != "connection refused" {
		t.Errorf("noted as %+v", s.Health)
	}
	w.driver.fail = croft.Errorf(croft.Denied, "401")
	if h = must(w.Sites().Health(ctx, "east", "dev", "ann"))(t); !h.Reachable || h.Accepted || h.Error != "401" {
		t.Errorf("while it refuses: %+v", h)
	}
}
