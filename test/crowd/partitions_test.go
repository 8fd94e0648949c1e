package crowd

import (
	"bytes"
	"encoding/json"
	"testing"

	"croft"
	"croft/control/federation"
	"croft/schedule"
	"croft/tenant"
)

// Two clouds with hosts, projects and instances of the same names exchange exports, list both, and claim in both:
// nothing collides, usage is counted only in its own cloud, and nothing is scheduled on imported hosts.
func TestTwoCloudsWithTheSameNames(t *testing.T) {
	type side struct {
		*cloud
		*schedule.Scheduler
		federation *federation.Service
	}
	var sides []side
	for range 2 {
		c := newCloud(t)
		c.addHost("site1.row1.rack1.node1", 3) // one more than the quota
		_, err := c.store.Projects.Create(t.Context(), tenant.Tenant{Name: "lab", Limits: tenant.Limits{"VCPU": 2}})
		c.check(err)
		sides = append(sides, side{c, c.schedulers(1)[0], &federation.Service{Home: c.store.Partition(),
			Store: c.store.Partitions, Apart: c.claims}})
	}
	request := func(s side, name string) error {
		r := s.request(name)
		r.Project = "lab"
		_, err := s.Request(t.Context(), r)
		return err
	}
	exchange := func() {
		var files []bytes.Buffer
		for _, s := range sides {
			var file bytes.Buffer
			_, err := s.federation.Export(t.Context(), "east", &file)
			s.check(err)
			files = append(files, file)
		}
		for i, s := range sides {
			_, changed, err := s.federation.Import(t.Context(), &files[1-i], "")
			s.check(err)
			if !changed {
				t.Error("the import is not shown")
			}
		}
	}
	for _, s := range sides {
		s.check(request(s, "web"))
	}
	exchange()
	for _, s := range sides {
		s.check(request(s, "db"))
		if err := request(s, "more"); croft.KindOf(err) != croft.OverQuota {
			t.Errorf("a third instance: %v, want it refused by the quota of two", err)
		}
	}
	exchange()
	for i, s := range sides {
		accounts, err := s.store.Projects.Accounts(t.Context(), "lab")
		s.check(err)
		used, claimed := accounts[0].Used, s.usage("lab")
		if used["VCPU"] != 2 || used[tenant.CountInstances] != 2 || claimed["VCPU"] != 2 {
			t.Errorf("project lab uses %s, and in Placement %s, want VCPU:2", used, claimed)
		}
		other, err := s.claims.Usage(t.Context(), croft.Owner{Partition: sides[1-i].store.Partition(), Project: "lab"})
		s.check(err)
		providers, err := s.claims.Providers(t.Context())
		s.check(err)
		if len(other) != 0 || len(providers) != 1 || providers[0].ID != s.hosts[0] {
			t.Errorf("of the other cloud, Placement has usage %v and providers %v", other, providers)
		}
		names := map[string]int{}
		for _, kind := range []federation.Kind{federation.KindHost, federation.KindProvider, federation.KindProject,
			federation.KindInstance} {
			s.check(s.federation.Rows(t.Context(), "east", kind, func(text json.RawMessage) error {
				var row struct{ ID, Name string }
				err := json.Unmarshal(text, &row)
				names[string(kind)+" "+row.Name]++
				if kind == federation.KindHost && row.ID != string(sides[1-i].hosts[0]) {
					t.Errorf("the host shown is %s, want that of the other cloud", row.ID)
				}
				return err
			}))
		}
		for _, want := range []string{"host site1.row1.rack1.node1", "provider site1.row1.rack1.node1", "project lab",
			"instance web", "instance db"} {
			if names[want] != 1 {
				t.Errorf("%s is shown %d times of the other cloud", want, names[want])
			}
		}
		found, err := s.store.Projects.Check(t.Context())
		s.check(err)
		mine, err := s.store.Instances.List(t.Context(), "")
		s.check(err)
		if len(found) != 0 || len(mine) != 2 {
			t.Errorf("there are %d instances here, want 2; counted wrongly: %v", len(mine), found)
		}
	}
}
