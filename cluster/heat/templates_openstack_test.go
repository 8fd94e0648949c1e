package heat_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"croft/cluster"
	"croft/cluster/heat/heattest"
)

// TestOurTemplatesWithOpenStack builds by the templates that croft ships: every machine is told who may log in.
func TestOurTemplatesWithOpenStack(t *testing.T) {
	hosts, err := os.ReadFile("../appliances/hosts/heat.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const key = `ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB ann's "desk"`
	for name, change := range map[string]func(*cluster.Build){
		"an image alone": func(b *cluster.Build) {
			b.Implementation.Image, b.Image = "debian-12", "7a1b"
			b.Parameters["cluster_id"] = string(b.Cluster)
		},
		"hosts": func(b *cluster.Build) {
			b.Implementation.Template = string(hosts)
			b.Parameters["image"], b.Parameters["cluster_size"] = "7a1b", len(b.Indexes)
		},
	} {
		t.Run(name, func(t *testing.T) {
			engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
				s := newBench(t, clouds["demo"], "", 2)
				s.b.Parameters = map[string]any{"flavor_name": "small", "network_name": "net",
					"authorized_keys": []any{key}}
				change(&s.b)
				s.launch()
				seen := s.until(cluster.Standing)
				if seen.MasterIP == "" || len(seen.Members) != 3 ||
					!strings.HasSuffix(seen.Members[2].Name, string(s.b.Cluster)+"-slave-1") ||
					seen.Members[2].Address == "" {
					t.Errorf("got %+v", seen)
				}
				told := s.userData()
				for _, data := range told {
					want := "#cloud-config\nssh_authorized_keys: [\"ssh-ed25519 AAAA"
					if !strings.HasPrefix(data, want) || !strings.HasSuffix(data, ` ann's \"desk\""]`+"\n") {
						t.Errorf("a machine is told %q", data)
					}
				}
				if len(told) != 3 {
					t.Errorf("%d machines are told something: %q", len(told), told)
				}
			})
		})
	}
}

// userData is that of all machines of the stack, which are nested stacks where there is no Nova.
func (s *bench) userData() (all []string) {
	s.Helper()
	get := func(path string, into any) {
		if status, text := s.front.Heat(s.T, http.MethodGet, path, nil); status != http.StatusOK ||
			json.Unmarshal([]byte(text), into) != nil {
			s.Fatal(path, status, text)
		}
	}
	var listed struct {
		Resources []struct {
			Type  string `json:"resource_type"`
			Links []struct{ Rel, Href string }
		}
	}
	get("/"+s.b.Remote.Name+"/"+s.b.Remote.ID+"/resources?nested_depth=3", &listed)
	for _, r := range listed.Resources {
		for _, link := range r.Links {
			_, path, found := strings.Cut(link.Href, "/stacks")
			if r.Type != "OS::Nova::Server" || link.Rel != "nested" || !found {
				continue
			}
			var nested struct {
				Stack struct{ Parameters map[string]string }
			}
			get(path, &nested)
			all = append(all, nested.Stack.Parameters["user_data"])
		}
	}
	return all
}
