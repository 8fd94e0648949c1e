package heat_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/heat"
)

// site is a server that simulates behaviour that a real site does not show on demand. Its Keystone accepts every
// password.
type site struct {
	*httptest.Server
	keystone http.HandlerFunc // replaces the Keystone
	heat     http.HandlerFunc
	hangs    bool // the driver uses a short timeout
	nova     http.HandlerFunc
	neutron  http.HandlerFunc
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	own := map[string]http.HandlerFunc{"v3": s.keystone, "orchestration": s.heat, "compute": s.nova,
		"network": s.neutron}[kind]
	switch {
	case own != nil:
		own(w, r)
	case r.URL.Path == "/v3/":
		answer(w, 200, `{"version": {"id": "v3.14"}}`)
	case r.URL.Path == "/v3/auth/tokens":
		w.Header().Set("X-Subject-Token", "token-of-the-test")
		answer(w, 201, s.token())
	default:
		answer(w, 404, `{"error": {"message": "no"}}`)
	}
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// token returns a token for the services that the site has.
func (s *site) token() string {
	var catalog []any
	for kind, there := range map[string]bool{"orchestration": s.heat != nil, "compute": s.nova != nil,
		"network": s.neutron != nil} {
		if there {
			catalog = append(catalog, map[string]any{"type": kind,
				"endpoints": []any{map[string]any{"interface": "public",
					"region": "RegionOne", "region_id": "RegionOne", "url": s.URL + "/" + kind + "/"}}})
		}
	}
	text, _ := json.Marshal(map[string]any{"token": map[string]any{"expires_at": "2100-01-01T00:00:00.000000Z",
		"project": map[string]any{"id": "p1", "name": "demo"}, "catalog": catalog}})
	return string(text)
}

func newSite(t *testing.T, s *site) (*heat.Driver, cluster.SiteAccess) {
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	timeout := time.Minute
	if s.hangs {
		timeout = time.Second
	}
	return open(t, heat.Config{Timeout: timeout}), access(s.URL)
}

func access(address string) cluster.SiteAccess {
	return cluster.SiteAccess{Site: cluster.Site{Name: "east", AuthURL: address + "/v3", Region: "RegionOne"},
		Credential: cluster.Credential{ID: "c", Username: "ada", ProjectName: "demo"},
		Secret:     cluster.NewSecret("correct-horse"), Partition: "p"}
}

func TestServersThatAreNone(t *testing.T) {
	page := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "<html>correct-horse</html>")
		}
	}
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for _, c := range []struct {
		name  string
		what  http.HandlerFunc
		words string
	}{
		{"a web page", page(200), "web page"},
		{"a web page that says nothing is found", page(404), "web page"},
		{"a web page of a proxy", page(502), "web page (502"},
		{"text", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, "not JSON"},
		{"half of an answer", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, `{"stacks": [`) },
			"not JSON"},
		{"an error without a body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "500"},
		{"404 without the words of Heat", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, "404"},
		{"a redirect to a metadata server", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusTemporaryRedirect)
		}, "redirects to another server"},
		{"redirects without end", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, "redirects for ever"},
		{"nothing", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the caller left
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}, "in time"},
		{"a body that never ends", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"stacks": ["`)
			for many := strings.Repeat("a", 1<<16); ; {
				if _, err := io.WriteString(w, many); err != nil {
					return
				}
			}
		}, "longer than it may be"},
		{"a gigabyte that is announced", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", fmt.Sprint(1<<30))
			for many := strings.Repeat(" ", 1<<16); ; {
				if _, err := io.WriteString(w, many); err != nil {
					return
				}
			}
		}, "longer than it may be"},
		{"a connection that breaks", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"closed"},
	} {
		t.Run("Heat: "+c.name, func(t *testing.T) {
			t.Parallel()
			d, at := newSite(t, &site{heat: c.what, hangs: c.name == "nothing"})
			_, err := d.List(t.Context(), at)
			unavailable(t, err, c.words)
			id := croft.NewClusterID()
			seen, err := d.Observe(t.Context(), at, []cluster.Build{{Partition: "p", Cluster: id,
				Implementation: cluster.Implementation{Template: small}, Remote: cluster.Remote{ID: "x", Name: "n"}}})
			if _, learned := seen[id]; learned {
				t.Errorf("%+v was learned", seen)
			}
			unavailable(t, err, c.words)
		})
		t.Run("Keystone: "+c.name, func(t *testing.T) {
			t.Parallel()
			d, at := newSite(t, &site{keystone: c.what, hangs: c.name == "nothing"})
			_, err := d.List(t.Context(), at)
			unavailable(t, err, c.words, "answers 200 OK") // a token comes with status 201
			_, err = d.Probe(t.Context(), at)
			unavailable(t, err, c.words)
		})
	}
}

// unavailable checks that an error is Unavailable, in one line and without a secret.
func unavailable(t *testing.T, err error, words ...string) {
	t.Helper()
	if croft.KindOf(err) != croft.Unavailable || !slices.ContainsFunc(words, func(w string) bool {
		return strings.Contains(err.Error(), w)
	}) || strings.Contains(err.Error(), "correct-horse") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v (%s), want %q", err, croft.KindOf(err), words)
	}
}

func TestCertificates(t *testing.T) {
	s := &site{heat: func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, `{"stacks": []}`) }}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	for _, c := range []struct{ name, address, ca, words string }{
		{"of an authority that nobody knows", s.URL, "", "no known authority"},
		{"of another name", strings.Replace(s.URL, "127.0.0.1", "localhost", 1), ca,
			"127.0.0.1, ::1, not for localhost"},
		{"none", strings.Replace(s.URL, "https:", "http:", 1), ca, "400"},
		{"of the site's authority", s.URL, ca, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := access(c.address)
			at.Site.CACert = c.ca
			_, err := open(t, heat.Config{Timeout: 2 * time.Second}).List(t.Context(), at)
			if c.words == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			unavailable(t, err, c.words)
		})
	}
}

func TestMetadataServersAreNotCalled(t *testing.T) {
	for _, address := range []string{"http://169.254.169.254", "http://[fe80::1]:80", "http://[::ffff:169.254.169.254]",
		"http://[fd00:ec2::254]", "http://100.100.100.200", "http://0.0.0.0"} {
		t.Run(address, func(t *testing.T) {
			_, err := open(t, heat.Config{Timeout: 2 * time.Second}).Probe(t.Context(), access(address))
			if croft.KindOf(err) != croft.Unavailable || !strings.Contains(err.Error(), "address") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRoom(t *testing.T) {
	const plenty = `{"limits": {"absolute": {"maxTotalCores": 20, "totalCoresUsed": 8, "maxTotalRAMSize": -1,
		"totalRAMUsed": 1, "maxTotalInstances": 10, "totalInstancesUsed": 2}}}`
	said := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, text) }
	}
	none := said(`{"stacks": []}`)
	needs := map[cluster.Role]croft.Resources{cluster.Master: {croft.VCPU: 4}, cluster.Slave: {croft.VCPU: 2}}
	for _, c := range []struct {
		name    string
		nova    http.HandlerFunc
		neutron http.HandlerFunc
		needs   map[cluster.Role]croft.Resources
		slaves  int
		growth  bool
		image   bool
		want    cluster.Room
	}{
		{"without Nova it is not known", nil, nil, needs, 2, false, false, cluster.Room{}},
		{"without needs it is not known", said(plenty), nil, nil, 2, false, false, cluster.Room{}},
		{"what fits leaves a part free", said(plenty), nil, needs, 1, false, false,
			cluster.Room{Known: true, Fits: true, Free: 0.3}},
		{"what does not fit says what is left", said(plenty), nil, needs, 5, false, false,
			cluster.Room{Known: true, Why: "needs 14 VCPU, 12 are left"}},
		{"growth needs no master", said(plenty), nil, needs, 5, true, false,
			cluster.Room{Known: true, Fits: true, Free: 0.1}},
		{"too many instances are known without needs", said(plenty), nil, nil, 8, false, false,
			cluster.Room{Known: true, Why: "needs 9 instances, 8 are left"}},
		{"a floating IP is needed where the template has one", said(plenty),
			said(`{"quota": {"floatingip": {"limit": 3, "used": 2, "reserved": 1}}}`), needs, 1, false, true,
			cluster.Room{Known: true, Why: "needs 1 floating IPs, 0 are left"}},
		{"and not where it has none", said(plenty),
			said(`{"quota": {"floatingip": {"limit": 3, "used": 2, "reserved": 1}}}`), needs, 1, true, false,
			cluster.Room{Known: true, Fits: true, Free: 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, at := newSite(t, &site{heat: none, nova: c.nova, neutron: c.neutron})
			b := cluster.Build{Growth: c.growth, Indexes: make([]int, c.slaves),
				Implementation: cluster.Implementation{Template: small, Resources: c.needs}}
			if c.image {
				b.Implementation.Template, b.Implementation.Image = "", "debian-12"
			}
			got, err := d.Room(t.Context(), at, b)
			if c.name == "and not where it has none" {
				got.Free = 0
			}
			if got.Free = float64(int(got.Free*100+0.5)) / 100; err != nil || got != c.want {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

func TestLackOfRoomIsKnownByItsWords(t *testing.T) {
	for message, want := range map[string]croft.Kind{
		"Quota exceeded for cores: Requested 4, but already used 20 of 20 cores": croft.NoCapacity,
		"You have reached the maximum stacks per tenant, 10.":                    croft.NoCapacity,
		"You are not authorized to complete this action.":                        croft.Denied,
	} {
		d, at := newSite(t, &site{heat: func(w http.ResponseWriter, _ *http.Request) {
			text, _ := json.Marshal(map[string]any{"error": map[string]any{"type": "Forbidden", "message": message}})
			answer(w, 403, string(text))
		}})
		if _, err := d.List(t.Context(), at); croft.KindOf(err) != want || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: got %v", message, err)
		}
	}
}

// TestSilenceIsTheLackOfAResponse checks that only a missing response can close a site; a fault that the site answered
// with affects one request.
func TestSilenceIsTheLackOfAResponse(t *testing.T) {
	said := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { answer(w, status, text) }
	}
	for _, c := range []struct {
		name          string
		what          http.HandlerFunc
		hangs, silent bool
	}{
		{"nothing", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, true, true},
		{"a connection that breaks", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false,
			true},
		{"a fault of Heat", said(500, `{"error": {"type": "CircularDependencyException", "message": "circle"}}`), false,
			false},
		{"a page of a proxy", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, false, false},
		{"half of an answer", said(200, `{"stacks": [`), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, at := newSite(t, &site{heat: c.what, hangs: c.hangs})
			_, err := d.List(t.Context(), at)
			_, silent := errors.AsType[*cluster.SilentError](err)
			_, fault := errors.AsType[*cluster.FaultError](err)
			if silent != c.silent || fault == c.silent {
				t.Errorf("silent %t, fault %t: %v", silent, fault, err)
			}
		})
	}
	t.Run("a server that is down", func(t *testing.T) {
		d, at := newSite(t, &site{})
		at.Site.AuthURL = "http://127.0.0.1:1/v3"
		_, err := d.List(t.Context(), at)
		if _, silent := errors.AsType[*cluster.SilentError](err); !silent {
			t.Errorf("got %v", err)
		}
	})
}

// TestAFullProjectIsARefusal: with status 400 Heat says that the project has its maximum of stacks; it has created
// none.
func TestAFullProjectIsARefusal(t *testing.T) {
	s := &site{heat: func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/validate"):
			answer(w, 200, `{}`)
		case r.Method == http.MethodPost:
			answer(w, 400, `{"error": {"type": "RequestLimitExceeded",
				"message": "You have reached the maximum stacks per tenant, 1. Please delete some stacks."}}`)
		default:
			answer(w, 200, `{"stacks": []}`)
		}
	}}
	d, at := newSite(t, s)
	b := cluster.Build{Partition: "p", Cluster: croft.NewClusterID(),
		Implementation: cluster.Implementation{Template: small}, Remote: cluster.Remote{Name: "n", Asked: true}}
	if _, err := d.Launch(t.Context(), at, b); croft.KindOf(err) != croft.NoCapacity {
		t.Errorf("the launch: %v (%s)", err, croft.KindOf(err))
	}
	patient := open(t, heat.Config{Settle: time.Millisecond})
	if err := patient.Destroy(t.Context(), at, b); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("the first removal of what may be under way: %v", err)
	}
	time.Sleep(2 * time.Millisecond)
	if err := patient.Destroy(t.Context(), at, b); err != nil {
		t.Errorf("the removal does not end: %v", err)
	}
}

// TestValidationHasTheParameters: a condition may need them, and a fault of Heat's own code is blamed on the template.
func TestValidationHasTheParameters(t *testing.T) {
	validation := `{}`
	status := 200
	s := &site{heat: func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/validate") {
			answer(w, 400, `{"error": {"type": "StackValidationFailed", "message": "enough"}}`)
			return
		}
		var body struct{ Parameters map[string]any }
		_ = json.NewDecoder(r.Body).Decode(&body)
		if _, told := body.Parameters["cluster_size"]; !told {
			answer(w, 400, `{"error": {"type": "UserParameterMissing", "message": "cluster_size was not provided"}}`)
			return
		}
		answer(w, status, validation)
	}}
	d, at := newSite(t, s)
	b := cluster.Build{Partition: "p", Cluster: croft.NewClusterID(), Remote: cluster.Remote{Name: "n"},
		Implementation: cluster.Implementation{Template: sized}}
	if _, err := d.Launch(t.Context(), at, b); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("with a condition on a parameter: %v", err)
	}
	for kind, want := range map[string]croft.Kind{"CircularDependencyException": croft.Invalid, "error": croft.Invalid,
		"DBConnectionError": croft.Unavailable, "MessagingTimeout": croft.Unavailable,
		"AuthorizationFailure": croft.Unavailable} {
		status, validation = 500, `{"error": {"type": "`+kind+`", "message": "made up"}}`
		if _, err := d.Launch(t.Context(), at, b); croft.KindOf(err) != want {
			t.Errorf("%s: got %v (%s), want %s", kind, err, croft.KindOf(err), want)
		}
	}
}

// sized is a template with the parameter cluster_size.
const sized = `heat_template_version: 2018-08-31
parameters: {cluster_size: {type: number}}
resources: {master: {type: "OS::Heat::Value", properties: {value: 10.1.1.1}}}
outputs: {master_ip: {value: {get_attr: [master, value]}}, worker_ips: {value: []}}
`

// TestOutputsOfACompleteStackAreFinal checks that faulty outputs cause a failure that names the output.
func TestOutputsOfACompleteStackAreFinal(t *testing.T) {
	for outputs, want := range map[string]string{
		`"worker_ips": ["10.0.0.2"]`:             "output worker_ips has 1 slaves, but the stack was asked for 2",
		`"worker_ips": null`:                     "output worker_ips is <nil>, which is no list of hosts",
		`"hosts": [], "worker_ips": ["1", "2"]`:  "output hosts has 0 slaves, but the stack was asked for 2",
		`"worker_ips": ["10.0.0.2", "10.0.0.3"]`: "",
	} {
		t.Run(outputs, func(t *testing.T) {
			id := croft.NewClusterID()
			var all []any
			var parsed map[string]any
			if err := json.Unmarshal([]byte(`{"master_ip": "10.0.0.1", `+outputs+`}`), &parsed); err != nil {
				t.Fatal(err)
			}
			for key, value := range parsed {
				all = append(all, map[string]any{"output_key": key, "output_value": value})
			}
			stack := map[string]any{"id": "s", "stack_name": "n", "stack_status": "CREATE_COMPLETE",
				"creation_time": "2026-01-01T00:00:00Z", "tags": []string{"croft", "croft-p", "croft-" + string(id)},
				"parameters": map[string]string{"cluster_size": "2"}, "outputs": all}
			s := &site{heat: func(w http.ResponseWriter, r *http.Request) {
				body := map[string]any{"stack": stack}
				if strings.HasSuffix(r.URL.Path, "/stacks") {
					body = map[string]any{"stacks": []any{stack}}
				}
				text, _ := json.Marshal(body)
				answer(w, 200, string(text))
			}}
			d, at := newSite(t, s)
			seen, err := d.Observe(t.Context(), at, []cluster.Build{{Partition: "p", Cluster: id, Indexes: []int{0, 1},
				Implementation: cluster.Implementation{Template: sized}, Remote: cluster.Remote{ID: "s", Name: "n"}}})
			if got := seen[id]; err != nil || got.Phase != cluster.Standing || got.Failure != want {
				t.Errorf("it is %s, %q, %v", got.Phase, got.Failure, err)
			}
		})
	}
}

// TestAProbeAsksKeystone: a cached login does not prove that the password is still valid.
func TestAProbeAsksKeystone(t *testing.T) {
	changed := false
	s := &site{heat: func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, `{"stacks": []}`) }}
	s.keystone = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/v3/auth/tokens":
			answer(w, 200, `{"version": {"id": "v3.14"}}`)
		case changed:
			answer(w, 401, `{"error": {"message": "wrong password"}}`)
		default:
			w.Header().Set("X-Subject-Token", "token-of-the-test")
			answer(w, 201, s.token())
		}
	}
	d, at := newSite(t, s)
	if p, err := d.Probe(t.Context(), at); err != nil || !p.Accepted {
		t.Fatalf("before: %+v, %v", p, err)
	}
	changed = true
	if p, err := d.Probe(t.Context(), at); croft.KindOf(err) != croft.Denied || p.Accepted {
		t.Errorf("after the password was changed: %+v, %v", p, err)
	}
}

// TestARevokedTokenIsRenewed: Heat answers with 500 for a revoked token, and only a login shows whether the credential
// is refused.
func TestARevokedTokenIsRenewed(t *testing.T) {
	logins, revoked := 0, true
	s := &site{}
	s.heat = func(w http.ResponseWriter, _ *http.Request) {
		if revoked {
			answer(w, 500, `{"error": {"type": "AuthorizationFailure", "message": "revoked"}}`)
			return
		}
		answer(w, 200, `{"stacks": []}`)
	}
	s.keystone = func(w http.ResponseWriter, _ *http.Request) {
		logins++
		revoked = logins == 1
		w.Header().Set("X-Subject-Token", "token-of-the-test")
		answer(w, 201, s.token())
	}
	d, at := newSite(t, s)
	if _, err := d.List(t.Context(), at); croft.KindOf(err) != croft.Unavailable {
		t.Fatalf("with a revoked token: %v", err)
	}
	if _, err := d.List(t.Context(), at); err != nil || logins != 2 {
		t.Errorf("after %d logins: %v", logins, err)
	}
}
