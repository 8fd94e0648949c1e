package page_test

import (
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/control/api"
	"croft/internal/testing/patient"
)

// project creates a project, if it does not exist.
func (s served) project(t *testing.T, name, parent croft.Project) {
	t.Helper()
	_, err := s.client(t, "operator").CreateProject(t.Context(), api.NewProject{Name: name, Parent: parent})
	if err != nil && croft.KindOf(err) != croft.Conflict {
		t.Fatal(err)
	}
}

const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDaJ/tSVzQWqvaqfOX2sLt7r6v2DNVkJ6TQMxe1xOUfN anna@laptop"

func managesAProject(t *testing.T, s served, _ string) {
	s.project(t, "anna", "")
	v := s.login(t, "admin")
	v.get(http.StatusOK, "/ui/project")
	v.says("Project <bdi>anna</bdi>")
	version := field(t, v.text, "version")
	v.send(http.StatusOK, "/ui/project/members", url.Values{"user": {"eve"}, "role": {"reader"}, "version": {version}})
	v.says("The user has the role.")
	v.says("<bdi>eve</bdi>")
	v.send(http.StatusPreconditionFailed, "/ui/project/members", url.Values{"user": {"mallory"}, "role": {"member"},
		"version": {version}})
	v.says("was changed meanwhile")
	v.says("mallory=member")
	v.get(http.StatusOK, "/ui/project")
	v.hides("mallory")
	removal := url.Values{"user": {"eve"}, "version": {field(t, v.text, "version")}}
	v.get(http.StatusOK, "/ui/project/members/remove?"+removal.Encode())
	v.send(http.StatusUnprocessableEntity, "/ui/project/members/remove", removal)
	removal.Set("typed", "eve")
	v.send(http.StatusOK, "/ui/project/members/remove", removal)
	v.says("no member any more")
	v.hides("eve")
	v.send(http.StatusBadRequest, "/ui/project/members", url.Values{"user": {"eve"}, "role": {"partition-admin"},
		"version": {field(t, v.text, "version")}})
}

func showsTokensOnce(t *testing.T, s served, _ string) {
	s.project(t, "anna", "")
	v := s.login(t, "admin")
	v.get(http.StatusOK, "/ui/project")
	f := url.Values{"user": {"robot"}, "role": {"member"}, "life": {"soon"}, "note": {"ci"}}
	v.send(http.StatusBadRequest, "/ui/project/tokens", f)
	v.says("use a duration")
	f.Set("life", "3d")
	h := v.send(http.StatusOK, "/ui/project/tokens", f)
	if h.Get("Cache-Control") != "no-store" {
		t.Error("browsers may keep the token")
	}
	_, rest, _ := strings.Cut(v.text, "croft_")
	secret := "croft_" + rest[:strings.IndexAny(rest, `<"`)]
	if len(secret) < 40 {
		t.Fatalf("the page has no token:\n%s", v.text)
	}
	v.get(http.StatusOK, "/ui/project")
	v.says("<bdi>robot</bdi>")
	v.hides(secret)
	list, err := s.client(t, "admin").ListTokens(t.Context(), api.InProject{})
	if err != nil || len(list.Tokens) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	f = url.Values{"id": {string(list.Tokens[0].ID)}, "user": {"harmless"}, "typed": {"harmless"}}
	v.send(http.StatusUnprocessableEntity, "/ui/project/tokens/remove", f) // the word is the token's, not the address's
	v.get(http.StatusNotFound, "/ui/project/tokens/remove?id=x&user=robot")
	f.Set("typed", "robot")
	v.send(http.StatusOK, "/ui/project/tokens/remove", f)
	v.says("The token is revoked.")
	v.hides("<bdi>robot</bdi>")
}

func keepsKeys(t *testing.T, s served, _ string) {
	v := s.login(t, "anna")
	v.get(http.StatusOK, "/ui/project")
	v.hides("Make token")
	v.send(http.StatusBadRequest, "/ui/project/keys", url.Values{"name": {"laptop"}, "line": {"no key"}})
	v.says(`value="no key"`)
	v.send(http.StatusOK, "/ui/project/keys", url.Values{"name": {"laptop"}, "line": {publicKey}})
	v.says("The key is kept.")
	v.get(http.StatusOK, "/ui/instances/new")
	v.says("<bdi>laptop</bdi>")
	v.send(http.StatusOK, "/ui/project/keys/remove", url.Values{"name": {"laptop"}, "typed": {"laptop"}})
	v.says("The key is removed.")
}

func changesNoForeignProject(t *testing.T, s served, _ string) {
	s.project(t, "anna", "")
	posts := map[string]url.Values{"members": {"user": {"x"}, "role": {"reader"}, "version": {"1"}},
		"tokens": {"user": {"x"}, "role": {"reader"}, "life": {"1d"}}, "quota": {"measure": {"VCPU"}, "limit": {"1"},
			"version": {"1"}}, "new": {"name": {"below"}, "parent": {"anna"}}}
	for _, token := range []string{"reader", "anna"} {
		v := s.login(t, token)
		v.get(http.StatusOK, "/ui/project")
		for what, f := range posts {
			v.send(http.StatusForbidden, "/ui/project/"+what, maps.Clone(f))
		}
		v.get(http.StatusForbidden, "/ui/hosts")
	}
	v := s.login(t, "reader")
	v.send(http.StatusForbidden, "/ui/project/keys", url.Values{"name": {"x"}, "line": {publicKey}})
	v = s.login(t, "berta")
	for _, path := range []string{"/ui/project?project=anna", "/ui/project/usage.csv?project=anna",
		"/ui/dashboard?project=anna"} {
		v.get(http.StatusNotFound, path)
	}
	for what, f := range posts {
		v.send(http.StatusNotFound, "/ui/project/"+what+"?project=anna", maps.Clone(f))
	}
}

func showsWhichLimitCounts(t *testing.T, s served, _ string) {
	s.project(t, "org", "")
	s.project(t, "dev", "org")
	v := s.login(t, "operator")
	v.get(http.StatusOK, "/ui/project")
	v.says("/ui/project?project=dev")
	limit := func(project, limit string) {
		t.Helper()
		v.get(http.StatusOK, "/ui/project?project="+project)
		v.send(http.StatusOK, "/ui/project/quota?project="+project, url.Values{"measure": {"VCPU"}, "limit": {limit},
			"version": {field(t, v.text, "version")}})
		v.says("The limit is set.")
	}
	limit("org", "4")
	limit("dev", "9")
	first := func() string {
		t.Helper()
		_, text, found := strings.Cut(v.text, "<h3>vCPU</h3>")
		text, _, _ = strings.Cut(text, "<h3>")
		if !found || strings.Count(text, "limits first") != 1 {
			t.Fatalf("want one limit that counts:\n%s", text)
		}
		bar, _, _ := strings.Cut(text, "limits first")
		return bar[strings.LastIndex(bar, `class="gname"`):]
	}
	if bar := first(); !strings.Contains(bar, "<bdi>org</bdi>") || !strings.Contains(bar, "0 of 4") {
		t.Errorf("the limit that counts is %s", bar)
	}
	limit("dev", "2")
	if bar := first(); !strings.Contains(bar, "<bdi>dev</bdi>") || !strings.Contains(bar, "0 of 2") {
		t.Errorf("the limit that counts is %s", bar)
	}
	v.send(http.StatusBadRequest, "/ui/project/quota?project=dev", url.Values{"measure": {"VCPU"}, "limit": {"much"},
		"version": {field(t, v.text, "version")}})
	v.says("write a whole number from 0")
	adam := s.login(t, "adam")
	adam.get(http.StatusOK, "/ui/project?project=dev")
	adam.says("Set a limit")
	adam.get(http.StatusOK, "/ui/project?project=org")
	adam.hides("Set a limit")
	limit("dev", "default")
}

func exportsUsage(t *testing.T, s served, _ string) {
	v := s.login(t, "reader")
	patient.Until(t, "usage is recorded", func() bool {
		h := v.get(http.StatusOK, "/ui/project/usage.csv")
		return strings.HasPrefix(h.Get("Content-Type"), "text/csv") && strings.Contains(v.text, ",anna,VCPU,")
	})
	v.says("day,project,measure,unit_seconds,peak,estimated_seconds\n")
	v.get(http.StatusBadRequest, "/ui/project/usage.csv?since=yesterday")
	v.get(http.StatusOK, "/ui/project")
	v.says(`class="chart"`)
	v.says("average")
}

func findsTroubles(t *testing.T, s served, _ string) {
	findings := `[{"level": "fail", "check": "disk", "found": "it has <b>no</b> room", "do": "make some"},
		{"level": "warn", "check": "clock", "found": "it is late", "do": "set it"}]`
	if err := os.WriteFile(filepath.Join(s.cloud.Dir, "ill.findings"), []byte(findings), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.cloud.AddHost(t.Context(), "ill", 1); err != nil {
		t.Fatal(err)
	}
	ill := string(s.hostCalled(t, "ill").ID)
	patient.Until(t, "the host has findings", func() bool { return len(s.hostCalled(t, "ill").Findings) == 2 })
	if err := s.cloud.AddHost(t.Context(), "lost", 1); err != nil {
		t.Fatal(err)
	}
	if err := s.cloud.StopHost(t.Context(), "lost"); err != nil {
		t.Fatal(err)
	}
	id := string(s.hostCalled(t, "lost").ID)
	v := s.login(t, "operator")
	v.get(http.StatusOK, "/ui/dashboard")
	v.says("silent, with ")
	v.says("/ui/hosts/" + id + "/fence")
	v.says("doctor found 1 fault and 1 warning")
	v.says(`href="/ui/hosts/` + ill + `#h-doctor"`)
	v.says("Capacity now")
	v.hides("Not shown")
	patient.Until(t, "the capacity is measured", func() bool {
		v.get(http.StatusOK, "/ui/dashboard?by=week")
		return strings.Contains(v.text, "what the hosts offered")
	})
	v = s.login(t, "anna")
	v.get(http.StatusOK, "/ui/dashboard")
	v.hides(id)
	v.hides("doctor")
	v.hides("Capacity now")
	v.hides("hosts offered")
	v.hides("Not shown")
	v.says("Heaviest projects")
	v = s.login(t, "operator")
	v.send(http.StatusOK, "/ui/hosts/"+id+"/remove", url.Values{"typed": {"lost"}})
	v.get(http.StatusOK, "/ui/hosts")
	v.says("2 findings")
	v.get(http.StatusOK, "/ui/hosts/"+ill)
	v.says("it has &lt;b&gt;no&lt;/b&gt; room")
	v.says("<td data-label=\"What to do\"><bdi>make some</bdi></td>")
	v.get(http.StatusOK, "/ui/hosts/host1")
	v.says("has not checked the machine yet, or is of an older version")
	if err := s.cloud.StopHost(t.Context(), "ill"); err != nil {
		t.Fatal(err)
	}
	v.send(http.StatusOK, "/ui/hosts/"+ill+"/remove", url.Values{"typed": {"ill"}})
}

// tokenOf returns the ID of the token of anna's project that stands for a user.
func (s served) tokenOf(t *testing.T, user string) string {
	t.Helper()
	list, err := s.client(t, "admin").ListTokens(t.Context(), api.InProject{})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range list.Tokens {
		if token.User == user {
			return string(token.ID)
		}
	}
	t.Fatalf("%s has no token", user)
	return ""
}
