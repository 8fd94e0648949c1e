package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world changes providers at random, as a watch would report it.
type world struct {
	*rand.Rand
	st       *State
	revision int64
	all      []*ProviderData
}

const worldAggregate = "a99a99a9-0000-4000-8000-%012x"

func (w *world) tell(t *testing.T, entries ...Entry) {
	w.revision++
	for i := range entries {
		entries[i].Modified = w.revision
	}
	if err := w.st.apply(w.revision, entries); err != nil {
		t.Fatal(err)
	}
}

// provider generates the data of a provider: some classes and traits are common, others rare.
func (w *world) provider(p *ProviderData) {
	p.Inventories, p.Traits, p.Aggregates = nil, nil, nil
	for i, class := range []string{"VCPU", "VGPU", "FPGA"} {
		if i == 0 || w.IntN(12) == 0 {
			p.Inventories = append(p.Inventories, Inventory{Class: w.st.classes.intern(class), Total: 4, MinUnit: 1,
				MaxUnit: 4, StepSize: 1, Ratio: 1})
		}
	}
	sortInventories(p.Inventories)
	for i, trait := range []string{"COMPUTE_NODE", "HW_CPU_X86_AVX2", "HW_CPU_X86_SGX"} {
		if w.IntN(1+6*i) == 0 {
			p.Traits = insertID(p.Traits, w.st.traits.intern(trait))
		}
	}
	for range w.IntN(3) {
		p.Aggregates = append(p.Aggregates, fmt.Sprintf(worldAggregate, w.IntN(20)))
	}
}

func (w *world) step(t *testing.T) {
	switch at := w.IntN(max(len(w.all), 1)); {
	case len(w.all) < 60 || w.IntN(5) == 0:
		p := &ProviderData{UUID: fmt.Sprintf("c0f7c0f7-0000-4000-8000-%012x", w.revision), Name: fmt.Sprint(w.revision),
			Created: w.revision + 1}
		if len(w.all) > 0 && w.IntN(3) == 0 {
			p.Parent = w.all[at].UUID
		}
		w.provider(p)
		w.all = append(w.all, p)
		w.tell(t, w.entry(p))
	case w.IntN(3) > 0:
		w.provider(w.all[at])
		w.tell(t, w.entry(w.all[at]))
	default:
		gone := w.all[at]
		if slices.ContainsFunc(w.all, func(p *ProviderData) bool { return p.Parent == gone.UUID }) {
			return
		}
		w.all = slices.Delete(w.all, at, at+1)
		w.tell(t, Entry{Key: Key{KindProvider, gone.UUID}, Deleted: true})
	}
}

func (w *world) entry(p *ProviderData) Entry {
	return Entry{Key: Key{KindProvider, p.UUID}, Value: encodeProvider(p, w.st), Created: p.Created}
}

// request generates a request that few or many providers satisfy.
func (w *world) request() CandidateRequest {
	aggregate := func() string { return fmt.Sprintf(worldAggregate, w.IntN(20)) }
	req := CandidateRequest{Nested: true, Groups: []RequestGroup{{Resources: []NamedAmount{{"VCPU", 1}}}}}
	g := &req.Groups[0]
	switch w.IntN(6) {
	case 0:
		g.Resources = append(g.Resources, NamedAmount{"VGPU", 1})
	case 1:
		g.Traits.Required = [][]string{{"HW_CPU_X86_SGX"}, {"HW_CPU_X86_AVX2", "COMPUTE_NODE"}}
	case 2:
		g.Aggregates.Required = [][]string{{aggregate(), aggregate()}}
	case 3:
		req.RootTraits.Required = [][]string{{"HW_CPU_X86_SGX"}}
	case 4:
		req.Groups = append(req.Groups, RequestGroup{Suffix: "1", Resources: []NamedAmount{{"FPGA", 1}}})
	default:
		g.Traits.Forbidden = []string{"HW_CPU_X86_AVX2"}
	}
	return req
}

func TestASearchByIndexFindsWhatOneTreeAfterTheOtherDoes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("sampled: seed %d", seed)
	w := &world{Rand: rand.New(rand.NewPCG(seed, 0)), st: newState(time.Unix(0, 0)), revision: 1}
	narrowed, found := 0, 0
	for range 1500 {
		w.step(t)
		req := w.request()
		got := w.ask(t, req)
		var want []string
		for _, root := range w.st.roots {
			in := req
			in.Groups = slices.Clone(req.Groups)
			for i := range in.Groups {
				in.Groups[i].Tree = root.UUID
			}
			want = append(want, w.ask(t, in)...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("revision %d: got %v, want %v", w.revision, got, want)
		}
		found += len(got)
		s := &search{st: w.st, req: &req}
		if s.roots, _ = req.RootTraits.find(w.st.traits); len(w.st.roots) > 0 {
			if _, err := s.resolve(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(s.trees()) < len(w.st.roots) {
				narrowed++
			}
		}
	}
	if narrowed < 150 || found < 150 {
		t.Errorf("%d searches used an index and %d candidates were found; the test shows too little", narrowed, found)
	}
}

// ask returns the keys of the candidates, in order.
func (w *world) ask(t *testing.T, req CandidateRequest) []string {
	found, err := w.st.Candidates(t.Context(), &req)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, c := range found {
		key := ""
		for _, p := range c.Portions {
			key += fmt.Sprintf("%s %d %d;", p.Provider.UUID, p.Class, p.N)
		}
		keys = append(keys, key)
	}
	return keys
}

func TestASearchVisitsOnlyTheTreesThatMayHoldCandidates(t *testing.T) {
	text := "rare VGPU:1 +CUSTOM_A @a\n  child VCPU:1 FPGA:1 +CUSTOM_B @b\n"
	for n := range 40 {
		text += fmt.Sprintf("h%d VCPU:4\n", n)
	}
	m := cloud(t, text)
	vcpu := []NamedAmount{{"VCPU", 1}}
	traits := func(any ...string) TraitTest { return TraitTest{Required: [][]string{any}} }
	for name, req := range map[string]CandidateRequest{
		"a class":            {Groups: []RequestGroup{{Resources: []NamedAmount{{"VCPU", 1}, {"VGPU", 1}}}}},
		"a class of a child": {Groups: []RequestGroup{{Resources: []NamedAmount{{"FPGA", 1}}}}},
		"a class of a group": {Groups: []RequestGroup{{Resources: vcpu},
			{Suffix: "1", Resources: []NamedAmount{{"FPGA", 1}}}}},
		"a trait":           {Groups: []RequestGroup{{Resources: vcpu, Traits: traits("CUSTOM_B")}}},
		"one of two traits": {Groups: []RequestGroup{{Resources: vcpu, Traits: traits("CUSTOM_A", "CUSTOM_B")}}},
		"an aggregate": {Groups: []RequestGroup{{Resources: vcpu,
			Aggregates: AggregateTest{Required: [][]string{{uuidOf("b")}}}}}},
		"a trait of the root": {Groups: []RequestGroup{{Resources: vcpu}}, RootTraits: traits("CUSTOM_A")},
	} {
		s := &search{st: m.State, req: &req}
		s.roots, _ = req.RootTraits.find(m.traits)
		if _, err := s.resolve(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.trees(); len(got) != 1 || got[0].UUID != "rare" {
			t.Errorf("%s: %d trees", name, len(got))
		}
	}
}
