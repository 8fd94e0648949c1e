package control_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/cloud"
	"croft/control/controltest"
	"croft/internal/delay"
	"croft/tenant"
)

// actions lists the entries of the action log that a caller sees, oldest first, once there are n entries.
func (a asker) actions(t *testing.T, token, query string, n int) []actions.Entry {
	t.Helper()
	for {
		var page actions.Page
		a.ask(t, token, http.MethodGet, "/v1/log?"+query, nil).into(t, &page)
		if len(page.Entries) >= n {
			slices.Reverse(page.Entries)
			return page.Entries
		}
		if delay.For(t.Context(), 10*time.Millisecond) != nil {
			t.Fatalf("%s sees %+v, want %d entries", token, page.Entries, n)
		}
	}
}

// words returns entries in a short notation.
func words(all []actions.Entry) string {
	var lines []string
	for _, e := range all {
		lines = append(lines, strings.TrimSpace(strings.Join([]string{e.User, e.Operation, e.Object.String(),
			string(e.Project), e.Result}, " ")))
	}
	return strings.Join(lines, "\n")
}

func TestWhatChangesSomethingIsRecorded(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	var org tenant.Tenant
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "anna"}).into(t, &org)
	a.askWith(t, "operator", http.MethodPut, "/v1/projects/anna/quota",
		api.Limits{Limits: tenant.Limits{tenant.CountInstances: 1}}, "If-Match", `"0"`)
	got := a.ask(t, "operator", http.MethodGet, "/v1/projects/anna", nil)
	a.askWith(t, "operator", http.MethodPut, "/v1/projects/anna/quota",
		api.Limits{Limits: tenant.Limits{tenant.CountInstances: 1}}, "If-Match", got.generation())
	id := string(a.create(t, "anna", "web"))
	a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("name", "db")) // over quota
	a.ask(t, "reader", http.MethodPost, "/v1/instances/web/stop", nil)       // may not
	a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("nmae", "x"))  // no such field
	a.ask(t, "anna", http.MethodPost, "/v1/instances/"+id+"/stop?wait=stopped", nil)
	a.ask(t, "anna", http.MethodPost, "/v1/instances/none/stop", nil)
	a.ask(t, "anna", http.MethodGet, "/v1/instances/web", nil) // a read
	a.ask(t, "anna", http.MethodPost, "/v1/candidates", wanted())
	a.ask(t, "nobody", http.MethodDelete, "/v1/instances/web", nil) // unknown
	want := `
olga setQuota project/anna anna generation_mismatch
olga setQuota project/anna anna done
anna createInstance instance/web anna done
anna createInstance instance/db anna quota_exceeded
rita stopInstance instance/web anna forbidden_verb
anna createInstance instance anna schema_violation
anna stopInstance instance/web anna done
anna stopInstance instance/none anna not_found`
	all := a.actions(t, "anna", "", 8)
	if got := words(all); got != strings.TrimSpace(want) {
		t.Errorf("anna's log is\n%s\nwant%s", got, want)
	}
	for _, e := range all {
		if own := e.User != "olga"; (e.Via != "") != own || (e.From != "") != own || e.Operator == own {
			t.Errorf("anna sees %+v", e)
		}
	}
	for _, object := range []string{"web", "instance/web", id} {
		if got := a.actions(t, "reader", "object="+object, 2); len(got) < 2 || got[0].Object.ID != id {
			t.Errorf("%s: %s", object, words(got))
		}
	}
	var brief api.Instance // of a request that neither waits nor chooses an ID
	a.ask(t, "berta", http.MethodPost, "/v1/instances", wanted()).into(t, &brief)
	if got := a.actions(t, "berta", "object="+string(brief.ID), 1); got[0].Operation != "createInstance" {
		t.Errorf("the log of %s: %s", brief.ID, words(got))
	}
	if got := a.actions(t, "operator", "user=olga", 3); len(got) != 3 || got[2].From == "" || got[2].Via == "" {
		t.Errorf("the operator sees %+v", got)
	}
	for _, bad := range []string{"object=%2F", "since=yesterday", "limit=0", "limit=5001", "after=x", "nobody=x"} {
		if got := a.ask(t, "anna", http.MethodGet, "/v1/log?"+bad, nil); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, got.status, got.body)
		}
	}
}

func TestTheLogOfOthersIsNotThere(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	web := string(a.create(t, "berta", "web"))
	// anna's attempts on berta's objects are in anna's log, and in no other.
	a.ask(t, "anna", http.MethodDelete, "/v1/instances/"+web, nil).want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "anna", http.MethodDelete, "/v1/instances/web?project=berta", nil).
		want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "anna", http.MethodPut, "/v1/projects/berta/members", api.Members{}).
		want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "anna", http.MethodPost, "/v1/projects", api.NewProject{Name: "x", Parent: "berta"}) // may create none
	got := words(a.actions(t, "anna", "", 4))
	want := "anna destroyInstance instance/" + web + " anna not_found\nanna destroyInstance instance/web anna not_found\n" +
		"anna setMembers project/berta anna not_found\nanna createProject project anna forbidden_verb"
	if got != want {
		t.Errorf("anna's log is\n%s\nwant\n%s", got, want)
	}
	if got := words(a.actions(t, "berta", "", 1)); got != "berta createInstance instance/web berta done" {
		t.Errorf("berta's log is\n%s", got)
	}
	a.ask(t, "anna", http.MethodGet, "/v1/log?project=berta", nil).want(t, http.StatusNotFound, api.NotFound)
	if got := a.actions(t, "anna", "object="+web, 1); len(got) != 1 || got[0].User != "anna" {
		t.Errorf("of berta's instance, anna sees %s", words(got))
	}
	// The admin of org sees the actions in the projects below it, and filters them.
	a.ask(t, "operator", http.MethodPost, "/v1/keys?project=dev", map[string]string{"name": "a/b", "line": "x"})
	a.ask(t, "adam", http.MethodPost, "/v1/keys", map[string]string{"name": "auto", "line": "x"})
	if got := words(a.actions(t, "adam", "", 2)); got !=
		"olga addKey key/a/b dev bad_request\nadam addKey key/auto org bad_request" {
		t.Errorf("the admin sees\n%s", got)
	}
	if got := a.actions(t, "adam", "project=org", 1); len(got) != 1 {
		t.Errorf("in org alone, the admin sees\n%s", words(got))
	}
}

func TestNoSecretIsRecorded(t *testing.T) {
	t.Parallel()
	server, _ := controltest.Start(t)
	a := newAsker(t, server)
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "anna"})
	var made struct{ Token string }
	a.ask(t, "admin", http.MethodPost, "/v1/tokens", map[string]string{"user": "ute", "role": "member", "life": "24h",
		"note": "hush-hush"}).into(t, &made)
	a.ask(t, "admin", http.MethodDelete, "/v1/tokens/"+url.PathEscape(made.Token), nil)
	a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("name", "web", "user_data", "aHVzaC1odXNo"))
	a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("name", "web", "tags",
		map[string]string{"a": "hush-hush"}))
	a.actions(t, "admin", "", 4)
	a.ask(t, "operator", http.MethodGet, "/v1/log", nil).hides(t, made.Token[20:], "hush", "aHVzaC1odXNo")
	for _, e := range a.actions(t, "operator", "object=token/"+made.Token[6:18], 1) {
		if e.Result != actions.Done || e.Object.ID == "" {
			t.Errorf("the making of the token is %+v", e)
		}
	}
}

func TestAConsoleIsRecordedWhenItBegins(t *testing.T) {
	t.Parallel()
	server, _ := controltest.Start(t)
	a := newAsker(t, server)
	a.create(t, "anna", "web")
	conn, _, err := websocket.Dial(t.Context(), server+"/v1/instances/web/console", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer anna"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if got := words(a.actions(t, "anna", "", 2)); !strings.HasSuffix(got, "anna attachConsole instance/web anna done") {
		t.Errorf("the log is\n%s", got)
	}
}

// TestWhatIsRecordedFollowsFromTheAnswer: a console or a port that was not attached is not recorded as done, and a
// refusal by the WebSocket library is a problem like any other.
func TestWhatIsRecordedFollowsFromTheAnswer(t *testing.T) {
	t.Parallel()
	network := echo{make(chan croft.InstanceID, 100)}
	server, _ := controltest.StartWith(t, func(c *cloud.Cloud) { c.Ports = network })
	a := newAsker(t, server)
	a.create(t, "anna", "web")
	right := http.Header{"Authorization": {"Bearer anna"}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Version": {"13"}}
	results := []string{"done"}
	for _, path := range []string{"console", "forward"} {
		for _, c := range []struct {
			name, header, value string
			status              int
			result              api.Code
		}{
			{"a foreign page", "Origin", "http://evil.example", http.StatusForbidden, api.ForbiddenVerb},
			{"a wrong key", "Sec-Websocket-Key", "x", http.StatusBadRequest, api.BadRequest},
			{"an old version", "Sec-Websocket-Version", "12", http.StatusBadRequest, api.BadRequest},
			{"no upgrade of the connection", "Connection", "close", http.StatusBadRequest, api.BadRequest},
			{"no upgrade", "Upgrade", "other", http.StatusBadRequest, api.BadRequest},
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/v1/instances/web/"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = right.Clone()
			r.Header.Set(c.header, c.value)
			got, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			var p api.Problem
			err = json.NewDecoder(got.Body).Decode(&p)
			got.Body.Close()
			if err != nil || got.StatusCode != c.status || p.Code != c.result {
				t.Errorf("%s, %s: %d %+v, %v", path, c.name, got.StatusCode, p, err)
			}
			results = append(results, string(c.result))
		}
	}
	for i, e := range a.actions(t, "anna", "", len(results)) {
		if e.Result != results[i] {
			t.Errorf("%s is recorded as %s, want %s", e.Operation, e.Result, results[i])
		}
	}
}

func TestTheConsoleOfAStoppedInstanceIsNotAttachedElsewhere(t *testing.T) {
	t.Parallel()
	server, _ := controltest.Start(t)
	a := newAsker(t, server)
	a.create(t, "anna", "web")
	a.ask(t, "anna", http.MethodPost, "/v1/instances/web/stop?wait=stopped", nil).want(t, http.StatusOK, "")
	a.askWith(t, "anna", http.MethodGet, "/v1/instances/web/console", nil, "Upgrade", "websocket",
		"Connection", "Upgrade", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==").
		want(t, http.StatusConflict, api.BadState)
}

// TestTheLogOfAnObjectIsComplete: whatever a caller names a host by, the log has its name and its UUID.
func TestTheLogOfAnObjectIsComplete(t *testing.T) {
	t.Parallel()
	server, _ := controltest.Start(t)
	a := newAsker(t, server)
	var host api.Host
	a.ask(t, "operator", http.MethodGet, "/v1/hosts/host1", nil).into(t, &host)
	n := 0
	for _, name := range []string{host.Name, string(host.ID)} {
		for _, r := range []struct {
			method, path string
			body         any
		}{
			{http.MethodPost, "/drain", nil}, {http.MethodPost, "/enable", nil},
			{http.MethodPost, "/images", map[string]string{"image": "debian-12"}},
			{http.MethodDelete, "/images", nil},
			{http.MethodPatch, "/object", map[string]any{"set": map[string]any{"tier": "gold"}}},
			{http.MethodPut, "/tags/fast", nil}, {http.MethodDelete, "/tags/fast", nil},
			{http.MethodPut, "/properties/tier", map[string]any{"value": "gold"}},
			{http.MethodDelete, "/properties/tier", nil},
		} {
			a.ask(t, "operator", r.method, "/v1/hosts/"+name+r.path, r.body)
			n++
			for _, object := range []string{host.Name, string(host.ID)} {
				all := a.actions(t, "operator", "object=host/"+object, n)
				if e := all[len(all)-1]; len(all) != n || e.Object.ID != string(host.ID) || e.Object.Name != host.Name {
					t.Errorf("%s %s: the log of %s ends with %+v", r.method, r.path, object, e)
				}
			}
		}
	}
	a.askWith(t, "operator", http.MethodPut, "/v1/definitions/host", map[string]any{}, "If-Match", "0")
	a.actions(t, "operator", "object=definition/host", 1)
	a.ask(t, "anna", http.MethodPut, "/v1/groups/blue/tags/fast", nil)
	a.actions(t, "anna", "object=group/blue", 1)
}
