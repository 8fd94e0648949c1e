package transfer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/placement/transfer"
)

// target returns a target that knows the standard names and holds the sample as modified by with.
func target(with func(*transfer.State)) *transfer.State {
	s := sample()
	s.StandardClasses = []croft.ResourceClass{croft.VCPU, croft.MemoryMB, croft.DiskGB}
	s.StandardTraits = []croft.Trait{"HW_CPU_X86_AVX2", "COMPUTE_NODE"}
	with(s)
	return s
}

func empty(s *transfer.State) { s.Classes, s.Traits, s.Providers, s.Consumers = nil, nil, nil, nil }

// told formats a plan in one line.
func told(c *transfer.Changes) string {
	var parts []string
	for _, x := range c.Classes {
		parts = append(parts, string(x))
	}
	for _, x := range c.Traits {
		parts = append(parts, string(x))
	}
	for _, x := range c.Providers {
		parts = append(parts, fmt.Sprintf("%s@%d", x.Name, x.Generation))
	}
	for _, x := range c.Consumers {
		parts = append(parts, fmt.Sprintf("%.8s@%d", x.ID, x.Generation))
	}
	return strings.Join(parts, " ")
}

func TestPlan(t *testing.T) {
	const all = "CUSTOM_FPGA CUSTOM_GOLD a <site> & more@1 host@12 33333333@3"
	other := transfer.Provider{ID: croft.HostID(group), Name: "other", Generation: 5}
	for _, c := range []struct {
		name  string
		have  func(*transfer.State)
		merge bool
		want  string
	}{
		{"an empty target gets all", empty, false, all},
		{"merging into an empty target is the same", empty, true, all},
		{"what is there already is left", func(*transfer.State) {}, false, ""},
		{"generations of the target's own are no difference",
			func(s *transfer.State) { s.Providers[1].Generation = 99 },
			false, ""},
		{"a ratio that a database rounded is no difference", func(s *transfer.State) {
			i := offer(8)
			i.AllocationRatio = float64(float32(1.5)) + 1e-9
			s.Providers[1].Inventories[croft.VCPU] = i
		}, false, ""},
		{"custom names of its own do not hinder", func(s *transfer.State) { s.Classes = append(s.Classes, "CUSTOM_X") },
			false, ""},
		{"an interrupted import goes on where it was", func(s *transfer.State) {
			s.Consumers = nil
			s.Providers[1].Inventories, s.Providers[1].Traits = nil, nil
		}, false, "host@12 33333333@3"},
		{"nobody else's provider is touched", func(s *transfer.State) { s.Providers = append(s.Providers, other) },
			false,
			"conflict: import: the target holds other things already, such as the provider " +
				"44444444-4444-4444-8444-444444444444 (other); to add to them, give --merge"},
		{"merging leaves it", func(s *transfer.State) { s.Providers = append(s.Providers, other); s.Consumers = nil },
			true,
			"33333333@3"},
		{"nor is anybody else's claim", func(s *transfer.State) {
			c := s.Consumers[0]
			c.ID = croft.InstanceID(group)
			s.Consumers = append(s.Consumers, c)
		}, false, "conflict: import: the target holds other things already, such as claims of the consumer " +
			"44444444-4444-4444-8444-444444444444; to add to them, give --merge"},
		{"another inventory is a conflict", func(s *transfer.State) {
			s.Providers[1].Inventories[croft.VCPU] = offer(4)
		},
			false,
			"conflict: import: the target has the provider 22222222-2222-4222-8222-222222222222 (host) with another " +
				"inventory of VCPU; to make it as imported, give --merge"},
		{"and merged as imported, later than what was there", func(s *transfer.State) {
			s.Providers[1].Inventories[croft.VCPU] = offer(4)
			s.Providers[1].Generation = 30
		}, true, "host@31"},
		{"another trait is a conflict", func(s *transfer.State) {
			s.Providers[0].Traits = []croft.Trait{"COMPUTE_NODE"}
		},
			false,
			"conflict: import: the target has the provider 11111111-1111-4111-8111-111111111111 (a <site> & more) with " +
				"another set of traits; to make it as imported, give --merge"},
		{"another place in the tree is one", func(s *transfer.State) { s.Providers[1].Parent = "" }, false,
			"conflict: import: the target has the provider 22222222-2222-4222-8222-222222222222 (host) with another " +
				"parent; to make it as imported, give --merge"},
		{"other claims of a consumer are one", func(s *transfer.State) {
			s.Consumers[0].Allocations[host][croft.VCPU] = 1
		},
			false,
			"conflict: import: the target has the consumer 33333333-3333-4333-8333-333333333333 with other claims, " +
				"project, user or type; to make it as imported, give --merge"},
		{"and merged as imported too", func(s *transfer.State) { s.Consumers[0].User = "somebody" }, true,
			"33333333@4"},
		{"a name that is taken there cannot come in", func(s *transfer.State) {
			s.Providers = []transfer.Provider{{ID: croft.HostID(group), Name: "host"}}
			s.Consumers = nil
		}, true,
			`invalid: import: what would come of it cannot be: provider 22222222-2222-4222-8222-222222222222: its name "host" is that of provider 44444444-4444-4444-8444-444444444444 too`},
		{"nor a class go that is claimed there", func(s *transfer.State) {
			s.Providers[1].Inventories[croft.DiskGB] = offer(4)
			c := s.Consumers[0]
			c.ID, c.Allocations = croft.InstanceID(group), map[croft.HostID]croft.Resources{host: {croft.DiskGB: 1}}
			s.Consumers = append(s.Consumers, c)
		}, true,
			"invalid: import: what would come of it cannot be: consumer 44444444-4444-4444-8444-444444444444: it " +
				"has DISK_GB of provider 22222222-2222-4222-8222-222222222222, which has no inventory of that"},
		{"a class that the target does not know cannot come in", func(s *transfer.State) { s.StandardClasses = nil },
			false,
			"invalid: import: provider 22222222-2222-4222-8222-222222222222 offers VCPU, which the target does not know as " +
				"a resource class; is it older than where this is from?"},
		{"nor a trait", func(s *transfer.State) { s.StandardTraits = nil }, false,
			"invalid: import: provider 22222222-2222-4222-8222-222222222222 has HW_CPU_X86_AVX2, which the target does not " +
				"know as a trait; is it older than where this is from?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes, err := transfer.Plan(target(c.have), sample(), c.merge)
			got := ""
			if err != nil {
				got = fmt.Sprintf("%s: %v", croft.KindOf(err), err)
			} else if got = told(changes); (got == "") != changes.Empty() {
				t.Errorf("planned %q, Empty is %v", got, changes.Empty())
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestPlanPutsParentsFirst(t *testing.T) {
	want := sample()
	names := "dcbaxy" // d is below c, c below b, b below a; x and y are roots
	want.Providers, want.Consumers = nil, nil
	id := func(name byte) croft.HostID {
		return croft.HostID(strings.ReplaceAll(string(host), "2222-", "2"+fmt.Sprintf("%x", name)+"2-"))
	}
	for i := range names {
		p := transfer.Provider{ID: id(names[i]), Name: names[i : i+1]}
		if names[i] > 'a' && names[i] < 'x' {
			p.Parent = id(names[i] - 1)
		}
		want.Providers = append(want.Providers, p)
	}
	changes, err := transfer.Plan(target(empty), want, false)
	if err != nil {
		t.Fatal(err)
	}
	order := ""
	for _, p := range changes.Providers {
		order += p.Name
	}
	if order != "abcdxy" {
		t.Errorf("order %s, want abcdxy", order)
	}
}

func TestInterimAllowsWhatIsClaimedAndNoMore(t *testing.T) {
	s := sample()
	if got := transfer.Interim(s); len(got) > 0 {
		t.Errorf("claims that fit: got %v", got)
	}
	drained := offer(8)
	drained.Reserved = 8
	coarse := offer(4)
	coarse.StepSize = 2
	s.Providers[1].Inventories = map[croft.ResourceClass]croft.Inventory{croft.VCPU: drained, "CUSTOM_FPGA": coarse,
		croft.DiskGB: drained}
	room := func(n int64) croft.Inventory {
		return croft.Inventory{Total: n, MinUnit: 1, MaxUnit: 1<<31 - 1, StepSize: 1, AllocationRatio: 1}
	}
	want := map[croft.HostID]map[croft.ResourceClass]croft.Inventory{host: {croft.VCPU: room(2),
		"CUSTOM_FPGA": room(1)}}
	if diff := cmp.Diff(want, transfer.Interim(s)); diff != "" {
		t.Error("-want +got:", diff)
	}
}

func TestAnInterimInventoryIsOurOwn(t *testing.T) {
	want := sample()
	i := want.Providers[1].Inventories[croft.VCPU]
	i.Reserved = i.Total
	want.Providers[1].Inventories[croft.VCPU] = i
	have := target(func(s *transfer.State) {
		s.Providers[1].Inventories[croft.VCPU] = transfer.Interim(want)[host][croft.VCPU]
	})
	changes, err := transfer.Plan(have, want, false)
	if err != nil || told(changes) != "host@12" {
		t.Errorf("got %v, %v, want the host finished", changes, err)
	}
}
