package schedule

import (
	"slices"
	"testing"

	"croft"
)

// first chooses by the usages that a policy sees, and returns the chosen host.
func (u *inFlight) first(r *candidateReader, inst croft.Instance, candidates ...croft.Candidate) (*choice,
	croft.HostID) {
	ch, _ := u.choose(r, inst, candidates, func(c []croft.Candidate, _ []croft.GroupMember) []croft.Candidate {
		return Spread.Order(c)
	})
	return ch, hostOf(ch.candidate)
}

func TestChoicesOfOthersCountUntilTheyAreRead(t *testing.T) {
	// a is a little emptier than b, until a request takes 100 MEMORY_MB of it
	a, b := candidate("a", 80, 1000, 0), candidate("b", 80, 1000, 50)
	u, both := newInFlight(), []croft.Candidate{a, b}
	r1, r2, r3 := u.read(), u.read(), u.read()
	first, host := u.first(r1, croft.Instance{}, a, b)
	if host != "a" {
		t.Fatalf("the first went to %s", host)
	}
	if _, host := u.first(r2, croft.Instance{}, a, b); host != "b" {
		t.Errorf("the second, which read the same, went to %s as well", host)
	}
	u.claimed(first)
	late := u.read() // the usages now include the first request; b's is not added twice
	u.end(first, true)
	if used, _ := u.since(late, "", both); used["a"] != nil || used["b"][croft.MemoryMB] != 100 {
		t.Errorf("who reads late is told of %v again", used)
	}
	if used, _ := u.since(r3, "", both); used["a"][croft.MemoryMB] != 100 {
		t.Errorf("who read early is told of %v only", used)
	}
	if a.Summaries["a"].Used[croft.MemoryMB] != 0 {
		t.Error("what was read was changed")
	}
}

func TestChoicesThatEndAreForgotten(t *testing.T) {
	u := newInFlight()
	r := u.read()
	lost, _ := u.first(r, croft.Instance{}, candidate("a", 80, 1000, 0))
	u.end(lost, false)
	if len(u.choices) != 0 {
		t.Error("a choice that came to nothing counts on")
	}
	done, _ := u.first(r, croft.Instance{}, candidate("a", 80, 1000, 0))
	u.end(done, true)
	if len(u.choices) != 1 {
		t.Error("a choice is forgotten before the last who did not read it")
	}
	u.done(r)
	if len(u.choices)+len(u.readers) != 0 {
		t.Errorf("left: %v, %v", u.choices, u.readers)
	}
}

func TestChoicesCarryTheirGroups(t *testing.T) {
	u, both := newInFlight(), []croft.Candidate{candidate("a", 80, 1000, 0), candidate("b", 80, 1000, 0)}
	inst := croft.Instance{Project: "p",
		Spec: croft.Spec{
			InstanceSettings: croft.InstanceSettings{Affinities: []croft.Affinity{{Group: "web", Rule: croft.Apart}}}}}
	r := u.read()
	u.first(r, inst, candidate("a", 80, 1000, 0))
	if _, members := u.since(r, "p", both); len(members) != 1 || members[0].Host != "a" {
		t.Errorf("members in flight are %+v", members)
	}
	if _, members := u.since(r, "q", both); len(members) != 0 {
		t.Errorf("another project sees %+v", members)
	}
	// once claimed, it is part of the usages of later readers; its group has it once it is ordered
	ch, _ := u.first(u.read(), inst, candidate("b", 80, 1000, 0))
	u.claimed(ch)
	between := u.read()
	if used, members := u.since(between, "p", both); used["b"] != nil || len(members) != 2 {
		t.Errorf("between claim and order: %v, %+v", used, members)
	}
	u.end(ch, true)
	if used, members := u.since(u.read(), "p", both); used["b"] != nil || len(members) != 1 {
		t.Errorf("after the order: %v, %+v", used, members)
	}
	if _, members := u.since(between, "p", both); len(members) != 2 {
		t.Errorf("who read before the order sees %+v", members)
	}
}

// Without readers an ordered choice is removed at once.
func TestAnOrderedChoiceWithoutReadersIsForgotten(t *testing.T) {
	u := newInFlight()
	r := u.read()
	ch, _ := u.first(r, croft.Instance{}, candidate("a", 80, 1000, 0))
	u.done(r)
	u.end(ch, true)
	if len(u.choices) != 0 {
		t.Errorf("left: %v", u.choices)
	}
}

func TestPack(t *testing.T) {
	blind := candidate("blind", 8, 1000, 0)
	blind.Summaries = nil
	in := []croft.Candidate{candidate("empty", 80, 1000, 0), blind, candidate("overfull", 80, 1000, 950),
		candidate("full", 80, 1000, 800), candidate("filled", 80, 1000, 900)}
	if got := order(Pack.Order(in)); !slices.Equal(got[:3], []croft.HostID{"filled", "full", "empty"}) {
		t.Errorf("got %q, want the fullest that has room first", got)
	}
}

func TestTheNamesOfPoliciesAreKnown(t *testing.T) {
	for _, name := range Policies {
		if p, err := PolicyNamed(name); p == nil || err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := PolicyNamed("packed"); croft.KindOf(err) != croft.Invalid {
		t.Errorf("got %v", err)
	}
}
