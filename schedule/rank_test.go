package schedule

import (
	"slices"
	"testing"

	"croft"
)

// candidate takes 1 VCPU and 100 MEMORY_MB of a host with these capacities, of which only usedMemory is used.
func candidate(host croft.HostID, vcpu, memory, usedMemory int64) croft.Candidate {
	return croft.Candidate{
		Allocations: map[croft.HostID]croft.Resources{host: {croft.VCPU: 1, croft.MemoryMB: 100}},
		Summaries: map[croft.HostID]croft.Summary{host: {
			Capacity: croft.Resources{croft.VCPU: vcpu, croft.MemoryMB: memory, "CUSTOM_FULL": 1},
			Used:     croft.Resources{croft.MemoryMB: usedMemory, "CUSTOM_FULL": 1},
		}},
	}
}

func order(candidates []croft.Candidate) []croft.HostID {
	var hosts []croft.HostID
	for _, c := range candidates {
		hosts = append(hosts, hostOf(c))
	}
	return hosts
}

func TestSpread(t *testing.T) {
	blind := candidate("blind", 8, 1000, 0)
	blind.Summaries = nil
	for _, c := range []struct {
		name string
		in   []croft.Candidate
		want []croft.HostID
	}{
		{"the emptier first", []croft.Candidate{candidate("full", 8, 1000, 800), candidate("empty", 8, 1000, 0)},
			[]croft.HostID{"empty", "full"}},
		{"by the fraction, not the amount", []croft.Candidate{candidate("big", 80, 100000, 90000),
			candidate("small", 80, 1000, 0)}, []croft.HostID{"small", "big"}},
		{"the scarcest resource counts", []croft.Candidate{candidate("few cores", 2, 100000, 0),
			candidate("even", 8, 1000, 0)}, []croft.HostID{"even", "few cores"}},
		{"what nobody asked for does not count", []croft.Candidate{candidate("a", 8, 1000, 500),
			candidate("b", 8, 1000, 400)}, []croft.HostID{"b", "a"}},
		{"one that cannot be judged is last", []croft.Candidate{blind, candidate("full", 8, 1000, 850)},
			[]croft.HostID{"full", "blind"}},
		{"one that is exactly filled is before one that cannot be judged",
			[]croft.Candidate{blind, candidate("filled", 8, 1000, 900)}, []croft.HostID{"filled", "blind"}},
		{"none", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := order(Spread.Order(c.in)); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestSpreadBreaksTiesByChance(t *testing.T) {
	first := map[croft.HostID]bool{}
	for range 1000 { // the probability that one of two never comes first is 1 in 2^999
		first[order(Spread.Order([]croft.Candidate{candidate("a", 8, 1000, 0), candidate("b", 8, 1000, 0)}))[0]] = true
	}
	if len(first) != 2 {
		t.Errorf("always %v", first)
	}
}

func TestHostOfIsTheProviderOfCores(t *testing.T) {
	c := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{
		"a pool": {croft.DiskGB: 1}, "host": {croft.VCPU: 1, croft.MemoryMB: 1},
	}}
	if got := hostOf(c); got != "host" {
		t.Errorf("got %s", got)
	}
	// in an order that does not depend on the map's iteration
	for range 50 {
		c := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{"numa1": {croft.VCPU: 1},
			"numa0": {croft.VCPU: 1}, "disk": {croft.DiskGB: 1}, "numa2": {croft.VCPU: 2}}}
		if got := hostOf(c); got != "numa0" {
			t.Fatalf("got %s", got)
		}
	}
	if got := hostsOf([]croft.Candidate{c, {}, c}); !slices.Equal(got, []croft.HostID{"host"}) {
		t.Errorf("got %q, want each host once", got)
	}
}

// Candidates without a host are not ranked.
func TestAProviderOfNothingIsNotJudged(t *testing.T) {
	c := candidate("a", 0, 1000, 0)
	if got := freeAfter(c); got >= 0 {
		t.Errorf("%v stays free of a provider without VCPU", got)
	}
}
