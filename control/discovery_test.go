package control_test

import (
	"net/http"
	"strings"
	"testing"

	"croft/control/api"
	"croft/control/controltest"
)

func TestPrometheusDiscoversTheRunningInstancesThatTheCallerSees(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	for _, name := range []string{"web", "db", "off"} {
		request := map[string]any{"name": name, "query": "VCPU:1,MEMORY_MB:64,DISK_GB:1", "image": "debian-12",
			"tags": map[string]string{"rack.unit": name}}
		a.ask(t, "anna", http.MethodPost, "/v1/instances?wait=running", request).want(t, http.StatusOK, "")
	}
	a.ask(t, "anna", http.MethodPost, "/v1/instances/off/stop?wait=stopped", nil).want(t, http.StatusOK, "")
	a.ask(t, "anna", http.MethodPatch, "/v1/instances/db", map[string]any{"labels": map[string]any{"env": "test"}}).
		want(t, http.StatusOK, "")
	for _, c := range []struct{ who, query, want string }{
		{"anna", "", "db web"},
		{"anna", "?name=web&port=9999", "web"},
		{"anna", "?filter=env=test", "db"},
		{"anna", "?not=name=db", "web"},
		{"bente", "", ""},
		{"operator", "?project=anna", "db web"},
	} {
		var groups []api.TargetGroup
		a.ask(t, c.who, http.MethodGet, "/v1/sd/prometheus"+c.query, nil).into(t, &groups)
		var names []string
		for _, g := range groups {
			name := g.Labels["__meta_croft_name"]
			names = append(names, name)
			port := ":9100"
			if strings.Contains(c.query, "port") {
				port = ":9999"
			}
			if len(g.Targets) != 1 || !strings.HasSuffix(g.Targets[0], port) ||
				g.Labels["__meta_croft_tag_rack_unit"] != name || g.Labels["__meta_croft_project"] != "anna" {
				t.Errorf("%s with %q: %+v", c.who, c.query, g)
			}
			if _, has := g.Labels["__meta_croft_host"]; has != (c.who == "operator") {
				t.Errorf("%s with %q: names a host: %v", c.who, c.query, has)
			}
			if env := g.Labels["__meta_croft_label_env"]; (env == "test") != (name == "db") {
				t.Errorf("%s with %q: %s has the label env %q", c.who, c.query, name, env)
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s with %q: got %s; want %s", c.who, c.query, got, c.want)
		}
	}
	for _, wrong := range []string{"?port=0", "?port=65536", "?port=http", "?hots=one"} {
		a.ask(t, "anna", http.MethodGet, "/v1/sd/prometheus"+wrong, nil).want(t, http.StatusBadRequest, api.BadQuery)
	}
}
