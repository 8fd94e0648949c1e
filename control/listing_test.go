package control_test

import (
	"net/http"
	"slices"
	"testing"

	"croft/control/api"
	"croft/control/controltest"
)

func TestListsAreChosenFromByTheSameParameters(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	for _, name := range []string{"blue", "bluish", "red"} {
		a.ask(t, "operator", http.MethodPut, "/v1/policies/"+name, map[string]any{"text": "take 1"}).
			want(t, http.StatusOK, "")
	}
	for _, c := range []struct{ name, query, want, next string }{
		{"all, by name", "", "blue bluish red", ""},
		{"a name", "?name=blue", "blue", ""},
		{"a beginning", "?name=blu*", "blue bluish", ""},
		{"one of several", "?name=blue&name=r*", "blue red", ""},
		{"all but one", "?not=name=blue", "bluish red", ""},
		{"several terms", "?name=blu*&not=name=blue", "bluish", ""},
		{"a page", "?limit=2", "blue bluish", "bluish"},
		{"the page after it", "?limit=2&after=bluish", "red", ""},
		{"a page of what matches", "?limit=1&name=blu*", "blue", "blue"},
		{"a page after an entry that is gone", "?after=bluf", "bluish red", ""},
	} {
		var list api.PolicyList
		a.ask(t, "anna", http.MethodGet, "/v1/policies"+c.query, nil).into(t, &list)
		got := ""
		for _, p := range list.Policies {
			got += " " + p.Name
		}
		if got != " "+c.want || list.Next != c.next {
			t.Errorf("%s: got%s, next %q; want %s, next %q", c.name, got, list.Next, c.want, c.next)
		}
	}
	for _, wrong := range []string{"?state=red", "?not=blue", "?not=state=red", "?not=name", "?limit=0"} {
		a.ask(t, "anna", http.MethodGet, "/v1/policies"+wrong, nil).want(t, http.StatusBadRequest, api.BadQuery)
	}
	for name, owner := range map[string]string{"one": "ann", "two": "bob", "three": "ann"} {
		request := map[string]any{"name": name, "query": "VCPU:1,MEMORY_MB:64,DISK_GB:1", "image": "debian-12"}
		a.ask(t, "anna", http.MethodPost, "/v1/instances", request).want(t, http.StatusAccepted, "")
		patch := map[string]any{"labels": map[string]any{"owner": owner}}
		a.ask(t, "anna", http.MethodPatch, "/v1/instances/"+name, patch).want(t, http.StatusOK, "")
	}
	for query, want := range map[string]string{
		"?label=owner=ann":            " one three",
		"?label=owner&not=name=one":   " three two",
		"?label=owner=a*&limit=1":     " one",
		"?not=label=owner=ann":        " two",
		"?image=no*":                  "",
		"?name=one&state=none":        "",
		"?name=t*&not=label=owner=a*": " two",
	} {
		var list api.InstanceList
		a.ask(t, "anna", http.MethodGet, "/v1/instances"+query, nil).into(t, &list)
		got := ""
		for _, i := range list.Instances {
			got += " " + i.Name
		}
		if got != want {
			t.Errorf("instances with %s: got%s; want%s", query, got, want)
		}
	}
	var hosts api.HostList
	a.ask(t, "operator", http.MethodGet, "/v1/hosts?state=ready&name=host1", nil).into(t, &hosts)
	if !slices.ContainsFunc(hosts.Hosts, func(h api.Host) bool { return h.Name == "host1" && h.State == "ready" }) ||
		len(hosts.Hosts) != 1 {
		t.Errorf("ready hosts: %+v", hosts.Hosts)
	}
}
