package crowd

import (
	"testing"

	"croft"
	"croft/hosts"
	"croft/internal/testing/patient"
	"croft/tenant"
)

// For two projects, one below the other, and one that has no record, the usage of their quotas equals the sums of
// Placement, after instances were requested, moved and destroyed.
func TestPlacementSumsUpWhatQuotasCount(t *testing.T) {
	c := newCloud(t)
	c.addHost("host1", 4)
	for _, p := range []tenant.Tenant{{Name: "faculty"}, {Name: "lab", Parent: "faculty"}} {
		_, err := c.store.Projects.Create(t.Context(), p)
		c.check(err)
	}
	s := c.schedulers(1)[0]
	request := func(project croft.Project, name string) croft.Instance {
		r := c.request(name)
		r.Project, r.Ephemeral = project, true
		d, err := s.Request(t.Context(), r)
		c.check(err)
		return d.Instance
	}
	moving := request("lab", "moving")
	ended := request("faculty", "ended")
	request("faculty", "stays")
	request(croft.DefaultProject, "stays")
	c.addHost("host2", 4)
	c.move(moving)
	c.check(destroy(t.Context(), s, ended))
	patient.Until(t, "the former host has released its claims", func() bool {
		return c.usage("faculty", "lab", croft.DefaultProject)[tenant.Measure(croft.VCPU)] == 3
	})
	for project, own := range map[croft.Project]int64{"faculty": 1, "lab": 1, croft.DefaultProject: 1, "none": 0} {
		below := map[croft.Project][]croft.Project{"faculty": {"lab"}}[project]
		if got := c.usage(project); got[tenant.Measure(croft.VCPU)] != own {
			t.Errorf("Placement says that %s uses %s alone, want VCPU:%d", project, got, own)
		}
		accounts, err := c.store.Projects.Accounts(t.Context(), project)
		c.check(err)
		want := accounts[0].Used
		got := c.usage(append(below, project)...)
		// Placement does not count instances
		got = got.Plus(tenant.Amounts{tenant.CountInstances: want[tenant.CountInstances]})
		if got.String() != want.String() {
			t.Errorf("Placement says that %s and those below it use %s, and its quota counts %s", project, got, want)
		}
	}
	other, err := c.claims.Usage(t.Context(), croft.Owner{Partition: croft.NewPartitionID(), Project: "lab"})
	c.check(err)
	if len(other) != 0 {
		t.Errorf("the project of the same name in another partition uses %v", other)
	}
}

// usage returns the usage of projects according to Placement.
func (c *cloud) usage(projects ...croft.Project) tenant.Amounts {
	c.Helper()
	sum := tenant.Amounts{}
	for _, p := range projects {
		used, err := c.claims.Usage(c.Context(), croft.Owner{Partition: c.store.Partition(), Project: p})
		c.check(err)
		for class, n := range used {
			sum = sum.Plus(tenant.Amounts{tenant.Measure(class): n})
		}
	}
	return sum
}

// move moves an instance away from its host, once it runs there.
func (c *cloud) move(inst croft.Instance) {
	c.Helper()
	fleet, err := hosts.New(hosts.Config{Partition: c.store.Partition(), Hosts: c.store.Registry,
		Members: c.store.Cluster, Instances: c.store.Instances, Orders: c.store.Orders, Claims: c.claims})
	c.check(err)
	from, err := fleet.Drain(c.Context(), string(inst.Host))
	c.check(err)
	moved, err := fleet.MoveAll(c.Context(), from)
	c.check(err)
	for _, m := range moved {
		if m.Instance.ID == inst.ID && m.To.ID != "" {
			return
		}
	}
	c.Fatalf("instance %s did not move: %+v", inst.ID, moved)
}
