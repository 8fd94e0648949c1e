package control_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/control/api"
	"croft/control/controltest"
	"croft/internal/delay"
	"croft/internal/testing/patient"
	"croft/tenant/usage"
)

// usage returns the projects in the usage history that a caller sees, once there are n of them.
func (a asker) usage(t *testing.T, token, path string, n int) (names []string) {
	t.Helper()
	for {
		var r usage.Report
		a.ask(t, token, http.MethodGet, path, nil).into(t, &r)
		names = nil
		for _, p := range r.Projects {
			names = append(names, string(p.Project))
		}
		if len(names) >= n {
			return names
		}
		if delay.For(t.Context(), 20*time.Millisecond) != nil {
			t.Fatalf("%s sees %v at %s, want %d", token, names, path, n)
		}
	}
}

func TestUsageIsSeenLikeQuotas(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	for _, p := range []api.NewProject{{Name: "org"}, {Name: "dev", Parent: "org"}, {Name: "anna"}} {
		a.ask(t, "operator", http.MethodPost, "/v1/projects", p)
	}
	for _, project := range []croft.Project{"dev", "anna"} {
		a.ask(t, "operator", http.MethodPost, "/v1/instances?project="+string(project), wanted("name", "web"))
	}
	for _, c := range []struct {
		token, path string
		want        []string
	}{
		{"operator", "/v1/usage", []string{"anna", "dev", "org"}},
		{"adam", "/v1/usage", []string{"dev", "org"}},
		{"anna", "/v1/usage", []string{"anna"}},
		{"reader", "/v1/usage?since=2026-01-01", []string{"anna"}},
		{"berta", "/v1/usage", nil},
		{"berta", "/v1/usage?former=true", nil},
		{"operator", "/v1/projects/dev/usage", []string{"dev"}},
		{"adam", "/v1/projects/dev/usage", []string{"dev"}},
		{"adam", "/v1/projects/org/usage", []string{"org"}},
		{"reader", "/v1/projects/anna/usage", []string{"anna"}},
		{"anna", "/v1/projects/anna/usage?until=2020-01-01", nil},
	} {
		if got := a.usage(t, c.token, c.path, len(c.want)); !slices.Equal(got, c.want) {
			t.Errorf("%s sees %v at %s, want %v", c.token, got, c.path, c.want)
		}
	}
	for _, path := range []string{"/v1/projects/anna/usage", "/v1/projects/org/usage", "/v1/projects/none/usage"} {
		a.ask(t, "berta", http.MethodGet, path, nil).want(t, http.StatusNotFound, api.NotFound)
	}
	for _, query := range []string{"since=yesterday", "since=2026-02-30", "until=x",
		"since=2026-02-02&until=2026-02-01", "since=" + strings.Repeat("2", 5000), "project=anna",
		"former=yes", "since=2026-02-02&since=2026-02-02"} {
		got := a.ask(t, "anna", http.MethodGet, "/v1/usage?"+query, nil)
		got.want(t, http.StatusBadRequest, api.BadQuery)
	}

	capacity := func(token string) int64 {
		var r usage.Report
		a.ask(t, token, http.MethodGet, "/v1/usage", nil).into(t, &r)
		return usage.Sum(r.Capacity).Peak["VCPU"]
	}
	patient.Until(t, "the capacity is measured", func() bool { return capacity("operator") > 0 })
	for _, token := range []string{"adam", "anna", "reader", "berta"} {
		if n := capacity(token); n != 0 {
			t.Errorf("%s sees that the hosts offer %d vCPU", token, n)
		}
	}

	// A later project of the name has no usage of the former one.
	a.ask(t, "operator", http.MethodDelete, "/v1/instances/web?project=dev&wait=gone", nil)
	for a.ask(t, "operator", http.MethodDelete, "/v1/projects/dev", nil).status != http.StatusNoContent {
		if delay.For(t.Context(), 20*time.Millisecond) != nil {
			t.Fatal("the project is not removed")
		}
	}
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "dev", Parent: "org"})
	if got := a.usage(t, "adam", "/v1/projects/dev/usage?former=true", 0); got != nil {
		t.Errorf("the later project has %v", got)
	}
	if got := a.usage(t, "operator", "/v1/projects/dev/usage?former=true", 1); !slices.Equal(got, []string{"dev"}) {
		t.Errorf("operators see %v", got)
	}
}
