package control_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"testing"

	"croft/control/api"
	"croft/control/controltest"
)

func TestListsAreChosenFromByTheSameParameters(t *testing.T) {
	t.Parallel()
	at, _ := controltest.Start(t)
	a := newAsker(t, at)
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
	for n, name := range []string{"one", "two", "three"} {
		owner := []string{"ann", "bob", "ann"}[n]
		query := fmt.Sprintf("VCPU:1,MEMORY_MB:%d,DISK_GB:1", []int{128, 64, 192}[n])
		request := map[string]any{"name": name, "query": query, "image": "debian-12", "expires": 3600 * (n + 1)}
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
	sorted := func(t *testing.T, as, sort string) (names string, all []api.Instance) {
		for after := ""; ; {
			var list api.InstanceList
			a.ask(t, as, http.MethodGet, "/v1/instances?limit=1&sort="+sort+"&after="+url.QueryEscape(after), nil).
				into(t, &list)
			for _, i := range list.Instances {
				names, all = names+" "+i.Name, append(all, i)
			}
			if after = list.Next; after == "" || len(all) > 3 {
				return names, all
			}
		}
	}
	for sort, want := range map[string]string{
		"name": " one three two", "-name": " two three one",
		"resources": " two one three", "-resources": " three one two",
		"created": " one two three", "-created": " three two one",
		"expires": " one two three", "-expires": " three two one",
		"project": " one three two", "-image": " one three two", // all have the same
	} {
		if got, _ := sorted(t, "anna", sort); got != want {
			t.Errorf("by %s: got%s; want%s", sort, got, want)
		}
	}
	for sort, of := range map[string]func(api.Instance) string{
		"state": func(i api.Instance) string { return i.State }, "host": func(i api.Instance) string { return i.Host },
		"address": func(i api.Instance) string {
			at, _ := netip.ParseAddr(i.Address)
			return string(at.AsSlice())
		},
	} {
		_, all := sorted(t, "operator", sort)
		compare := func(a, b api.Instance) int { return cmp.Compare(of(a), of(b)) }
		if !slices.IsSortedFunc(all, compare) || len(all) != 3 {
			t.Errorf("by %s: %d instances that are not in its order", sort, len(all))
		}
	}
	// Members do not see hosts, and do not learn from an order which instances are on one.
	if got, _ := sorted(t, "anna", "-host"); got != " one three two" {
		t.Errorf("a member's instances by host: got%s", got)
	}
	for _, wrong := range []string{"?sort=size", "?sort=state&after=one", "?sort=-name&after=/"} {
		a.ask(t, "anna", http.MethodGet, "/v1/instances"+wrong, nil).want(t, http.StatusBadRequest, api.BadQuery)
	}
	var hosts api.HostList
	a.ask(t, "operator", http.MethodGet, "/v1/hosts?state=ready&name=host1", nil).into(t, &hosts)
	if !slices.ContainsFunc(hosts.Hosts, func(h api.Host) bool { return h.Name == "host1" && h.State == "ready" }) ||
		len(hosts.Hosts) != 1 {
		t.Errorf("ready hosts: %+v", hosts.Hosts)
	}
}
