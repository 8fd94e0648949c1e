package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"croft"
)

// cloud creates providers, one per line, below the last line with two spaces less indentation, as in "  numa0 VCPU:4
// +HW_NUMA_ROOT @agg1".
func cloud(t *testing.T, text string) *replay {
	t.Helper()
	m := newReplay(t)
	var path []string
	for line := range strings.Lines(text) {
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		parent := ""
		if depth > 0 {
			parent = path[depth-1]
		}
		path = append(path[:depth], fields[0])
		m.do(create(fields[0], parent), describe(fields[0], fields[1:]))
	}
	return m
}

func describe(id string, words []string) func(*Tx) error {
	return func(t *Tx) error {
		v := t.providers.whole(id)
		var specs []InventorySpec
		for _, w := range words {
			switch {
			case w[0] == '@':
				v.Aggregates = append(v.Aggregates, uuidOf(w[1:]))
			case w[0] == '+':
				trait, _, err := t.traits.ensure(w[1:])
				if err != nil {
					return err
				}
				v.Traits = insertID(slices.Clone(v.Traits), trait.id)
			default:
				class, amount, _ := strings.Cut(w, ":")
				s := InventorySpec{class, Inventory{MinUnit: 1, MaxUnit: 1000, StepSize: 1, Ratio: 1}}
				if _, err := fmt.Sscan(amount, &s.Total); err != nil {
					return err
				}
				specs = append(specs, s)
			}
		}
		v.write = true
		list, err := t.resolve(specs)
		t.providers.setInventories(v, list)
		return err
	}
}

// uuidOf converts a short name of hexadecimal digits to a UUID.
func uuidOf(name string) string {
	return fmt.Sprintf("00000000-0000-0000-0000-%012s", name)
}

// parse reads a candidate request from a valid query string.
func parse(params string) *CandidateRequest {
	req := &CandidateRequest{Nested: true}
	for param := range strings.SplitSeq(params, "&") {
		key, value, _ := strings.Cut(param, "=")
		items := strings.Split(strings.TrimLeft(value, "!in:"), ",")
		switch key {
		case "limit":
			_, _ = fmt.Sscan(value, &req.Limit)
		case "group_policy":
			req.Isolate = value == "isolate"
		case "same_subtree":
			req.Subtrees = append(req.Subtrees, items)
		case "root_required":
			addTraits(&req.RootTraits, value)
		default:
			req.parseGroup(key, value, items)
		}
	}
	return req
}

func (req *CandidateRequest) parseGroup(key, value string, items []string) {
	suffix := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(key, "resources"), "required"), "member_of")
	at := slices.IndexFunc(req.Groups, func(g RequestGroup) bool { return g.Suffix == suffix })
	if at < 0 {
		at = len(req.Groups)
		req.Groups = append(req.Groups, RequestGroup{Suffix: suffix})
	}
	g := &req.Groups[at]
	switch {
	case strings.HasPrefix(key, "resources"):
		for _, item := range items {
			class, amount, _ := strings.Cut(item, ":")
			g.Resources = append(g.Resources, NamedAmount{Class: class})
			_, _ = fmt.Sscan(amount, &g.Resources[len(g.Resources)-1].N)
		}
	case strings.HasPrefix(key, "required"):
		addTraits(&g.Traits, value)
	case strings.HasPrefix(value, "!"):
		g.Aggregates.Forbidden = append(g.Aggregates.Forbidden, items...)
	default:
		g.Aggregates.Required = append(g.Aggregates.Required, items)
	}
}

// addTraits reads A,!B or in:A,B.
func addTraits(t *TraitTest, value string) {
	if rest, any := strings.CutPrefix(value, "in:"); any {
		t.Required = append(t.Required, strings.Split(rest, ","))
		return
	}
	for item := range strings.SplitSeq(value, ",") {
		if name, forbidden := strings.CutPrefix(item, "!"); forbidden {
			t.Forbidden = append(t.Forbidden, name)
		} else {
			t.Required = append(t.Required, []string{name})
		}
	}
}

// ask runs a candidate request and returns each candidate as "provider=CLASS:n,... provider=...".
func (m *replay) ask(params string) ([]string, error) {
	found, err := m.Candidates(m.t.Context(), parse(params))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, c := range found {
		amounts := map[string][]string{}
		for _, x := range c.Portions {
			id := x.Provider.UUID
			amounts[id] = append(amounts[id], fmt.Sprintf("%s:%d", m.ClassName(x.Class), x.N))
		}
		var words []string
		for id, list := range amounts {
			slices.Sort(list)
			words = append(words, id+"="+strings.Join(list, ","))
		}
		slices.Sort(words)
		out = append(out, strings.Join(words, " "))
	}
	slices.Sort(out)
	return out, nil
}

const twoNUMANodes = `
host VCPU:0 MEMORY_MB:0 DISK_GB:100 +COMPUTE_NODE @a
  numa0 VCPU:4 MEMORY_MB:8 +HW_NUMA_ROOT +CUSTOM_FAST
    pf0 SRIOV_NET_VF:2 +CUSTOM_NET_A
  numa1 VCPU:4 MEMORY_MB:8 +HW_NUMA_ROOT
    pf1 SRIOV_NET_VF:2 +CUSTOM_NET_B
`

const sharedDisk = `
one VCPU:8 @a
two VCPU:8 @b
share DISK_GB:100 +MISC_SHARES_VIA_AGGREGATE @a
`

func TestCandidates(t *testing.T) {
	flat := "h1 VCPU:4 DISK_GB:10 +CUSTOM_RED @a\nh2 VCPU:2 DISK_GB:10 +CUSTOM_BLUE @b\n"
	for name, test := range map[string]struct {
		cloud, query string
		want         []string
	}{
		"who has enough of all": {flat, "resources=VCPU:2,DISK_GB:1", []string{"h1=DISK_GB:1,VCPU:2",
			"h2=DISK_GB:1,VCPU:2"}},
		"who has not enough is left out": {flat, "resources=VCPU:3", []string{"h1=VCPU:3"}},
		"a required trait":               {flat, "resources=VCPU:1&required=CUSTOM_BLUE", []string{"h2=VCPU:1"}},
		"a forbidden trait":              {flat, "resources=VCPU:1&required=!CUSTOM_BLUE", []string{"h1=VCPU:1"}},
		"any of two traits": {flat, "resources=VCPU:1&required=in:CUSTOM_RED,CUSTOM_BLUE",
			[]string{"h1=VCPU:1", "h2=VCPU:1"}},
		"both of two traits": {flat, "resources=VCPU:1&required=CUSTOM_RED&required=CUSTOM_BLUE", nil},
		"an aggregate":       {flat, "resources=VCPU:1&member_of=" + uuidOf("a"), []string{"h1=VCPU:1"}},
		"not an aggregate": {flat, "resources=VCPU:1&member_of=!" + uuidOf("a"),
			[]string{"h2=VCPU:1"}},
		"one of two aggregates": {flat,
			"resources=VCPU:1&member_of=in:" + uuidOf("a") + "," + uuidOf("b"), []string{"h1=VCPU:1", "h2=VCPU:1"}},
		"a tree together": {twoNUMANodes, "resources=VCPU:4,DISK_GB:1",
			[]string{"host=DISK_GB:1 numa0=VCPU:4", "host=DISK_GB:1 numa1=VCPU:4"}},
		"traits are found together": {twoNUMANodes,
			"resources=VCPU:1,SRIOV_NET_VF:1&required=CUSTOM_FAST,CUSTOM_NET_B",
			[]string{"numa0=VCPU:1 pf1=SRIOV_NET_VF:1"}},
		"the root's aggregate spans its tree": {twoNUMANodes, "resources=VCPU:1&member_of=" + uuidOf("a"),
			[]string{"numa0=VCPU:1", "numa1=VCPU:1"}},
		"but not for a group with a suffix": {twoNUMANodes, "resources1=VCPU:1&member_of1=" + uuidOf("a"), nil},
		"one provider has all of a suffix": {twoNUMANodes, "resources1=VCPU:1,MEMORY_MB:1",
			[]string{"numa0=MEMORY_MB:1,VCPU:1", "numa1=MEMORY_MB:1,VCPU:1"}},
		"groups may meet on a provider": {twoNUMANodes, "resources1=VCPU:2&resources2=VCPU:2&group_policy=none",
			[]string{"numa0=VCPU:2 numa1=VCPU:2", "numa0=VCPU:2 numa1=VCPU:2", "numa0=VCPU:4", "numa1=VCPU:4"}},
		"as long as it has enough for both": {twoNUMANodes, "resources1=VCPU:3&resources2=VCPU:3&group_policy=none",
			[]string{"numa0=VCPU:3 numa1=VCPU:3", "numa0=VCPU:3 numa1=VCPU:3"}},
		"groups are isolated": {twoNUMANodes,
			"resources1=VCPU:2&resources2=VCPU:2&group_policy=isolate", []string{"numa0=VCPU:2 numa1=VCPU:2",
				"numa0=VCPU:2 numa1=VCPU:2"}},
		"the network card below the same node": {twoNUMANodes,
			"resources1=VCPU:1&resources2=SRIOV_NET_VF:1&group_policy=none&same_subtree=1,2",
			[]string{"numa0=VCPU:1 pf0=SRIOV_NET_VF:1", "numa1=VCPU:1 pf1=SRIOV_NET_VF:1"}},
		"without it any card": {twoNUMANodes,
			"resources1=VCPU:1&resources2=SRIOV_NET_VF:1&group_policy=none", []string{"numa0=VCPU:1 pf0=SRIOV_NET_VF:1",
				"numa0=VCPU:1 pf1=SRIOV_NET_VF:1", "numa1=VCPU:1 pf0=SRIOV_NET_VF:1",
				"numa1=VCPU:1 pf1=SRIOV_NET_VF:1"}},
		"a group without resources ties others": {twoNUMANodes,
			"resources_C=VCPU:1&resources_N=SRIOV_NET_VF:1&required_T=CUSTOM_FAST&group_policy=none&same_subtree=_T,_C,_N", []string{"numa0=VCPU:1 pf0=SRIOV_NET_VF:1"}},
		"a trait of the root": {twoNUMANodes + flat, "resources=VCPU:1&root_required=COMPUTE_NODE",
			[]string{"numa0=VCPU:1", "numa1=VCPU:1"}},
		"a trait that the root must not have": {twoNUMANodes + flat, "resources=VCPU:1&root_required=!COMPUTE_NODE",
			[]string{"h1=VCPU:1", "h2=VCPU:1"}},
		"a share serves those in its aggregate": {sharedDisk, "resources=VCPU:1,DISK_GB:1",
			[]string{"one=VCPU:1 share=DISK_GB:1"}},
		"a share alone is one candidate": {sharedDisk, "resources=DISK_GB:1", []string{"share=DISK_GB:1"}},
		"a share serves a group with a suffix": {sharedDisk, "resources=VCPU:1&resources1=DISK_GB:1",
			[]string{"one=VCPU:1 share=DISK_GB:1"}},
		"a share in a forbidden aggregate is not": {sharedDisk, "resources=VCPU:1,DISK_GB:1&member_of=!" + uuidOf("a"),
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cloud(t, test.cloud).ask(test.query)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v\nwant %q", got, err, test.want)
			}
		})
	}
}

func TestInTreeStaysInTheTreeOfAnyOfItsProviders(t *testing.T) {
	m := cloud(t, twoNUMANodes+"other VCPU:4\n")
	for _, tree := range []string{"host", "pf0", "numa1"} {
		groups := []RequestGroup{{Resources: []NamedAmount{{"VCPU", 1}}, Tree: tree}}
		req := &CandidateRequest{Groups: groups, Nested: true}
		found, err := m.Candidates(t.Context(), req)
		if err != nil || len(found) != 2 || found[0].Portions[0].Provider.UUID != "numa0" ||
			found[1].Portions[0].Provider.UUID != "numa1" {
			t.Errorf("in the tree of %s: %v, %v", tree, found, err)
		}
	}
}

func TestLimitIsKeptAndDrawsFromAll(t *testing.T) {
	var text strings.Builder
	for i := range 30 {
		fmt.Fprintf(&text, "h%02d VCPU:4\n", i)
	}
	m := cloud(t, text.String())
	first, err := m.ask("resources=VCPU:1&limit=3")
	if err != nil || !slices.Equal(first, []string{"h00=VCPU:1", "h01=VCPU:1", "h02=VCPU:1"}) {
		t.Errorf("in order of creation: %q, %v", first, err)
	}
	seen := map[*Provider]bool{}
	for range 200 {
		req := &CandidateRequest{Groups: []RequestGroup{{Resources: []NamedAmount{{"VCPU", 1}}}}, Limit: 3,
			Nested: true, Randomize: true}
		found, err := m.Candidates(t.Context(), req)
		if err != nil || len(found) != 3 {
			t.Fatalf("%d candidates, %v", len(found), err)
		}
		for _, c := range found {
			seen[c.Portions[0].Provider] = true
		}
	}
	if len(seen) != 30 {
		t.Errorf("%d of 30 providers ever come first in random order", len(seen))
	}
}

func TestUsedUpCapacityAndUnitsCount(t *testing.T) {
	m := newReplay(t)
	m.do(create("a", ""), func(t *Tx) error {
		list, err := t.resolve([]InventorySpec{{"VCPU", Inventory{Total: 10, Reserved: 2, MinUnit: 2, MaxUnit: 6,
			StepSize: 2, Ratio: 1.5}}})
		t.providers.setInventories(t.providers.get("a"), list)
		return err
	}, takes("x", "a", "VCPU", 6))
	for amount, fits := range map[int]bool{1: false, 2: true, 3: false, 4: true, 6: true, 8: false} {
		got, err := m.ask(fmt.Sprintf("resources=VCPU:%d", amount))
		if err != nil || (len(got) == 1) != fits {
			t.Errorf("%d more of 12: %q, %v", amount, got, err)
		}
	}
	m.do(takes("y", "a", "VCPU", 4))
	if got, err := m.ask("resources=VCPU:4"); err != nil || len(got) != 0 {
		t.Errorf("4 more of 2: %q, %v", got, err)
	}
}

// vcpu returns a group with a suffix that requests one VCPU.
func vcpu(suffix string) RequestGroup {
	return RequestGroup{Suffix: suffix, Resources: []NamedAmount{{"VCPU", 1}}}
}

func TestUnknownNamesInARequest(t *testing.T) {
	unknownClass := RequestGroup{Suffix: "2", Resources: []NamedAmount{{"CUSTOM_X", 1}}}
	unknownTrait := RequestGroup{Suffix: "2", Resources: []NamedAmount{{"VCPU", 1}},
		Traits: TraitTest{Required: [][]string{{"CUSTOM_X"}}}}
	many := RequestGroup{Suffix: "1", Resources: []NamedAmount{{"VCPU", 100}}}
	elsewhere := unknownTrait
	elsewhere.Aggregates.Required = [][]string{{uuidOf("c")}}
	nowhere := vcpu("2")
	nowhere.Tree = "nobody"
	for name, test := range map[string]struct {
		cloud  string
		groups []RequestGroup
		roots  TraitTest
		want   int // candidates; -1: the request is invalid
	}{
		"a class":                          {twoNUMANodes, []RequestGroup{vcpu("1"), unknownClass}, TraitTest{}, -1},
		"a class where no provider is":     {"", []RequestGroup{unknownClass}, TraitTest{}, -1},
		"a trait":                          {twoNUMANodes, []RequestGroup{vcpu("1"), unknownTrait}, TraitTest{}, -1},
		"a trait of roots":                 {twoNUMANodes, []RequestGroup{vcpu("1")}, unknownTrait.Traits, -1},
		"after a group that nobody has":    {twoNUMANodes, []RequestGroup{many, unknownClass}, TraitTest{}, 0},
		"a trait where no provider may be": {twoNUMANodes, []RequestGroup{elsewhere}, TraitTest{}, 0},
		"a tree":                           {twoNUMANodes, []RequestGroup{nowhere}, TraitTest{}, 0},
		"a tree of one of two groups":      {twoNUMANodes, []RequestGroup{vcpu("1"), nowhere}, TraitTest{}, 0},
		"none":                             {twoNUMANodes, []RequestGroup{vcpu("1")}, TraitTest{}, 2},
		"nothing is asked":                 {"flat VCPU:1\n", []RequestGroup{{Suffix: "1"}}, TraitTest{}, 0},
		"nothing is asked of a tree":       {twoNUMANodes, []RequestGroup{{Suffix: "1"}}, TraitTest{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			req := &CandidateRequest{Groups: test.groups, RootTraits: test.roots, Nested: true}
			found, err := cloud(t, test.cloud).Candidates(t.Context(), req)
			if len(found) != max(test.want, 0) || (test.want < 0) != errors.Is(err, croft.Invalid) {
				t.Errorf("%d candidates, %v", len(found), err)
			}
		})
	}
}

func TestASearchThatNobodyWaitsForEnds(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	flat := ""
	for n := range 300 {
		flat += fmt.Sprintf("h%d VCPU:4\n", n)
	}
	unknown := RequestGroup{Suffix: "2", Resources: []NamedAmount{{"CUSTOM_X", 1}}}
	for name, test := range map[string]struct {
		cloud  string
		groups []RequestGroup
	}{
		"of many trees":          {flat, []RequestGroup{vcpu("")}},
		"of combinations":        {twoNUMANodes, []RequestGroup{vcpu("1"), vcpu("2")}},
		"before an unknown name": {twoNUMANodes, []RequestGroup{vcpu("1"), unknown}},
	} {
		found, err := cloud(t, test.cloud).Candidates(gone, &CandidateRequest{Groups: test.groups, Nested: true})
		if len(found) > 0 || !errors.Is(err, croft.Unavailable) {
			t.Errorf("%s: %d candidates, %v", name, len(found), err)
		}
	}
}

// As in the original, in_tree of a group without resources has an effect only if nothing is shared.
func TestInTreeOfAGroupWithoutResources(t *testing.T) {
	const two = "one VCPU:4 +CUSTOM_A\n  child VCPU:4\ntwo VCPU:4 +CUSTOM_A\n"
	for text, want := range map[string]int{two: 1, two + "share DISK_GB:4 +MISC_SHARES_VIA_AGGREGATE @a\n": 2} {
		groups := []RequestGroup{vcpu("1"), {Suffix: "2", Tree: "two", Traits: TraitTest{Required: [][]string{
			{"CUSTOM_A"}}}}}
		req := &CandidateRequest{Groups: groups, Subtrees: [][]string{{"1", "2"}}, Nested: true}
		found, err := cloud(t, text).Candidates(t.Context(), req)
		var of []string
		for _, c := range found {
			of = append(of, c.Options[1].Providers[0].UUID)
		}
		if of = slices.Compact(of); err != nil || len(of) != want || of[want-1] != "two" {
			t.Errorf("%s: the trait is found at %v, %v", text, of, err)
		}
	}
}

func TestSharesComeInTheOrderOfTheirCreation(t *testing.T) {
	m := cloud(t, "s1 DISK_GB:9 +MISC_SHARES_VIA_AGGREGATE @b\ns2 DISK_GB:9 +MISC_SHARES_VIA_AGGREGATE @a\n"+
		"host VCPU:4 @a @b\n")
	for _, classes := range [][]string{{"VCPU", "DISK_GB"}, {"DISK_GB", "VCPU"}} {
		req := &CandidateRequest{Nested: true, Groups: []RequestGroup{{Resources: []NamedAmount{{classes[0], 1},
			{classes[1], 1}}}}}
		found, err := m.Candidates(t.Context(), req)
		var got []string
		for _, c := range found {
			for _, x := range c.Portions {
				got = append(got, x.Provider.UUID)
			}
		}
		if err != nil || !slices.Equal(got, []string{"host", "s1", "host", "s2"}) {
			t.Errorf("asked for %v: %v, %v", classes, got, err)
		}
	}
}

func TestCandidatesOfOneTreeComeInRandomOrder(t *testing.T) {
	text := "root\n"
	for n := range 5 {
		text += fmt.Sprintf("  n%d VCPU:4\n", n)
	}
	m := cloud(t, text)
	first := map[string]bool{}
	for range 300 { // the probability that one of 5 is never first is 10^-28
		found, err := m.Candidates(t.Context(), &CandidateRequest{Groups: []RequestGroup{vcpu("")}, Nested: true,
			Randomize: true})
		if err != nil || len(found) != 5 {
			t.Fatalf("%d candidates, %v", len(found), err)
		}
		first[found[0].Portions[0].Provider.UUID] = true
	}
	if len(first) != 5 {
		t.Errorf("%d of 5 ever come first", len(first))
	}
}

func TestARandomWalkVisitsEverythingOnceInManyOrders(t *testing.T) {
	for n := 2; n < 60; n++ {
		strides := map[int]bool{}
		for range 300 {
			start, stride := randomWalk(n)
			seen, at := map[int]bool{}, start
			for range n {
				seen[at] = true
				at = (at + stride) % n
			}
			if len(seen) != n || start >= n || stride >= max(n, 2) {
				t.Fatalf("%d: from %d by %d visits %d", n, start, stride, len(seen))
			}
			strides[stride] = true
		}
		if n == 59 && len(strides) < 30 {
			t.Errorf("%d: %d strides only", n, len(strides))
		}
	}
}
