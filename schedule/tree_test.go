package schedule

import (
	"maps"
	"strings"
	"testing"

	"croft"
)

// child returns a provider below h, modified by the arguments.
func child(name string, change ...func(*croft.Provider)) croft.Provider {
	p := croft.Provider{ID: croft.HostID(name), Root: "h", Name: name, Used: croft.Resources{},
		Inventories: map[croft.ResourceClass]croft.Inventory{}}
	for _, f := range change {
		f(&p)
	}
	return p
}

func offers(class croft.ResourceClass, total int64) func(*croft.Provider) {
	return inventory(class, func(i *croft.Inventory) {
		*i = croft.Inventory{Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}
	})
}

func with(traits ...croft.Trait) func(*croft.Provider) {
	return func(p *croft.Provider) { p.Traits = append(p.Traits, traits...) }
}

func TestExplainTrees(t *testing.T) {
	const base = "resources=VCPU:1,MEMORY_MB:1024,DISK_GB:10"
	root := provider("h", func(p *croft.Provider) { p.Root = "h" })
	pool := croft.Provider{ID: "pool", Root: "pool", Name: "pool", Aggregates: []string{aggregate1},
		Traits:      []croft.Trait{sharing},
		Inventories: map[croft.ResourceClass]croft.Inventory{}}
	offers(croft.DiskGB, 50)(&pool)
	diskless := provider("h", func(p *croft.Provider) { delete(p.Inventories, croft.DiskGB) })
	for _, c := range []struct {
		name      string
		query     string
		providers []croft.Provider
		want      string
	}{
		{"a child has what a group wants", base + "&resources_net=CUSTOM_NET:5",
			[]croft.Provider{root, child("nic", offers("CUSTOM_NET", 8))},
			"satisfies each group of the query, and not all at once"},
		{"the child that is nearest is told of", base + "&resources_net=CUSTOM_NET:9",
			[]croft.Provider{child("nic1", offers("CUSTOM_NET", 2)), root, child("nic2", offers("CUSTOM_NET", 8))},
			"gives one instance at most 8 of CUSTOM_NET, 1 short of 9 (group _net)"},
		{"a group wants all of one provider", base + "&resources_net=CUSTOM_NET:5&required_net=CUSTOM_FAST",
			[]croft.Provider{root, child("nic1", offers("CUSTOM_NET", 8)), child("nic2", with("CUSTOM_FAST"))},
			"lacks CUSTOM_FAST (group _net)"},
		{"traits anywhere in the tree count without a group", base + "&required=CUSTOM_FAST",
			[]croft.Provider{root, child("nic", with("CUSTOM_FAST"))}, "has room by now: ask again"},
		{"what is forbidden is no use", base + ",CUSTOM_NET:1&required=!CUSTOM_SLOW",
			[]croft.Provider{root, child("nic", offers("CUSTOM_NET", 8), with("CUSTOM_SLOW"))}, "offers no CUSTOM_NET"},
		{"a pool that is shared serves", base, []croft.Provider{diskless, pool}, "has room by now: ask again"},
		{"a pool that is shared is too small", "resources=VCPU:1,MEMORY_MB:1024,DISK_GB:60",
			[]croft.Provider{diskless, pool}, "gives one instance at most 50 of DISK_GB, 10 GB short of 60"},
		{"one provider cannot be apart from itself", base + "&resources1=VCPU:1&resources2=VCPU:1&group_policy=isolate",
			[]croft.Provider{root}, "is one provider, and group_policy=isolate wants 2"},
		{"groups on one provider add up", base + "&resources1=VCPU:2&resources2=VCPU:2&group_policy=none",
			[]croft.Provider{root}, "gives one instance at most 4 of VCPU, 1 short of 5"},
		{"a single group of a tree", base, []croft.Provider{root, child("nic")}, "has room by now: ask again"},
		{"the class comes from the provider that is nearest",
			"resources=VCPU:1,MEMORY_MB:1024,DISK_GB:110",
			[]croft.Provider{root, child("disk1", offers(croft.DiskGB, 60)), child("disk2", offers(croft.DiskGB, 105))},
			"gives one instance at most 105 of DISK_GB, 5 GB short of 110"},
		{"of equals the first one is told of", "resources=VCPU:1,MEMORY_MB:1024,DISK_GB:110,CUSTOM_NET:9",
			[]croft.Provider{root, child("nic1", offers("CUSTOM_NET", 8), offers(croft.DiskGB, 200)),
				child("nic2", offers("CUSTOM_NET", 8), with("CUSTOM_FAST"))},
			"gives one instance at most 8 of CUSTOM_NET, 1 short of 9"},
		{"a child can be named", base + "&in_tree=" + aggregate2, []croft.Provider{root, child(aggregate2)},
			"has room by now: ask again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, err := ParseQuery(c.query)
			if err != nil {
				t.Fatal(err)
			}
			got := Explain(Question{Query: q, Providers: c.providers,
				Hosts: map[croft.HostID]croft.Host{"h": {ID: "h", Alive: true}}})
			if got.Hosts != 1 || len(got.Rows) != 1 || strings.Join(got.Rows[0].Missing, ", ") != c.want {
				t.Errorf("got %d hosts and %+v, want %q", got.Hosts, got.Rows, c.want)
			}
		})
	}
}

// A pool that is registered by an agent, or is below another provider, is part of a host.
func TestWhatSharesMayBeAHost(t *testing.T) {
	pool := func(id croft.HostID, root croft.HostID) croft.Provider {
		return croft.Provider{ID: id, Root: root, Name: string(id), Traits: []croft.Trait{sharing},
			Aggregates: []string{aggregate1}}
	}
	hosts := map[croft.HostID]croft.Host{"registered": {ID: "registered"}}
	trees := treesOf([]croft.Provider{pool("alone", "alone"), pool("registered", "registered"),
		provider("h", func(p *croft.Provider) { p.Root = "h" }), pool("below", "h"), pool("orphan", "gone"),
		{ID: "far", Root: "far"}}, hosts)
	got := map[croft.HostID]string{}
	for _, t := range trees {
		for _, p := range t.own {
			got[t.id()] += string(p.ID) + " "
		}
		got[t.id()] += "|"
		for _, p := range t.shared {
			got[t.id()] += " " + string(p.ID)
		}
	}
	want := map[croft.HostID]string{
		"registered": "registered | alone below orphan",
		"h":          "h below | alone registered orphan",
		"far":        "far |",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestATreeIsTheHostOfItsCores(t *testing.T) {
	c := croft.Candidate{
		Allocations: map[croft.HostID]croft.Resources{"numa1": {croft.VCPU: 1}},
		Summaries:   map[croft.HostID]croft.Summary{"numa1": {Root: "host"}},
	}
	if got := hostOf(c); got != "host" {
		t.Errorf("got %s", got)
	}
}

func TestExplainCountsByRequirement(t *testing.T) {
	q, err := ParseQuery("resources=VCPU:1,MEMORY_MB:4096,DISK_GB:10")
	if err != nil {
		t.Fatal(err)
	}
	web := croft.Affinity{Group: "web", Rule: croft.Apart}
	hosts := map[croft.HostID]croft.Host{}
	providers := []croft.Provider{
		provider("both", using(croft.MemoryMB, 300), using(croft.VCPU, 4)),
		provider("near", using(croft.MemoryMB, 214)),
		provider("taken"), provider("fits"),
	}
	for _, p := range providers {
		hosts[p.ID] = croft.Host{ID: p.ID, Alive: true}
	}
	got := Explain(Question{
		Query: q, Providers: providers, Hosts: hosts, Spec: croft.Spec{
			InstanceSettings: croft.InstanceSettings{Affinities: []croft.Affinity{web}}},
		Members: []croft.GroupMember{{Affinity: web, Name: "web1", Host: "taken"}},
		Fits:    []Fit{{Host: "fits", ID: "fits", Rank: 1}},
	})
	if len(got.Requirements) != 3 {
		t.Fatalf("got %+v", got.Requirements)
	}
	want := []Requirement{
		{"MEMORY_MB 4096", 2, "near", "214 MB short of MEMORY_MB 4096"},
		{"VCPU 1", 1, "both", "1 short of VCPU 1"},
		{"anti-affinity web", 1, "taken", "has instance web1 of group web, whose members stay apart"},
	}
	for i, r := range want {
		if got.Hosts != 4 || len(got.Requirements) != len(want) || got.Requirements[i] != r {
			t.Fatalf("got %+v of %d hosts, want %+v", got.Requirements, got.Hosts, want)
		}
	}
}
