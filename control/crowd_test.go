package control_test

import (
	"net/http"
	"strings"
	"testing"

	"croft"
	"croft/control/api"
	"croft/control/controltest"
)

// crowd starts a cloud in which every path of the document names an existing object.
func crowd(t *testing.T) (asker, *strings.Replacer) {
	t.Helper()
	at, _ := controltest.StartWithPools(t)
	a := newAsker(t, at)
	web := a.create(t, "anna", "web")
	for _, name := range []croft.Project{"anna", "berta"} {
		a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: name}).
			want(t, http.StatusCreated, "")
	}
	for range 2 {
		a.ask(t, "anna", http.MethodPost, "/v1/tickets?wait=ready", map[string]any{"tags": []string{"annas"}}).
			want(t, http.StatusOK, "")
	}
	a.ask(t, "operator", http.MethodPost, "/v1/sites", map[string]any{"name": "pretend", "type": "sim"}).
		want(t, http.StatusCreated, "")
	for path, body := range map[string]map[string]any{"credentials": {"name": "key", "site": "pretend", "username": "u",
		"project_name": "p", "secret": "s"}, "appliances": {"name": "annas"}} {
		a.ask(t, "anna", http.MethodPost, "/v1/"+path, body).want(t, http.StatusCreated, "")
	}
	a.ask(t, "anna", http.MethodPost, "/v1/appliances/annas/implementations",
		map[string]any{"site": "pretend", "template": "{}"}).want(t, http.StatusCreated, "")
	a.ask(t, "anna", http.MethodPost, "/v1/clusters?wait=60", map[string]any{"name": "annas", "appliance": "annas"}).
		want(t, http.StatusCreated, "")
	return a, strings.NewReplacer("/clusters/{id}", "/clusters/annas", "/credentials/{id}", "/credentials/key",
		"/appliances/{name}", "/appliances/annas", "/sites/{name}", "/sites/pretend", "{site}", "pretend", "{host}",
		"last", "{use}", "none", "/images/{name}", "/images/debian-12", "/pools/{name}", "/pools/annas", "{resource}",
		"1", "/tickets/{id}", "/tickets/1", "/hosts/{id}", "/hosts/host1", "{id}", string(web), "{name}", "laptop",
		"{project}", "anna", "{theirs}", "web", "{things}", "instances", "{kind}", "instance", "{key}", "owner",
		"{tag}", "keep")
}
