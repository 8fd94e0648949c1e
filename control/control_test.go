package control_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"croft"
	"croft/control"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/cloud"
	"croft/control/controltest"
	"croft/tenant/access"
	"croft/tenant/objects"
	"croft/tenant/objects/objectstest"
)

func TestTheDocumentIsServedWithItsHash(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	var root api.Cloud
	a.ask(t, "", http.MethodGet, "/v1", nil).into(t, &root)
	sum := sha256.Sum256(a.ask(t, "", http.MethodGet, "/openapi.json", nil).body)
	if root.Document != hex.EncodeToString(sum[:]) {
		t.Errorf("GET /v1 says %s, the document has %x", root.Document, sum)
	}
}

// TestEveryOperationIsServedAndDecided: the document, the handlers and the table of permissions have the same
// operations.
func TestEveryOperationIsServedAndDecided(t *testing.T) {
	t.Parallel()
	url, c := controltest.Start(t)
	a := newAsker(t, url)
	web := a.create(t, "anna", "web")
	for _, o := range control.Operations() {
		if strings.Contains(o.Summary, "WebSocket") || strings.HasPrefix(o.ID, "watch") {
			continue // these stream
		}
		path := strings.NewReplacer("/tickets/{id}", "/tickets/1", "{resource}", "1", "{id}", string(web),
			"{name}", "nokey", "{project}", "anna",
			"{things}", "instances", "{kind}", "instance", "{key}", "nokey", "{tag}", "notag").
			Replace(o.Path) + required(documented(o.ID))
		for token, role := range map[string]access.Role{"reader": access.Reader, "anna": access.Member} {
			got := a.ask(t, token, o.Method, path, map[string]any{"wrong": 1})
			denied := o.May.Decide(role) == access.No && !o.Open
			switch {
			case denied && o.Tag == "hosts":
				got.want(t, http.StatusNotFound, api.NotFound)
			case denied:
				got.want(t, http.StatusForbidden, api.ForbiddenVerb)
			case got.problem.Code == api.ForbiddenVerb:
				t.Errorf("a %s may %s, and is refused: %s", role, o.ID, got.body)
			}
			got.hides(t, "host1", string(c.Hosts["host1"].ID))
		}
		if !o.Open {
			got := a.ask(t, "", o.Method, path, nil)
			got.want(t, http.StatusUnauthorized, api.Unauthenticated)
			if got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s does not say how to authenticate", o.ID)
			}
			a.ask(t, "nobody", o.Method, path, nil).want(t, http.StatusUnauthorized, api.Unauthenticated)
		}
	}
}

func TestWhatIsAnothersIsNotFound(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	web := string(a.create(t, "anna", "web"))
	for _, path := range []string{
		"/v1/instances/" + web, "/v1/instances/web", "/v1/instances/web?project=anna", "/v1/instances?project=anna",
		"/v1/instances/" + web + "/log", "/v1/instances/" + web + "/events", "/v1/keys?project=anna",
		"/v1/events?project=anna", "/v1/hosts", "/v1/hosts/host1", "/v1/instances/" + web + "?project=berta",
		"/v1/instances?project=nobody", "/v1/instances?project=a%2Fb",
	} {
		got := a.ask(t, "berta", http.MethodGet, path, nil)
		got.want(t, http.StatusNotFound, api.NotFound)
	}
	for _, verb := range []string{"start", "stop", "reboot", "rebuild"} {
		a.ask(t, "berta", http.MethodPost, "/v1/instances/"+web+"/"+verb, nil).
			want(t, http.StatusNotFound, api.NotFound)
	}
	a.ask(t, "berta", http.MethodDelete, "/v1/instances/"+web, nil).want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "berta", http.MethodPost, "/v1/instances?project=anna", wanted()).
		want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "berta", http.MethodPost, "/v1/instances", wanted("id", web)).want(t, http.StatusConflict, api.UUIDReused)
	var list api.InstanceList
	a.ask(t, "berta", http.MethodGet, "/v1/instances", nil).into(t, &list)
	if len(list.Instances) != 0 {
		t.Errorf("berta sees %+v", list.Instances)
	}
	// The name is free in another project.
	a.create(t, "berta", "web")
}

// TestTenantsSeeNoHosts: neither instances nor explanations name hosts.
func TestTenantsSeeNoHosts(t *testing.T) {
	t.Parallel()
	url, c := controltest.Start(t)
	a := newAsker(t, url)
	host := string(c.Hosts["host1"].ID)
	web := string(a.create(t, "anna", "web"))
	hidden := []string{"host1", host, "croft/sessions", "PRIVATE KEY"}
	for _, path := range []string{"/v1/instances", "/v1/instances/web", "/v1/instances/" + web} {
		a.ask(t, "anna", http.MethodGet, path, nil).hides(t, hidden...)
	}
	a.ask(t, "anna", http.MethodPost, "/v1/instances/web/stop?wait=stopped", nil).hides(t, hidden...)
	a.ask(t, "anna", http.MethodPost, "/v1/candidates", wanted()).hides(t, hidden...)
	big := wanted("query", "VCPU:100,MEMORY_MB:256,DISK_GB:1")
	got := a.ask(t, "anna", http.MethodPost, "/v1/instances", big)
	got.want(t, http.StatusConflict, api.NoCapacity)
	got.hides(t, hidden...)
	if why := got.problem.Explanation; why == nil || len(why.Rows) != 1 || why.Rows[0].Hosts[0] != "host 1" {
		t.Errorf("the explanation is %+v", why)
	}
	// The image is a file of the host: the answer has only its base name.
	a.ask(t, "operator", http.MethodPost, "/v1/instances?project=anna",
		wanted("name", "filed", "image", "/srv/private/tiny.qcow2")).into(t, &api.Instance{})
	filed := a.ask(t, "anna", http.MethodGet, "/v1/instances/filed", nil)
	filed.hides(t, "/srv/private")
	var one api.Instance
	if filed.into(t, &one); one.Image != "tiny.qcow2" {
		t.Errorf("a tenant sees the image %q", one.Image)
	}
	for query, want := range map[string]int{"sort=image&limit=1": 1, "sort=-image&limit=1": 1, "image=/srv/private*": 0,
		"image=tiny.qcow2": 1, "not=image=/srv/*": 2} {
		var list api.InstanceList
		got := a.ask(t, "anna", http.MethodGet, "/v1/instances?"+query, nil)
		got.hides(t, "/srv/private")
		if got.into(t, &list); len(list.Instances) != want {
			t.Errorf("%s: a tenant finds %+v; want %d instances", query, list.Instances, want)
		}
	}
	// An operator sees them.
	var seen api.Instance
	a.ask(t, "operator", http.MethodGet, "/v1/instances/"+web, nil).into(t, &seen)
	if seen.Host != "host1" || string(seen.HostID) != host {
		t.Errorf("an operator sees %+v", seen.Host)
	}
}

func TestARepeatedCreateIsTheSameInstance(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	id := string(croft.NewInstanceID())
	first := wanted("id", id, "name", "web", "tags", map[string]string{"a": "b"}, "user_data", "aGVsbG8=")
	for range 3 {
		got := a.ask(t, "anna", http.MethodPost, "/v1/instances", first)
		got.want(t, http.StatusAccepted, "")
		if got.header.Get("Location") != "/v1/instances/"+id {
			t.Errorf("it is at %q", got.header.Get("Location"))
		}
	}
	for what, other := range map[string]map[string]any{
		"another name":   wanted("id", id, "name", "db", "tags", map[string]string{"a": "b"}, "user_data", "aGVsbG8="),
		"no tags":        wanted("id", id, "name", "web", "user_data", "aGVsbG8="),
		"other data":     wanted("id", id, "name", "web", "tags", map[string]string{"a": "b"}, "user_data", "aGVsbG9v"),
		"nothing else":   wanted("id", id),
		"another's name": wanted("id", id, "name", "web", "ephemeral", true),
	} {
		got := a.ask(t, "anna", http.MethodPost, "/v1/instances", other)
		if got.want(t, http.StatusConflict, api.UUIDReused); t.Failed() {
			t.Fatal(what)
		}
	}
	a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("name", "web")).
		want(t, http.StatusConflict, api.NameTaken)
	var list api.InstanceList
	a.ask(t, "anna", http.MethodGet, "/v1/instances", nil).into(t, &list)
	if len(list.Instances) != 1 {
		t.Errorf("there are %d instances", len(list.Instances))
	}
}

func TestListsArePaged(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	for _, name := range []string{"c", "a", "b"} {
		a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("name", name)).want(t, http.StatusAccepted, "")
	}
	var names []string
	for after := ""; ; {
		var page api.InstanceList
		a.ask(t, "anna", http.MethodGet, "/v1/instances?limit=2&after="+strings.ReplaceAll(after, "/", "%2F"),
			nil).into(t, &page)
		for _, one := range page.Instances {
			names = append(names, one.Name)
		}
		names = append(names, "|")
		if after = page.Next; after == "" {
			break
		}
	}
	if got := strings.Join(names, ""); got != "ab|c|" {
		t.Errorf("the pages are %s", got)
	}
	var page api.InstanceList
	if a.ask(t, "anna", http.MethodGet, "/v1/instances?after=a", nil).into(t, &page); len(page.Instances) != 2 {
		t.Errorf("behind a there are %d", len(page.Instances))
	}
}

func TestAWaitAnswersWhenItIsDone(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	a.create(t, "anna", "web")
	a.ask(t, "anna", http.MethodPost, "/v1/instances/web/stop?wait=stopped&timeout=1m", nil).want(t, http.StatusOK, "")
	// Nothing starts it, so the wait ends with the timeout.
	a.ask(t, "anna", http.MethodPost, "/v1/instances/web/stop?wait=running&timeout=50ms", nil).
		want(t, http.StatusAccepted, "")
	a.ask(t, "anna", http.MethodDelete, "/v1/instances/web?wait=gone", nil).want(t, http.StatusOK, "")
	a.ask(t, "anna", http.MethodGet, "/v1/instances/web", nil).want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "anna", http.MethodDelete, "/v1/instances/web?force=true", nil).
		want(t, http.StatusForbidden, api.ForbiddenVerb)
}

func TestKeysAreKeptByProject(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	line := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl anna"
	key := map[string]string{"name": "laptop", "line": line}
	a.ask(t, "anna", http.MethodPost, "/v1/keys", key).want(t, http.StatusCreated, "")
	a.ask(t, "anna", http.MethodPost, "/v1/keys", key).want(t, http.StatusConflict, api.NameTaken)
	a.ask(t, "reader", http.MethodPost, "/v1/keys", key).want(t, http.StatusForbidden, api.ForbiddenVerb)
	a.ask(t, "berta", http.MethodDelete, "/v1/keys/laptop", nil).want(t, http.StatusNotFound, api.NotFound)
	for _, bad := range []map[string]string{
		{"name": "auto", "line": line}, {"name": "a/b", "line": line}, {"name": "other", "line": "no key"},
	} {
		a.ask(t, "anna", http.MethodPost, "/v1/keys", bad).want(t, http.StatusBadRequest, api.BadRequest)
	}
	a.ask(t, "anna", http.MethodDelete, "/v1/keys/laptop", nil).want(t, http.StatusNoContent, "")
}

func TestATenantsImageIsOfTheCatalogOrASource(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	for _, image := range []string{"/etc/shadow", "file:///etc/shadow", "https://10.0.0.1/a.qcow2",
		"https://other.example/debian-12.qcow2"} {
		a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("image", image)).
			want(t, http.StatusForbidden, api.PropertyForbidden)
	}
	a.ask(t, "operator", http.MethodPost, "/v1/instances", wanted("image", "/images/tiny.qcow2")).
		want(t, http.StatusAccepted, "")
	for _, image := range []string{"debian-12", "https://images.example/a.qcow2"} {
		a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("image", image)).want(t, http.StatusAccepted, "")
	}
	a.ask(t, "anna", http.MethodPost, "/v1/candidates", wanted("image", "https://10.0.0.1/")).
		want(t, http.StatusForbidden, api.PropertyForbidden)
}

func TestAnImageThatATenantNamedIsOfTheInternetUnlessItsServerIsASource(t *testing.T) {
	t.Parallel()
	url, c := controltest.Start(t)
	a := newAsker(t, url)
	for _, v := range []struct {
		asker, image string
		want         bool
	}{
		{"anna", "https://images.example/a.qcow2", false},
		{"anna", "https://images.example/public/a.qcow2", true},
		{"operator", "https://images.example/public/a.qcow2", false},
	} {
		var made api.Instance
		a.ask(t, v.asker, http.MethodPost, "/v1/instances", wanted("image", v.image)).into(t, &made)
		stored, err := c.Store.Instances.Instance(t.Context(), made.ID)
		if err != nil || stored.Spec.ImagePublic != v.want {
			t.Errorf("%s of %s: public %v, %v", v.image, v.asker, stored.Spec.ImagePublic, err)
		}
	}
}

func TestTheCatalogIsListed(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	got := a.ask(t, "reader", http.MethodGet, "/v1/images", nil)
	got.hides(t, "other.example")
	for _, asker := range []answer{got, a.ask(t, "operator", http.MethodGet, "/v1/images", nil)} {
		var list api.Catalog
		asker.into(t, &list)
		if len(list.Images) != 1 || list.Images[0].Name != "debian-12" || len(list.Sources) != 1 {
			t.Errorf("listed %s", asker.body)
		}
	}
	a.ask(t, "anna", http.MethodPost, "/v1/hosts/host1/images", map[string]any{"image": "debian-12"}).
		want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "operator", http.MethodPost, "/v1/hosts/none/images", map[string]any{"image": "debian-12"}).
		want(t, http.StatusNotFound, api.NotFound)
	pulled := a.ask(t, "operator", http.MethodPost, "/v1/hosts/host1/images", map[string]any{"image": "debian-12"})
	pulled.want(t, http.StatusOK, "")
	if !strings.Contains(string(pulled.body), "event: image\ndata: {") {
		t.Errorf("pulled: %s", pulled.body)
	}
}

func TestACallerWhoAsksTooOftenWaits(t *testing.T) {
	t.Parallel()
	server, err := control.New(control.Config{Cloud: &cloud.Cloud{}, Callers: controltest.Known, Rate: 0.01, Burst: 3,
		Objects: objects.New(&objectstest.Memory{}), Images: controltest.Images{},
		Actions: actions.NewRecorder(nil, nil)})
	if err != nil {
		t.Fatal(err)
	}
	a := newAsker(t, controltest.Serve(t, server.Handler()))
	for i := range 10 {
		got := a.ask(t, "anna", http.MethodGet, "/v1/whoami", nil)
		if want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[i < 3]; got.status != want {
			t.Errorf("request %d: %d, want %d", i, got.status, want)
		} else if i >= 3 && got.header.Get("Retry-After") == "" {
			t.Error("it does not say when to ask again")
		}
		a.ask(t, "operator", http.MethodGet, "/v1/whoami", nil).want(t, http.StatusOK, "")
	}
	a.ask(t, "berta", http.MethodGet, "/v1/whoami", nil).want(t, http.StatusOK, "")
}

func TestBadInputIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	deep := strings.Repeat("[", 10_000)
	for _, c := range []struct {
		name, path string
		body       any
		code       api.Code
		says       string
	}{
		{"nothing", "instances", "", api.BadRequest, "empty"},
		{"not JSON", "instances", "{", api.BadRequest, "not JSON"},
		{"text behind it", "instances", `{"query":"a","image":"b"} x`, api.BadRequest, "behind"},
		{"a list", "instances", "[]", api.SchemaViolation, "array"},
		{"null", "instances", "null", api.SchemaViolation, "null"},
		{"10 MB", "instances", `{"name":"` + strings.Repeat("x", 10<<20) + `"}`, api.BadRequest, "longer than"},
		{"depth 10,000", "instances", `{"tags":` + deep, api.BadRequest, "deep"},
		{"a duplicate key", "instances", `{"query":"VCPU:1","query":"VCPU:2","image":"x"}`, api.BadRequest, "twice"},
		{"a duplicate key deep inside", "keys", `{"name":{"a":1,"a":2},"line":""}`, api.BadRequest, "twice"},
		{"an unknown field", "instances", wanted("nmae", "web"), api.SchemaViolation, `did you mean "name"?`},
		{"a field missing", "keys", map[string]any{"name": "x"}, api.SchemaViolation, "line"},
		{"a wrong type", "instances", wanted("name", 7), api.SchemaViolation, "/name is number, not string"},
		{"a number as a flag", "instances", wanted("ephemeral", 1), api.SchemaViolation, "/ephemeral"},
		{"a UUID that is none", "instances", wanted("id", "web"), api.SchemaViolation, "uuid"},
		{"an unknown word", "instances", wanted("restart", "nevr"), api.SchemaViolation, `did you mean "never"?`},
		{"a name of 4 kB", "instances", wanted("name", strings.Repeat("x", 4096)), api.SchemaViolation, "4096"},
		{"a name with a slash", "instances", wanted("name", "a/b"), api.BadRequest, "a/b"},
		{"a name with a control character", "instances", wanted("name", "a\x00b"), api.BadRequest, "name"},
		{"user-data that is no base64", "instances", wanted("user_data", "%%"), api.SchemaViolation, "base64"},
		{"a query with a typo", "instances", wanted("query", "VCPUS:1,MEMORY_MB:1,DISK_GB:1"), api.BadRequest, "VCPU"},
		{"a negative amount", "instances", wanted("query", "VCPU:-1,MEMORY_MB:256,DISK_GB:1"), api.BadRequest, "-1"},
		{"a fractional amount", "instances", wanted("query", "VCPU:1.5,MEMORY_MB:256,DISK_GB:1"), api.BadRequest,
			"1.5"},
		{"an affinity without a rule", "instances", wanted("affinities", []any{map[string]any{"group": "x"}}),
			api.SchemaViolation, "rule"},
		{"an explanation of nothing", "candidates", wanted("query", ""), api.SchemaViolation, "/query"},
		{"an unknown parameter", "instances?wiat=running", wanted(), api.BadQuery, `did you mean "wait"?`},
		{"an unknown goal", "instances?wait=runing", wanted(), api.BadQuery, `did you mean "running"?`},
		{"a timeout without a unit", "instances?wait=running&timeout=20", wanted(), api.BadQuery, "of 10m at most"},
		{"a timeout that is too long", "instances?timeout=1h", wanted(), api.BadQuery, "timeout is no duration"},
		{"a parameter twice", "instances?wait=gone&wait=gone", wanted(), api.BadQuery, "twice"},
		{"a query string that is none", "instances?wait=%zz", wanted(), api.BadQuery, "query string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := a.ask(t, "anna", http.MethodPost, "/v1/"+c.path, c.body)
			got.want(t, http.StatusBadRequest, c.code)
			if !strings.Contains(got.problem.Detail, c.says) {
				t.Errorf("it says %q, without %q", got.problem.Detail, c.says)
			}
			if c.code == api.SchemaViolation && len(got.problem.Errors) == 0 {
				t.Error("it names no field")
			}
		})
	}
	for _, path := range []string{"limit=0", "limit=-1", "limit=1.5", "limit=100000", "limit=x"} {
		a.ask(t, "anna", http.MethodGet, "/v1/instances?"+path, nil).want(t, http.StatusBadRequest, api.BadQuery)
	}
	for _, name := range []string{"a%2Fb", "%00", strings.Repeat("x", 4096), "%ff"} {
		for method, path := range map[string]string{http.MethodGet: "/v1/instances/", http.MethodDelete: "/v1/keys/"} {
			got := a.ask(t, "anna", method, path+name, nil)
			if got.status >= http.StatusInternalServerError || got.status < http.StatusMultipleChoices {
				t.Errorf("%s %s%.20s: %d %s", method, path, name, got.status, got.body)
			}
		}
	}
	a.ask(t, "anna", http.MethodPatch, "/v1/instances", nil).want(t, http.StatusMethodNotAllowed, api.BadRequest)
	a.ask(t, "anna", http.MethodGet, "/v2", nil).want(t, http.StatusNotFound, api.NotFound)
	var list api.InstanceList
	if a.ask(t, "operator", http.MethodGet, "/v1/instances", nil).into(t, &list); len(list.Instances) != 0 {
		t.Error("something was made: " + fmt.Sprint(list.Instances))
	}
}
