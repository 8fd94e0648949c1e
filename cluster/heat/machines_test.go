package heat_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/cluster"
	"croft/cluster/heat/template"
)

// novaSite is a site whose Heat has one stack with a master and two slaves, and whose Nova may have lost some of them.
// An update of the stack creates the unhealthy resources again.
type novaSite struct {
	*site
	cluster   croft.ClusterID
	machines  map[string]string // the server of each resource: master, 0, 1
	servers   []string          // the servers that Nova has
	hidden    string            // a server that is missing in Nova's list, because its cell is down
	away      bool              // Nova answers with 503
	unhealthy []string
	updated   string
}

func newNovaSite() *novaSite {
	s := &novaSite{site: &site{}, cluster: croft.NewClusterID(), updated: "2026-01-01T00:00:00Z",
		machines: map[string]string{"master": "srv-m", "0": "srv-0", "1": "srv-1"},
		servers:  []string{"srv-m", "srv-0", "srv-1", "srv-of-others"}}
	s.heat, s.nova = s.serveHeat, s.serveNova
	return s
}

func (s *novaSite) stack() map[string]any {
	hosts := []any{}
	for _, n := range []string{"0", "1"} {
		hosts = append(hosts, map[string]any{"name": "slave-" + n, "address": "10.0.0.2" + n, "role": "slave"})
	}
	return map[string]any{"id": "s", "stack_name": "n", "stack_status": "CREATE_COMPLETE",
		"creation_time": "2026-01-01T00:00:00Z", "updated_time": s.updated,
		"tags":       []string{"croft", "croft-p", "croft-" + string(s.cluster)},
		"parameters": map[string]string{"cluster_size": "2", "removed": "[]"},
		"outputs": []any{map[string]any{"output_key": "master_ip", "output_value": "10.0.0.1"},
			map[string]any{"output_key": "hosts", "output_value": hosts}}}
}

func (s *novaSite) serveHeat(w http.ResponseWriter, r *http.Request) {
	var body any
	switch path := r.URL.Path; {
	case r.Method == http.MethodPatch && strings.Contains(path, "/resources/"):
		_, member, _ := strings.Cut(path, "/stacks/nested/ns/resources/")
		s.unhealthy = append(s.unhealthy, member)
		answer(w, 200, "null")
		return
	case r.Method == http.MethodPatch:
		for _, member := range s.unhealthy {
			s.machines[member] += "-again"
			s.servers = append(s.servers, s.machines[member])
		}
		s.unhealthy, s.updated = nil, "2026-01-02T00:00:00Z"
		w.WriteHeader(202)
		return
	case strings.HasSuffix(path, "/resources"):
		var all []any
		for name, server := range s.machines {
			one := map[string]any{"resource_name": name, "physical_resource_id": server,
				"resource_type": "OS::Nova::Server", "resource_status": "CREATE_COMPLETE"}
			if name != "master" {
				one["parent_resource"] = "slaves"
				one["links"] = []any{map[string]any{"rel": "stack", "href": s.URL + "/orchestration/stacks/nested/ns"}}
			}
			all = append(all, one)
		}
		body = map[string]any{"resources": all}
	case strings.HasSuffix(path, "/resources/slaves"):
		body = map[string]any{"resource": map[string]any{"attributes": map[string]any{"removed_rsrc_list": []any{}}}}
	case strings.HasSuffix(path, "/stacks"):
		body = map[string]any{"stacks": []any{s.stack()}}
	default:
		body = map[string]any{"stack": s.stack()}
	}
	text, _ := json.Marshal(body)
	answer(w, 200, string(text))
}

func (s *novaSite) serveNova(w http.ResponseWriter, r *http.Request) {
	_, id, one := strings.Cut(r.URL.Path, "/servers/")
	var all []any
	for _, server := range s.servers {
		if server != s.hidden {
			all = append(all, map[string]any{"id": server, "name": server})
		}
	}
	text, _ := json.Marshal(map[string]any{"servers": all})
	switch {
	case s.away:
		answer(w, 503, `{}`)
	case one && id == s.hidden:
		answer(w, 500, `{"computeFault": {"message": "the cell is down"}}`)
	case one && !slices.Contains(s.servers, id):
		answer(w, 404, `{"itemNotFound": {"message": "Instance could not be found."}}`)
	case one:
		answer(w, 200, `{"server": {"id": "`+id+`"}}`)
	default:
		answer(w, 200, string(text))
	}
}

// TestAServerThatNovaDoesNotHaveIsGone: Heat goes on showing a server that was deleted directly in Nova.
func TestAServerThatNovaDoesNotHaveIsGone(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*novaSite)
		want   string // the lost members
	}{
		{"all are there", func(*novaSite) {}, ""},
		{"a slave was deleted", func(s *novaSite) { s.servers = []string{"srv-m", "srv-0"} }, "slave 1"},
		{"the master was deleted", func(s *novaSite) { s.servers = []string{"srv-0", "srv-1"} }, "master 0"},
		{"a list that lacks a server is no proof", func(s *novaSite) { s.hidden = "srv-1" }, ""},
		{"a Nova that is away says nothing", func(s *novaSite) { s.servers, s.away = nil, true }, ""},
		{"without a Nova nothing is known", func(s *novaSite) { s.servers, s.nova = nil, nil }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newNovaSite()
			c.change(s)
			d, at := newSite(t, s.site)
			b := cluster.Build{Partition: "p", Cluster: s.cluster, Indexes: []int{0, 1},
				Implementation: cluster.Implementation{Image: "i"}, Remote: cluster.Remote{ID: "s", Name: "n"}}
			all, err := d.Observe(t.Context(), at, []cluster.Build{b})
			if err != nil || len(all[s.cluster].Members) != 3 {
				t.Fatalf("got %+v, %v", all, err)
			}
			var gone []string
			for _, m := range all[s.cluster].Members {
				if m.State == cluster.MemberGone {
					gone = append(gone, string(m.Role)+" "+string(rune('0'+m.Index)))
				}
			}
			if got := strings.Join(gone, ", "); got != c.want {
				t.Errorf("gone are %q, want %q", got, c.want)
			}
		})
	}
}

// TestASlaveThatNovaDoesNotHaveIsMadeAgain resizes to the same size: Heat replaces a lost slave only if it is marked as
// unhealthy.
func TestASlaveThatNovaDoesNotHaveIsMadeAgain(t *testing.T) {
	s := newNovaSite()
	s.servers = []string{"srv-m", "srv-0"}
	d, at := newSite(t, s.site)
	b := cluster.Build{Partition: "p", Cluster: s.cluster, Indexes: []int{0, 1},
		Implementation: cluster.Implementation{Template: template.Minimal}, Remote: cluster.Remote{ID: "s", Name: "n"}}
	if err := d.Resize(t.Context(), at, b); err != nil {
		t.Fatal(err)
	}
	if want := []string{"srv-m", "srv-0", "srv-1-again"}; !slices.Equal(s.servers, want) {
		t.Errorf("Nova has %q, want %q", s.servers, want)
	}
	all, err := d.Observe(t.Context(), at, []cluster.Build{b})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all[s.cluster].Members {
		if m.State != cluster.MemberReady {
			t.Errorf("%+v", m)
		}
	}
}
