package ledger

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// history is a replay of random requests that keeps the stored entries.
type history struct {
	*replay
	*rand.Rand
	stored map[Key][]byte
}

func newHistory(t *testing.T, seed uint64) *history {
	return &history{newReplay(t), rand.New(rand.NewPCG(seed, 2)), map[Key][]byte{}}
}

// commit stores a transaction if its comparisons hold.
func (h *history) commit(txn Txn) bool {
	if !h.replay.commit(txn) {
		return false
	}
	for _, w := range txn.Then {
		if delete(h.stored, w.Key); !w.Delete {
			h.stored[w.Key] = w.Value
		}
	}
	return true
}

// entries returns all stored entries.
func (h *history) entries() (all []Entry) {
	for key, value := range h.stored {
		all = append(all, Entry{Key: key, Value: value, Created: h.created[key], Modified: h.modified[key]})
	}
	return all
}

func (h *history) one(list ...string) string { return list[h.IntN(len(list))] }

func (h *history) some(list ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(string) bool { return h.IntN(2) == 0 })
}

// request makes a random request. Most requests are granted, because they use the right generations. Only a request
// that is alone in its batch deletes a provider: a provider that is deleted and created in the same transaction keeps
// its place in the order of creation until the next load.
func (h *history) request(alone bool) func(*Tx) error {
	p, q, x := h.one("p0", "p1", "p2"), h.one("p0", "p1", "p2", ""), h.one("x0", "x1")
	custom, other := h.one("CUSTOM_A", "CUSTOM_B"), h.one("CUSTOM_A", "CUSTOM_B", "CUSTOM_C")
	mark, generation := h.one("CUSTOM_S", "CUSTOM_T"), int64(0)
	if have := h.providers[p]; have != nil {
		generation = have.Generation
	}
	specs := func() (list []InventorySpec) {
		for _, class := range h.some("VCPU", custom, "DISK_GB") {
			list = append(list, InventorySpec{class, Inventory{Total: 4 + h.Int64N(2), MinUnit: 1,
				MaxUnit: 6, StepSize: 1, Ratio: 1}})
		}
		return list
	}
	demands := func() ClaimRequest {
		c := ClaimRequest{Consumer: x, Project: h.one("a", "b"), User: "u", Type: "T"}
		if have := h.consumers[x]; have != nil {
			c.Generation = &have.Generation
		}
		for _, class := range h.some("VCPU", custom) {
			c.Demands = append(c.Demands, demand(p, class, 1+h.Int64N(3)))
		}
		return c
	}
	traits := h.some(mark, "HW_CPU_X86_AVX", "MISC_SHARES_VIA_AGGREGATE")
	switch h.IntN(20) {
	case 0, 1:
		return create(p, q)
	case 2:
		if alone {
			return remove(p)
		}
		return releases(x)
	case 3:
		return update(p, ProviderChange{Name: h.one("name of p0", "m", "n"), Reparent: h.IntN(2) == 0, Parent: q,
			Freely: true})
	case 4:
		return aggregate(p, generation, h.some("g", "h")...)
	case 5, 6:
		return trait(p, generation, traits...)
	case 7, 8:
		list := specs()
		return func(t *Tx) error { _, err := t.SetInventories(p, generation, true, list); return err }
	case 9, 10, 11:
		return claims(demands())
	case 12:
		return releases(x)
	case 13:
		return createClass(custom)
	case 14:
		return func(t *Tx) error { return t.RenameClass(custom, other) }
	case 15:
		return func(t *Tx) error { return t.DeleteClass(custom) }
	case 16:
		return func(t *Tx) error { _, _, err := t.EnsureTrait(mark); return err }
	case 17:
		return func(t *Tx) error { return t.DeleteTrait(mark) }
	case 18:
		return reshape(p, generation, specs(), demands())
	}
	return bring(p, ProviderSpec{Name: h.one("name of "+p, "n"), Inventories: specs(), Traits: traits,
		Aggregates: h.some("g", "h")})
}

// dump writes a state with all derived data, by names.
func dump(s *State) string {
	var out []string
	say := func(format string, values ...any) { out = append(out, fmt.Sprintf(format, values...)) }
	ids := func(list []*Provider) (names []string) {
		for _, p := range list {
			names = append(names, p.UUID)
		}
		return names
	}
	lists := func(of string, name func(ID) string, index map[ID][]*Provider) {
		for id, list := range index {
			say("index %s %s %v", of, name(id), ids(list))
		}
	}
	for uuid, p := range s.providers {
		up, inventories, usage, traits := "", []string{}, []string{}, []string{}
		if p.up != nil {
			up = p.up.UUID
		}
		for _, i := range p.Inventories {
			inventories = append(inventories, fmt.Sprint(s.ClassName(i.Class), i.Total))
		}
		for _, u := range p.Usage {
			usage = append(usage, fmt.Sprint(s.ClassName(u.Class), u.N))
		}
		for _, t := range p.Traits {
			traits = append(traits, s.TraitName(t))
		}
		var consumers []string
		for c := range p.consumers {
			consumers = append(consumers, c.UUID)
		}
		for _, list := range [][]string{inventories, usage, traits, consumers} {
			slices.Sort(list) // the IDs of classes and traits, and so their order, depend on history
		}
		say("provider %s %s %s %d up %s root %s children %v inventories %v used %v traits %v aggregates %v by %v",
			uuid, p.UUID, p.Name, p.Generation, up, p.root.UUID, ids(p.children),
			inventories, usage, traits, p.Aggregates, consumers)
	}
	for name, p := range s.byName {
		say("name %s %s", name, p.UUID)
	}
	for a, list := range s.sharing {
		say("sharing %s %v", a, ids(list))
	}
	for project, consumers := range s.projects {
		for c := range consumers {
			say("project %s %s", project, c.UUID)
		}
		if len(consumers) == 0 {
			say("project %s is empty", project)
		}
	}
	for uuid, c := range s.consumers {
		var allocations []string
		for _, a := range c.Allocations {
			allocations = append(allocations, fmt.Sprint(a.Provider, s.ClassName(a.Class), a.N))
		}
		slices.Sort(allocations)
		say("consumer %s %s %d %s %s %v", uuid, c.UUID, c.Generation, c.Project, c.Type, allocations)
	}
	for _, symbols := range []*Symbols{s.classes, s.traits} {
		for name, x := range symbols.byName {
			if x.Users > 0 || !x.Standard {
				say("symbol %s %d", name, x.Users)
			}
			if symbols.byID[x.id] != x {
				say("symbol %s has another's number", name)
			}
		}
	}
	lists("class", s.ClassName, s.index.classes)
	lists("trait", s.TraitName, s.index.traits)
	for a, list := range s.index.aggregates {
		say("index aggregate %s %v", a, ids(list))
	}
	slices.Sort(out)
	return strings.Join(append(out, fmt.Sprint("all ", ids(s.all)), fmt.Sprint("roots ", ids(s.roots))), "\n")
}

// After any history, the state that followed every change equals the state that is loaded from the store.
func TestAnyHistoryEndsInTheStateThatIsLoaded(t *testing.T) {
	begin := uint64(time.Now().UnixNano())
	granted := 0
	for seed := begin; seed < begin+40; seed++ {
		h := newHistory(t, seed)
		for n := range 150 {
			before := dump(h.State)
			var batch []func(*Tx) error
			size := 1 + h.IntN(3)
			for range size {
				batch = append(batch, h.request(size == 1))
			}
			txn, errs := h.decide(batch...)
			if dump(h.State) != before {
				t.Fatalf("seed %d, request %d: a decision changed the state", seed, n)
			}
			if !h.commit(txn) {
				t.Fatalf("seed %d, request %d: the transaction does not hold", seed, n)
			}
			for _, err := range errs {
				if err == nil {
					granted++
				}
			}
			fresh := newState(time.Unix(1000, 0))
			if err := fresh.apply(h.revision, h.entries()); err != nil {
				t.Fatal(err)
			}
			if got, want := dump(h.State), dump(fresh); got != want {
				t.Fatalf("seed %d, request %d: got\n%s\nwant\n%s", seed, n, got, want)
			}
		}
	}
	if granted < 2000 {
		t.Errorf("%d requests were granted; the test shows too little", granted)
	}
}

// If a transaction's comparisons still hold after another request's transaction, its decision would be the same now.
func TestWhatHoldsAfterAnotherRequestIsStillRight(t *testing.T) {
	begin := uint64(time.Now().UnixNano())
	held := 0
	for seed := begin; seed < begin+60; seed++ {
		h := newHistory(t, seed)
		for n := range 200 {
			first, second := h.request(true), h.request(true)
			early, earlyErrs := h.decide(second)
			if txn, _ := h.decide(first); !h.commit(txn) {
				t.Fatalf("seed %d, request %d: the transaction does not hold", seed, n)
			}
			now, nowErrs := h.decide(second)
			if !h.holds(early) {
				continue
			}
			held++
			if err := fmt.Sprint(earlyErrs[0]); strings.Contains(err, "in use") || strings.Contains(err, "has child") {
				continue // the reads do not include who uses the object: a repeated request may be granted
			}
			if (earlyErrs[0] == nil) != (nowErrs[0] == nil) ||
				earlyErrs[0] == nil && !reflect.DeepEqual(early.Then, now.Then) {
				t.Fatalf("seed %d, request %d: decided %v %+v\nnow %v %+v\nin %s", seed, n, earlyErrs, early, nowErrs,
					now, dump(h.State))
			}
		}
	}
	if held < 2000 {
		t.Errorf("%d transactions held; the test shows too little", held)
	}
}
