package schedule_test

import (
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/schedule"
)

func TestARequestForANetworkGoesToAHostThatHasIt(t *testing.T) {
	c := newCloud(t, 3, 3)
	c.placement.AddTrait(c.hosts[1], croft.NetworkTrait("lab"))
	for range 3 {
		r := request(t, "")
		r.Networks = []string{"default", "lab"}
		d, err := c.Request(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if d.Host.ID != c.hosts[1] || !slices.Equal(d.Instance.Spec.Networks, r.Networks) {
			t.Errorf("it is on host %s, on the networks %v; want %s", d.Host.ID, d.Instance.Spec.Networks, c.hosts[1])
		}
	}
	for name, kind := range map[string]croft.Kind{"lbb": croft.NotFound, "La b": croft.Invalid} {
		r := request(t, "")
		r.Networks = []string{name}
		_, err := c.Request(t.Context(), r)
		wantKind(t, err, kind)
		if kind == croft.NotFound && !strings.Contains(err.Error(), `did you mean "lab"`) {
			t.Errorf("it says %v", err)
		}
	}
}

// Placement's own message is reported unless a network is unknown.
func TestARefusedQueryIsExplainedByItsNetworks(t *testing.T) {
	for _, c := range []struct {
		name     string
		networks []string
		refusal  error
		want     string
	}{
		{"an unknown network", []string{"office", "lab", "default"}, croft.Errorf(croft.Invalid, "no such trait"),
			`no host has a network "lab"; they have: default, home, office`},
		{"known networks", []string{"office"}, croft.Errorf(croft.Invalid, "no such trait"), "no such trait"},
		{"no networks", nil, croft.Errorf(croft.Invalid, "no such trait"), "no such trait"},
		{"no answer", []string{"lab"}, croft.Errorf(croft.Unavailable, "away"), "away"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud, r := newCloud(t, 3, 3), request(t, "web")
			cloud.placement.AddTrait(cloud.hosts[0], croft.NetworkTrait("office"))
			cloud.placement.AddTrait(cloud.hosts[0], croft.NetworkTrait("home"))
			cloud.placement.AddTrait(cloud.hosts[1], croft.NetworkTrait("office"))
			cloud.placement.AddTrait(cloud.hosts[1], "CUSTOM_SSD")
			cloud.placement.Fail("Candidates", func() error { return c.refusal })
			r.Networks = c.networks
			if _, err := cloud.Request(t.Context(), r); err == nil || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	t.Run("providers that cannot be read", func(t *testing.T) {
		cloud, r := newCloud(t, 3), request(t, "web")
		cloud.placement.Fail("Candidates", func() error { return croft.Errorf(croft.Invalid, "no such trait") })
		cloud.placement.Fail("Providers", func() error { return croft.Errorf(croft.Unavailable, "away") })
		r.Networks = []string{"lab"}
		_, err := cloud.Request(t.Context(), r)
		wantKind(t, err, croft.Invalid)
	})
}

func TestAHostWithoutTheNetworkIsTold(t *testing.T) {
	q,
		err := schedule.ParseQuery(
		"resources=VCPU:1,MEMORY_MB:1,DISK_GB:1&root_required=CUSTOM_CROFT_NET_LAB,!CUSTOM_SLOW")
	if err != nil {
		t.Fatal(err)
	}
	inv := croft.Inventory{Total: 9, MaxUnit: 9, MinUnit: 1, StepSize: 1, AllocationRatio: 1}
	p := croft.Provider{ID: "h", Name: "h", Traits: []croft.Trait{"CUSTOM_SLOW"},
		Inventories: map[croft.ResourceClass]croft.Inventory{
			croft.VCPU: inv, croft.MemoryMB: inv, croft.DiskGB: inv,
		}}
	got := schedule.Explain(schedule.Question{Query: q, Providers: []croft.Provider{p},
		Hosts: map[croft.HostID]croft.Host{"h": {ID: "h", Alive: true}}})
	want := []string{"has CUSTOM_SLOW, which is forbidden", "has no network lab"}
	if len(got.Rows) != 1 || !slices.Equal(got.Rows[0].Missing, want) {
		t.Errorf("got %+v, want %q", got.Rows, want)
	}
}

// Several hosts have a network, but only one opens it to a project: the request goes to that host, and to no other when
// it is full. For a project that no host opens the network to, it does not exist.
func TestARequestGoesWhereItsProjectMayUseTheNetwork(t *testing.T) {
	c := newCloud(t, 3, 1)
	for i, id := range c.hosts {
		c.placement.AddTrait(id, croft.NetworkTrait("lab"))
		host := croft.Host{ID: id, Name: "host" + string(rune('1'+i)),
			Networks: map[string][]croft.Project{"lab": {"red"}}}
		if i == 1 {
			host.Networks["lab"] = []croft.Project{"red", "blue"}
		}
		if err := c.store.PutHost(t.Context(), host); err != nil {
			t.Fatal(err)
		}
	}
	r := request(t, "first")
	r.Networks, r.Project = []string{"lab"}, "blue"
	d, err := c.Request(t.Context(), r)
	if err != nil || d.Host.ID != c.hosts[1] {
		t.Fatalf("it is on host %v, %v; want %s", d.Host.ID, err, c.hosts[1])
	}
	r.Name = "second"
	_, err = c.Request(t.Context(), r)
	wantKind(t, err, croft.NoCapacity)
	if !strings.Contains(err.Error(), "has no network lab") && !strings.Contains(err.Error(), "short of") {
		t.Errorf("it says %v", err)
	}
	for _, query := range []string{"", "&required=CUSTOM_CROFT_NET_LAB", "&required=!CUSTOM_CROFT_NET_LAB",
		"&root_required=!CUSTOM_CROFT_NET_LAB"} {
		r := request(t, "third")
		r.Project = "green"
		if query == "" {
			r.Networks = []string{"lab"}
		} else if r.Query, err = schedule.ParseQuery("resources=VCPU:1,MEMORY_MB:256,DISK_GB:1" + query); err != nil {
			t.Fatal(err)
		}
		_, err := c.Request(t.Context(), r)
		wantKind(t, err, croft.NotFound)
		if !strings.HasSuffix(err.Error(), `no host has a network "lab"; they have: default`) {
			t.Errorf("with %s: %v", query, err)
		}
	}
}

func TestAChosenAddressGoesToAHostThatGivesIt(t *testing.T) {
	t.Parallel()
	h := croft.Host{GuestAddresses: []string{"10.9.0.10-10.9.0.20", "nonsense", "10.9.1.1-10.9.1.1", "fe80::1-fe80::9"}}
	for address, want := range map[string]bool{"": true, "10.9.0.10": true, "10.9.0.20": true, "10.9.1.1": true,
		"10.9.0.9": false, "10.9.0.21": false, "10.9.1.2": false, "fe80::5": false, "x": false} {
		if got := h.GivesAddress(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
	if (croft.Host{}).GivesAddress("10.9.0.10") {
		t.Error("a host without such a network gives an address")
	}
}
