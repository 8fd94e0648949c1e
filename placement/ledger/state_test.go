package ledger

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestEntriesThatCannotBeReadAreErrors(t *testing.T) {
	for _, kind := range []Kind{KindClass, KindTrait, KindProvider, KindGeneration, KindConsumer} {
		m := newReplay(t)
		m.do(create("a", ""))
		before := dump(m.State)
		entry := Entry{Key: Key{kind, "a"}, Value: []byte("{broken"), Created: 9, Modified: 9}
		if kind == KindClass || kind == KindTrait {
			entry.ID = "CUSTOM_X"
		}
		if err := m.apply(9, []Entry{entry}); err == nil {
			t.Errorf("a %s that cannot be read is applied: %s, before %s", kind, dump(m.State), before)
		}
	}
}

func TestEntriesOfWhatIsNotThereAreLeft(t *testing.T) {
	m := newReplay(t)
	m.do(create("a", ""))
	before := dump(m.State)
	if err := m.apply(9, []Entry{
		{Key: Key{KindGeneration, "b"}, Value: []byte("7"), Created: 9, Modified: 9},
		{Key: Key{KindGeneration, "a"}, Deleted: true, Modified: 9},
		{Key: Key{KindProvider, "b"}, Deleted: true, Modified: 9},
		{Key: Key{KindConsumer, "x"}, Deleted: true, Modified: 9},
		{Key: Key{KindTrait, "CUSTOM_X"}, Deleted: true, Modified: 9},
	}); err != nil || dump(m.State) != before {
		t.Errorf("%v: %s, before %s", err, dump(m.State), before)
	}
}

func TestAllocationsAreSorted(t *testing.T) {
	s := newState(time.Unix(0, 0))
	c := ConsumerData{}
	for _, p := range []string{"b", "a"} {
		for class := range ID(10) {
			c.Allocations = append(c.Allocations, Allocation{p, class, 1})
		}
	}
	var got ConsumerData
	if err := decodeConsumer(&got, encodeConsumer(&c, s), s.classes); err != nil {
		t.Fatal(err)
	}
	want := append(slices.Clone(c.Allocations[10:]), c.Allocations[:10]...)
	if !slices.Equal(got.Allocations, want) {
		t.Errorf("got %v, want %v", got.Allocations, want)
	}
}

func TestCapacityIsWhatCanBeCounted(t *testing.T) {
	for want, i := range map[int64]Inventory{
		math.MaxInt64: {Total: math.MaxInt64, Ratio: 1},
		12:            {Total: 10, Reserved: 2, Ratio: 1.5},
		4:             {Total: 9, Ratio: 0.5},
		0:             {Total: 1, Reserved: 1, Ratio: 16},
	} {
		if got := i.Capacity(); got != want {
			t.Errorf("%+v: %d, want %d", i, got, want)
		}
	}
}

func TestTheTopmostLayerCounts(t *testing.T) {
	under := &layered[int]{}
	under.put("a", 1)
	under.put("b", 2)
	top := &layered[int]{under: under}
	top.put("b", 3)
	got := map[string][]int{}
	for key, n := range top.all() {
		got[key] = append(got[key], n)
	}
	if len(got) != 2 || !slices.Equal(got["a"], []int{1}) || !slices.Equal(got["b"], []int{3}) {
		t.Errorf("got %v", got)
	}
}

func TestSymbolsOfOneName(t *testing.T) {
	n := newSymbols([]string{"STANDARD"}, time.Unix(0, 0))
	n.put("CUSTOM_X", 1, 5, 5)
	n.put("CUSTOM_X", 1, 5, 6) // rewritten
	first := n.Get("CUSTOM_X")
	if first.modified != 6 || len(slices.Collect(n.All())) != 2 {
		t.Errorf("rewritten: %+v", first)
	}
	n.put("CUSTOM_X", 2, 7, 7) // deleted and created again
	if x := n.Get("CUSTOM_X"); x == first || x.at != 7 || len(slices.Collect(n.All())) != 2 {
		t.Errorf("created anew: %+v of %d", x, len(slices.Collect(n.All())))
	}
	n.remove("CUSTOM_X")
	n.remove("STANDARD")
	if n.Get("CUSTOM_X") != nil || n.Get("STANDARD") == nil || n.custom() != 0 {
		t.Errorf("removed: %+v, %+v", n.Get("CUSTOM_X"), n.Get("STANDARD"))
	}
}

func TestSizeOfABatchCountsEachComparisonOnce(t *testing.T) {
	s := newState(time.Unix(0, 0))
	reads := func(names ...string) *Tx {
		x := newTx(s, nil, 1)
		for _, name := range names {
			x.basis.unchanged(KindName, name, 0)
		}
		return x
	}
	if got := reads("a", "b", "c").sizeWith(reads("c", "d", "e")); got != 5 {
		t.Errorf("a, b, c and c, d, e are %d", got)
	}
	one, two := reads("a"), reads()
	for _, x := range []*Tx{one, two} {
		for _, name := range []string{"CUSTOM_A", "CUSTOM_B"} {
			if err := x.CreateClass(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := one.sizeWith(two); got != 4 {
		t.Errorf("two writes and two are %d", got)
	}
}

func TestNamesKeepTheTimeOfTheirCreation(t *testing.T) {
	m := newReplay(t)
	ensure := func(t *Tx) error { _, _, err := t.EnsureTrait("CUSTOM_X"); return err }
	m.do(createClass("CUSTOM_X"), ensure, ensure)
	for _, symbols := range []*Symbols{m.classes, m.traits} {
		if x := symbols.Get("CUSTOM_X"); x == nil || x.Created != 1000 {
			t.Errorf("%+v, want one of 1000", x)
		}
	}
}
