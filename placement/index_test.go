package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world changes providers at random, as a watch would tell.
type world struct {
	*rand.Rand
	st       *state
	revision int64
	all      []*providerData
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

// provider makes up what a provider has: of much a little, of little nothing mostly.
func (w *world) provider(p *providerData) {
	p.inventories, p.traits, p.aggregates = nil, nil, nil
	for i, class := range []string{"VCPU", "VGPU", "FPGA"} {
		if i == 0 || w.IntN(12) == 0 {
			p.inventories = append(p.inventories, inventory{class: w.st.classes.intern(class), total: 4, minUnit: 1, maxUnit: 4, stepSize: 1, ratio: 1})
		}
	}
	sortInventories(p.inventories)
	for i, trait := range []string{"COMPUTE_NODE", "HW_CPU_X86_AVX2", "HW_CPU_X86_SGX"} {
		if w.IntN(1+6*i) == 0 {
			p.traits = insertID(p.traits, w.st.traits.intern(trait))
		}
	}
	for range w.IntN(3) {
		p.aggregates = append(p.aggregates, fmt.Sprintf(worldAggregate, w.IntN(20)))
	}
}

func (w *world) step(t *testing.T) {
	switch at := w.IntN(max(len(w.all), 1)); {
	case len(w.all) < 60 || w.IntN(5) == 0:
		p := &providerData{uuid: fmt.Sprintf("c0f7c0f7-0000-4000-8000-%012x", w.revision), name: fmt.Sprint(w.revision), created: w.revision + 1}
		if len(w.all) > 0 && w.IntN(3) == 0 {
			p.parent = w.all[at].uuid
		}
		w.provider(p)
		w.all = append(w.all, p)
		w.tell(t, w.entry(p))
	case w.IntN(3) > 0:
		w.provider(w.all[at])
		w.tell(t, w.entry(w.all[at]))
	default:
		gone := w.all[at]
		if slices.ContainsFunc(w.all, func(p *providerData) bool { return p.parent == gone.uuid }) {
			return
		}
		w.all = slices.Delete(w.all, at, at+1)
		w.tell(t, Entry{Key: Key{KindProvider, gone.uuid}, Deleted: true})
	}
}

func (w *world) entry(p *providerData) Entry {
	return Entry{Key: Key{KindProvider, p.uuid}, Value: encodeProvider(p, w.st), Created: p.created}
}

// request makes up what few can satisfy, or many.
func (w *world) request() candidateRequest {
	aggregate := func() string { return fmt.Sprintf(worldAggregate, w.IntN(20)) }
	req := candidateRequest{nested: true, groups: []group{{resources: []want{{"VCPU", 1}}}}}
	g := &req.groups[0]
	switch w.IntN(6) {
	case 0:
		g.resources = append(g.resources, want{"VGPU", 1})
	case 1:
		g.traits.required = [][]string{{"HW_CPU_X86_SGX"}, {"HW_CPU_X86_AVX2", "COMPUTE_NODE"}}
	case 2:
		g.aggregates.required = [][]string{{aggregate(), aggregate()}}
	case 3:
		req.rootTraits.required = [][]string{{"HW_CPU_X86_SGX"}}
	case 4:
		req.groups = append(req.groups, group{suffix: "1", resources: []want{{"FPGA", 1}}})
	default:
		g.traits.forbidden = []string{"HW_CPU_X86_AVX2"}
	}
	return req
}

func TestASearchByIndexFindsWhatOneTreeAfterTheOtherDoes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := &world{Rand: rand.New(rand.NewPCG(seed, 0)), st: newState(time.Unix(0, 0)), revision: 1}
	narrowed, found := 0, 0
	for range 1500 {
		w.step(t)
		req := w.request()
		got := w.ask(t, req)
		var want []string
		for _, root := range w.st.roots {
			in := req
			in.groups = slices.Clone(req.groups)
			for i := range in.groups {
				in.groups[i].tree = root.uuid
			}
			want = append(want, w.ask(t, in)...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("revision %d: got %v, want %v", w.revision, got, want)
		}
		found += len(got)
		s := &search{st: w.st, req: &req}
		if s.roots, _ = req.rootTraits.find(w.st.traits); len(w.st.roots) > 0 {
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

// ask returns the keys of what is found, in order.
func (w *world) ask(t *testing.T, req candidateRequest) []string {
	found, err := w.st.candidates(t.Context(), &req)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, c := range found {
		key := ""
		for _, p := range c.parts {
			key += fmt.Sprintf("%s %d %d;", p.p.uuid, p.class, p.n)
		}
		keys = append(keys, key)
	}
	return keys
}
