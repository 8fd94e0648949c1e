package control_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/requests"
	"croft/cluster/seal"
	"croft/cluster/sim"
	"croft/control/api"
	"croft/control/cloud"
	"croft/control/controltest"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
)

type fields = map[string]any

// pretending starts a cloud with a simulated site, and a public appliance for it.
func pretending(t *testing.T) asker {
	t.Helper()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	a.ask(t, "operator", http.MethodPost, "/v1/sites", fields{"name": "pretend", "type": "sim", "defaults": fields{
		"network_name": "inside"}}).want(t, http.StatusCreated, "")
	a.ask(t, "operator", http.MethodPost, "/v1/appliances", fields{"name": "demo", "public": true}).
		want(t, http.StatusCreated, "")
	a.ask(t, "operator", http.MethodPost, "/v1/appliances/demo/implementations", fields{"site": "pretend",
		"template": "parameters:\n  admin_password: {type: string, default: x, hidden: true}\n"}).
		want(t, http.StatusCreated, "")
	return a
}

// TestEachUserHasAClusterOfHisOwn: a repeated request of one user returns the same cluster, other users do not see it,
// and each step of its life has its status.
func TestEachUserHasAClusterOfHisOwn(t *testing.T) {
	t.Parallel()
	a := pretending(t)
	ask := func(as, method, path string, body any) answer { return a.ask(t, as, method, "/v1/clusters"+path, body) }
	var first, again, other api.Cluster
	got := ask("anna", http.MethodPost, "", fields{"name": "web", "appliance": "demo", "slaves": 2})
	got.want(t, http.StatusAccepted, "")
	got.into(t, &first)
	id := string(first.ID)
	if got.header.Get("Location") != "/v1/clusters/"+id || first.Reused || first.User != "anna" || first.Settled {
		t.Errorf("got %v, %+v", got.header, first)
	}
	got = ask("anna", http.MethodPost, "?wait=60", fields{"name": "more", "appliance": "demo", "slaves": 1})
	got.want(t, http.StatusOK, "")
	got.into(t, &again)
	if !again.Reused || again.ID != first.ID || again.State != cluster.Ready || len(again.Uses) != 2 ||
		again.MasterIP == "" || len(again.Members) != 3 {
		t.Errorf("asked again: %+v", again)
	}
	got = ask("admin", http.MethodPost, "?wait=60", fields{"name": "mine", "appliance": "demo"})
	got.want(t, http.StatusCreated, "")
	got.into(t, &other)
	if other.ID == first.ID || other.User != "ada" {
		t.Errorf("another user of the project got %+v", other)
	}
	ask("anna", http.MethodPost, "", fields{"name": "mine", "appliance": "demo", "reuse": "never"}).
		want(t, http.StatusConflict, api.NameTaken)
	ask("anna", http.MethodPost, "", fields{"name": "else", "appliance": "demo", "id": id, "slaves": 7}).
		want(t, http.StatusConflict, api.UUIDReused)
	ask("anna", http.MethodPost, "", fields{"name": "x", "appliance": "dem"}).want(t, http.StatusNotFound, api.NotFound)
	got = ask("anna", http.MethodPost, "", fields{"name": "x", "appliance": "demo", "hints": fields{"site": "pretend"}})
	if got.want(t, http.StatusBadRequest, api.SchemaViolation); !strings.Contains(got.problem.Detail, `"sites"`) {
		t.Errorf("of an unknown hint it says %q", got.problem.Detail)
	}
	got = ask("anna", http.MethodPost, "", fields{"name": "x", "appliance": "demo", "slaves": 9,
		"hints": fields{"exclude_sites": []string{"pretend"}}})
	if got.want(t, http.StatusConflict, api.NoCapacity); len(got.problem.Why) == 0 {
		t.Errorf("nothing is said of sites: %s", got.body)
	}

	ask("reader", http.MethodGet, "/web", nil).want(t, http.StatusOK, "")
	ask("reader", http.MethodDelete, "/web", nil).want(t, http.StatusForbidden, api.ForbiddenVerb)
	ask("berta", http.MethodGet, "/"+id, nil).want(t, http.StatusNotFound, api.NotFound)
	ask("operator", http.MethodGet, "/"+id, nil).want(t, http.StatusOK, "")
	got = ask("anna", http.MethodGet, "/web", nil)
	a.askWith(t, "anna", http.MethodPatch, "/v1/clusters/web", fields{"slaves": 3}, "If-Match", `"999"`).
		want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	a.askWith(t, "anna", http.MethodPatch, "/v1/clusters/web", fields{"slaves": 3}, "If-Match", got.generation()).
		want(t, http.StatusAccepted, "")
	ask("anna", http.MethodPost, "/web/hosts", nil).want(t, http.StatusAccepted, "")
	ask("anna", http.MethodDelete, "/web/hosts/"+string(again.Members[1].ID), nil).want(t, http.StatusAccepted, "")
	ask("anna", http.MethodDelete, "/web/hosts/"+string(again.Members[0].ID), nil).
		want(t, http.StatusConflict, api.BadState)
	var now api.Cluster
	ask("anna", http.MethodGet, "/web?wait=60", nil).into(t, &now)
	if now.State != cluster.Ready || len(now.Members) != 4 || slices.Contains(now.Indexes, 0) {
		t.Errorf("after +1, +1 and -1 of 2: %+v", now)
	}
	ask("anna", http.MethodPatch, "/web", fields{"name": "renamed"}).want(t, http.StatusOK, "")
	ask("anna", http.MethodDelete, "/renamed/uses/"+string(now.Uses[0].ID), nil).want(t, http.StatusNoContent, "")
	ask("anna", http.MethodDelete, "/renamed/uses/"+string(now.Uses[0].ID), nil).
		want(t, http.StatusNotFound, api.NotFound)
	ask("anna", http.MethodDelete, "/renamed", nil).want(t, http.StatusAccepted, "")
	patient.Until(t, "it is gone", func() bool {
		return ask("anna", http.MethodGet, "/"+id, nil).status == http.StatusGone
	})
	got = ask("anna", http.MethodGet, "/"+id, nil)
	got.want(t, http.StatusGone, api.Gone)
	if got.problem.Cluster == nil || got.problem.Cluster.State != cluster.Deleted {
		t.Errorf("of what is gone it says %s", got.body)
	}
	ask("anna", http.MethodGet, "/renamed", nil).want(t, http.StatusNotFound, api.NotFound)
	ask("berta", http.MethodGet, "/"+id, nil).want(t, http.StatusNotFound, api.NotFound)
	log := words(a.actions(t, "anna", "", 12))
	for _, want := range []string{"anna createCluster cluster/web anna done",
		"anna deleteCluster cluster/renamed anna done", "anna changeCluster cluster/web anna generation_mismatch",
		"anna createCluster cluster/x anna no_capacity"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

// TestCredentialsAreTheirUsers: other users cannot use them, admins may remove them, and no answer contains a secret.
func TestCredentialsAreTheirUsers(t *testing.T) {
	t.Parallel()
	a := pretending(t)
	const secret = "hunter-2-is-my-secret"
	etcdtest.Issued(secret)
	ask := func(as, method, path string, body any) answer {
		got := a.ask(t, as, method, "/v1/credentials"+path, body)
		got.hides(t, secret, base64.StdEncoding.EncodeToString([]byte(secret)))
		return got
	}
	lab := fields{"name": "lab", "site": "pretend", "username": "anna", "project_name": "there", "secret": secret}
	var made cluster.Credential
	got := ask("anna", http.MethodPost, "", lab)
	got.want(t, http.StatusCreated, "")
	got.into(t, &made)
	if made.User != "anna" || made.Project != "anna" || made.VerifiedAt.IsZero() || made.Secret != nil {
		t.Errorf("stored %+v", made)
	}
	ask("anna", http.MethodPost, "", lab).want(t, http.StatusConflict, api.NameTaken)
	ask("anna", http.MethodPost, "", fields{"name": "x", "site": "pretend", "secret": secret, "kind": secret}).
		want(t, http.StatusBadRequest, api.SchemaViolation)
	for _, wrong := range []fields{{"name": "x", "site": "pretend", "secret": []string{secret}},
		{"name": "x", "site": "pretend", "secret": secret, "secrets": secret},
		{"name": "x", "site": "pretend", "secret": strings.Repeat(secret, 500)}} {
		ask("anna", http.MethodPost, "", wrong).want(t, http.StatusBadRequest, api.SchemaViolation)
	}
	ask("anna", http.MethodPost, "", fields{"name": "x", "site": "nowhere", "secret": secret}).
		want(t, http.StatusNotFound, api.NotFound)

	var list api.CredentialList
	for _, as := range []string{"anna", "admin", "operator"} {
		ask(as, http.MethodGet, map[bool]string{true: "", false: "?all=true"}[as == "anna"], nil).into(t, &list)
		if len(list.Credentials) != 1 || list.Credentials[0].ID != made.ID {
			t.Errorf("%s sees %+v", as, list)
		}
	}
	ask("admin", http.MethodGet, "", nil).into(t, &list)
	if len(list.Credentials) != 0 {
		t.Errorf("the admin's own are %+v", list)
	}
	ask("anna", http.MethodGet, "?all=true", nil).want(t, http.StatusForbidden, api.ForbiddenVerb)
	ask("reader", http.MethodGet, "", nil).want(t, http.StatusForbidden, api.ForbiddenVerb)
	for _, as := range []string{"berta", "adam"} {
		for _, path := range []string{"/lab", "/" + string(made.ID)} {
			ask(as, http.MethodGet, path, nil).want(t, http.StatusNotFound, api.NotFound)
			ask(as, http.MethodDelete, path, nil).want(t, http.StatusNotFound, api.NotFound)
		}
	}
	ask("admin", http.MethodGet, "/lab", nil).want(t, http.StatusNotFound, api.NotFound) // by its name
	ask("admin", http.MethodPatch, "/"+string(made.ID), fields{"secret": "mine"}).
		want(t, http.StatusNotFound, api.NotFound)
	ask("anna", http.MethodPatch, "/lab", fields{"secret": secret + "2"}).want(t, http.StatusOK, "")
	ask("operator", http.MethodDelete, "/"+string(made.ID), nil).want(t, http.StatusNoContent, "")
	ask("anna", http.MethodGet, "/lab", nil).want(t, http.StatusNotFound, api.NotFound)
	log := ""
	for last := "olga removeCredential credential/lab anna done"; !strings.Contains(log, last); {
		log = words(a.actions(t, "anna", "", 8)) // entries are written soon after their answers
	}
	if strings.Contains(log, secret) || !strings.Contains(log, "anna createCredential credential/lab anna done") ||
		!strings.Contains(log, "olga removeCredential credential/lab anna done") {
		t.Errorf("the log is\n%s", log)
	}
}

// TestWhatSitesAndAppliancesTell: all users see where passwords are sent, and only operators see the defaults that they
// contain.
func TestWhatSitesAndAppliancesTell(t *testing.T) {
	t.Parallel()
	a := pretending(t)
	ask := func(as, method, path string, body any) answer { return a.ask(t, as, method, "/v1/"+path, body) }
	ask("operator", http.MethodPost, "sites", fields{"name": "lab", "type": "openstack",
		"auth_url": "https://lab.example:5000/v3", "build_timeout": 120}).want(t, http.StatusCreated, "")
	var lab cluster.Site
	got := ask("reader", http.MethodGet, "sites/lab", nil)
	got.into(t, &lab)
	if lab.AuthURL != "https://lab.example:5000/v3" || lab.BuildTimeout != cluster.Seconds(2*time.Minute) ||
		!lab.Enabled {
		t.Errorf("a reader sees %+v", lab)
	}
	ask("reader", http.MethodGet, "sites/pretend", nil).hides(t, "inside")
	ask("anna", http.MethodPatch, "sites/lab", fields{"auth_url": "https://evil.example"}).
		want(t, http.StatusForbidden, api.ForbiddenVerb)
	a.askWith(t, "operator", http.MethodPatch, "/v1/sites/lab", fields{"priority": 1}, "If-Match", `"0"`).
		want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	a.askWith(t, "operator", http.MethodPatch, "/v1/sites/lab", fields{"priority": 1}, "If-Match", got.generation()).
		want(t, http.StatusOK, "")
	ask("operator", http.MethodDelete, "sites/pretend", nil).want(t, http.StatusConflict, api.InUse)
	ask("operator", http.MethodDelete, "sites/lab", nil).want(t, http.StatusNoContent, "")
	var health cluster.SiteHealth
	ask("anna", http.MethodGet, "sites/local/health", nil).into(t, &health)
	if !health.Reachable || !health.Builds || health.Free != nil {
		t.Errorf("anna sees %+v", health)
	}
	ask("operator", http.MethodGet, "sites/local/health", nil).into(t, &health)
	if health.Free["VCPU"] == 0 {
		t.Errorf("the operator sees %+v", health)
	}

	ask("anna", http.MethodPost, "appliances", fields{"name": "own"}).want(t, http.StatusCreated, "")
	ask("anna", http.MethodPost, "appliances", fields{"name": "all", "public": true}).
		want(t, http.StatusForbidden, api.ForbiddenVerb)
	ask("anna", http.MethodPatch, "appliances/own", fields{"public": true}).
		want(t, http.StatusForbidden, api.ForbiddenVerb)
	ask("anna", http.MethodPost, "appliances/demo/implementations", fields{"site": "pretend", "template": "{}"}).
		want(t, http.StatusForbidden, api.ForbiddenVerb)
	ask("berta", http.MethodGet, "appliances/own", nil).want(t, http.StatusNotFound, api.NotFound)
	ask("berta", http.MethodGet, "appliances/demo", nil).want(t, http.StatusOK, "")
	ask("anna", http.MethodPost, "appliances/own/implementations", fields{"site": "pretend", "template": "a: [\n"}).
		want(t, http.StatusBadRequest, api.BadRequest)
	got = ask("anna", http.MethodPost, "appliances/own/implementations", fields{"site": "pretend", "template": "{}"})
	var how cluster.Implementation
	got.want(t, http.StatusCreated, "")
	got.into(t, &how)
	at := "appliances/own/implementations/" + string(how.ID)
	ask("anna", http.MethodPatch, at, fields{"enabled": false}).want(t, http.StatusOK, "")
	ask("anna", http.MethodDelete, "appliances/own", nil).want(t, http.StatusConflict, api.InUse)
	ask("berta", http.MethodDelete, at, nil).want(t, http.StatusNotFound, api.NotFound)
	ask("anna", http.MethodDelete, at, nil).want(t, http.StatusNoContent, "")
	ask("anna", http.MethodDelete, "appliances/own", nil).want(t, http.StatusNoContent, "")

	// Two projects have appliances of the same name, and neither sees the other's.
	for _, who := range []string{"anna", "berta"} {
		ask(who, http.MethodPost, "appliances", fields{"name": "own", "description": who}).
			want(t, http.StatusCreated, "")
		ask(who, http.MethodPost, "appliances", fields{"name": "own"}).want(t, http.StatusConflict, api.NameTaken)
		ask(who, http.MethodPost, "appliances", fields{"name": "demo"}).want(t, http.StatusConflict, api.NameTaken)
		ask(who, http.MethodPost, "appliances/own/implementations", fields{"site": "pretend", "template": "{}"}).
			want(t, http.StatusCreated, "")
	}
	ask("operator", http.MethodGet, "appliances/own", nil).want(t, http.StatusConflict, api.BadState)
	ask("operator", http.MethodPost, "appliances", fields{"name": "own", "public": true}).
		want(t, http.StatusCreated, "")
	for _, who := range []string{"anna", "berta"} {
		var all api.ApplianceList
		ask(who, http.MethodGet, "appliances", nil).into(t, &all)
		var found []string
		for _, a := range all.Appliances {
			if a.Name == "own" {
				found = append(found, a.Description)
			}
		}
		if !slices.Equal(found, []string{who}) {
			t.Errorf("%s sees appliances of %v", who, found)
		}
		var implementations api.ImplementationList
		ask(who, http.MethodGet, "appliances/own/implementations", nil).into(t, &implementations)
		if len(implementations.Implementations) != 1 || implementations.Implementations[0].Appliance != "own" {
			t.Errorf("%s sees %+v", who, implementations)
		}
		var made api.Cluster
		got := ask(who, http.MethodPost, "clusters?wait=60", fields{"name": "of-own", "appliance": "own"})
		got.into(t, &made)
		if made.Appliance != "own" || made.Implementation != implementations.Implementations[0].ID {
			t.Errorf("%s got %s", who, got.body)
		}
	}

	ask("anna", http.MethodPost, "images", fields{"name": "disk"}).want(t, http.StatusForbidden, api.ForbiddenVerb)
	ask("operator", http.MethodPost, "images", fields{"name": "disk", "url": "https://secret.example/disk.qcow2",
		"sha256": strings.Repeat("0", 64)}).want(t, http.StatusCreated, "")
	ask("anna", http.MethodGet, "images", nil).hides(t, "secret.example")
	ask("anna", http.MethodGet, "images/disk", nil).hides(t, "secret.example")
	ask("anna", http.MethodPut, "images/disk/sites/pretend", fields{"ref": "mine"}).
		want(t, http.StatusForbidden, api.ForbiddenVerb)
	ask("operator", http.MethodPut, "images/disk/sites/pretend", fields{"ref": "there"}).want(t, http.StatusOK, "")
	ask("operator", http.MethodDelete, "images/disk", nil).want(t, http.StatusNoContent, "")
}

// withAgent returns the clusters of anna: web, which has an agent, and young, which is not ready. Each account that the
// agent makes has another password.
func withAgent(t *testing.T) *requests.Service {
	t.Helper()
	var made atomic.Int64
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"username": "user", "password": "password%d"}`, made.Add(1))
	}))
	t.Cleanup(agent.Close)
	key := filepath.Join(t.TempDir(), "key")
	etcdtest.Must(seal.Generate(key))(t)
	store, partition := clustertest.NewStore(), croft.NewPartitionID()
	etcdtest.Must(store.PutAppliance(t.Context(), cluster.Appliance{Name: "slurm", Agent: &cluster.Agent{}}))(t)
	for name, state := range map[string]cluster.State{"web": cluster.Ready, "young": cluster.Building} {
		c := clustertest.NewCluster(name)
		c.Project, c.User, c.State, c.MasterIP = "anna", name, state, "192.0.2.1"
		etcdtest.Must(store.Create(t.Context(), c, 0))(t)
	}
	return etcdtest.Must(requests.New(requests.Config{Backends: cluster.Backends{Partition: partition, Records: store,
		Catalogue: store, Accounts: store, Drivers: map[cluster.SiteType]cluster.Driver{cluster.Sim: sim.New()},
		Vault: etcdtest.Must(seal.Load(key))(t), Log: slog.New(slog.DiscardHandler)},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, agent.Listener.Addr().String())
		}}))(t)
}

// TestAnAccountIsItsUsers: only the answer to its user contains its password.
func TestAnAccountIsItsUsers(t *testing.T) {
	t.Parallel()
	url, _ := controltest.StartWith(t, func(c *cloud.Cloud) { c.Clusters = withAgent(t) })
	a := newAsker(t, url)
	for i, as := range []string{"anna", "admin"} {
		got := a.ask(t, as, http.MethodPut, "/v1/clusters/web/accounts/me", nil)
		got.want(t, http.StatusCreated, "")
		var account api.ClusterAccount
		got.into(t, &account)
		if account.Username != "user" || account.Password != fmt.Sprint("password", i+1) ||
			got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s got %s", as, got.body)
		}
	}
	a.ask(t, "adam", http.MethodPut, "/v1/clusters/web/accounts/me", nil).want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "reader", http.MethodPut, "/v1/clusters/web/accounts/me", nil).
		want(t, http.StatusForbidden, api.ForbiddenVerb)
	got := a.ask(t, "anna", http.MethodPut, "/v1/clusters/young/accounts/me", nil)
	got.want(t, http.StatusServiceUnavailable, api.BackendDown)
	if got.header.Get("Retry-After") == "" || !strings.Contains(got.problem.Detail, "once it is ready") {
		t.Errorf("of a cluster that is not ready it says %v, %s", got.header, got.body)
	}
}
