package ledger

import (
	"slices"
	"testing"
	"time"
)

// replay applies transactions to a state as the store and the watch would.
type replay struct {
	*State
	t        *testing.T
	revision int64
	created  map[Key]int64
	modified map[Key]int64
	changes  [][]Entry // by revision, from 2 on
}

func newReplay(t *testing.T) *replay {
	return &replay{State: newState(time.Unix(1000, 0)), t: t, revision: 1, created: map[Key]int64{},
		modified: map[Key]int64{}}
}

// holds reports whether the comparisons of a transaction hold.
func (m *replay) holds(txn Txn) bool {
	return !slices.ContainsFunc(txn.If, func(c Compare) bool {
		at := m.modified
		if c.Created {
			at = m.created
		}
		return at[c.Key] != c.Revision
	})
}

// commit applies a transaction if its comparisons hold.
func (m *replay) commit(txn Txn) bool {
	m.t.Helper()
	if !m.holds(txn) {
		return false
	}
	m.revision++
	var entries []Entry
	for _, w := range txn.Then {
		if w.Delete {
			delete(m.created, w.Key)
			delete(m.modified, w.Key)
		} else {
			if m.created[w.Key] == 0 {
				m.created[w.Key] = m.revision
			}
			m.modified[w.Key] = m.revision
		}
		entries = append(entries, Entry{Key: w.Key, Value: w.Value, Deleted: w.Delete, Created: m.created[w.Key],
			Modified: m.revision})
	}
	m.changes = append(m.changes, slices.Clone(entries))
	if err := m.apply(m.revision, entries); err != nil {
		m.t.Fatal(err)
	}
	return true
}

// decide runs requests as one batch and returns its transaction and their errors.
func (m *replay) decide(requests ...func(*Tx) error) (Txn, []error) {
	batch := newTx(m.State, nil, 1000)
	var errs []error
	for _, r := range requests {
		one := newTx(m.State, batch, 1000)
		err := r(one)
		if err == nil {
			batch.merge(one)
		} else {
			batch.keep(one)
		}
		errs = append(errs, err)
	}
	txn := batch.txn()
	if most := batch.writes(); len(txn.Then) > most {
		m.t.Errorf("%d writes are at most %d: %v", len(txn.Then), most, txn.Then)
	}
	return txn, errs
}

// do commits requests one after the other; all must succeed.
func (m *replay) do(requests ...func(*Tx) error) {
	m.t.Helper()
	for i, r := range requests {
		txn, errs := m.decide(r)
		if errs[0] != nil || !m.commit(txn) {
			m.t.Fatalf("request %d: %v", i, errs[0])
		}
	}
}

func create(id, parent string) func(*Tx) error {
	return func(t *Tx) error { _, _, err := t.CreateProvider(id, "name of "+id, parent); return err }
}

func remove(id string) func(*Tx) error { return func(t *Tx) error { return t.DeleteProvider(id) } }

func createClass(name string) func(*Tx) error {
	return func(t *Tx) error { return t.CreateClass(name) }
}

func offers(id, class string, total int64) func(*Tx) error {
	return func(t *Tx) error {
		v := t.providers.get(id)
		list, err := t.resolve([]InventorySpec{{class, Inventory{Total: total, MinUnit: 1, MaxUnit: 100, StepSize: 1,
			Ratio: 1}}})
		if err != nil {
			return err
		}
		t.providers.setInventories(v, list)
		return nil
	}
}

func takes(consumer, provider, class string, n int64) func(*Tx) error {
	rules := ClaimRules{Generations: true, Types: true, Refuse: func(reason string) error {
		return invalid("%s",
			reason)
	}}
	return func(t *Tx) error {
		return t.Claim(rules, ClaimRequest{Consumer: consumer, Project: "p", User: "u", Type: "T",
			Demands: []Demand{{provider, NamedAmount{class, n}}}})
	}
}

func releases(consumer string) func(*Tx) error {
	return func(t *Tx) error { return t.Release(consumer) }
}

func reparents(id, parent string) func(*Tx) error {
	return func(t *Tx) error {
		v := t.providers.whole(id)
		v.write = true
		return t.providers.reparent(v, parent, true)
	}
}

// Two transactions are decided on the same state. The second must fail if applying both would be wrong.
func TestOfTwoConcurrentWritesThatClashOneLoses(t *testing.T) {
	for name, test := range map[string]struct {
		before        []func(*Tx) error
		first, second func(*Tx) error
		both          bool
	}{
		"claims of the same provider": {
			[]func(*Tx) error{create("a", ""), offers("a", "VCPU", 1)}, takes("x", "a", "VCPU", 1),
			takes("y", "a", "VCPU",
				1), false},
		"claims of two providers": {
			[]func(*Tx) error{create("a", ""), offers("a", "VCPU", 1), create("b", ""), offers("b", "VCPU", 1)},
			takes("x", "a", "VCPU", 1), takes("y", "b", "VCPU", 1), true},
		"a claim and the inventory it stands on": {
			[]func(*Tx) error{create("a", ""), offers("a", "VCPU", 1)}, offers("a", "VCPU", 0), takes("x", "a", "VCPU",
				1), false},
		"a claim and the end of its provider": {
			[]func(*Tx) error{create("a", ""), offers("a", "VCPU", 1)}, remove("a"), takes("x", "a", "VCPU", 1), false},
		"a new name and an inventory": {
			[]func(*Tx) error{create("a", "")}, update("a", ProviderChange{Name: "n"}), offers("a", "VCPU", 1), false},
		"a new parent and a trait": {
			[]func(*Tx) error{create("a", ""), create("b", "")}, reparents("a", "b"), trait("a", 0, "HW_CPU_X86_AVX"),
			false},
		"the end of a provider and a claim of it": {
			[]func(*Tx) error{create("a", ""), offers("a", "VCPU", 1)}, takes("x", "a", "VCPU", 1), remove("a"), false},
		"providers of one name": {nil,
			func(t *Tx) error { _, _, err := t.CreateProvider("a", "n", ""); return err },
			func(t *Tx) error { _, _, err := t.CreateProvider("b", "n", ""); return err }, false},
		"a child and the end of its parent": {
			[]func(*Tx) error{create("a", "")}, create("b", "a"), remove("a"), false},
		"the end of a parent and a child of it": {
			[]func(*Tx) error{create("a", "")}, remove("a"), create("b", "a"), false},
		"two moves that would close a loop": {
			[]func(*Tx) error{create("a", ""), create("b", "")}, reparents("a", "b"), reparents("b", "a"), false},
		"two moves that would close a loop further down": {
			[]func(*Tx) error{create("a", ""), create("a1", "a"), create("b", ""), create("b1", "b")}, reparents("a",
				"b1"), reparents("b", "a1"), false},
		"the first use of a class and its end": {
			[]func(*Tx) error{create("a", ""), createClass("CUSTOM_X")},
			offers("a", "CUSTOM_X", 1),
			func(t *Tx) error { t.classes.remove(t.classes.get("CUSTOM_X")); return nil }, false},
		"two first uses of a class": {
			[]func(*Tx) error{create("a", ""), create("b", ""), createClass("CUSTOM_X")},
			offers("a", "CUSTOM_X", 1), offers("b", "CUSTOM_X", 1), true},
		"the first use of a trait and its end": {
			[]func(*Tx) error{create("a", ""), func(t *Tx) error {
				_, _, err := t.EnsureTrait("CUSTOM_X")
				return err
			}},
			func(t *Tx) error {
				_, err := t.SetTraits("a", 0, []string{"CUSTOM_X"})
				return err
			},
			func(t *Tx) error { t.traits.remove(t.traits.get("CUSTOM_X")); return nil }, false},
		"claims for one consumer": {
			[]func(*Tx) error{create("a", ""), offers("a", "VCPU", 9), create("b", ""), offers("b", "VCPU", 9)},
			takes("x", "a", "VCPU", 1), takes("x", "b", "VCPU", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newReplay(t)
			m.do(test.before...)
			first, errs1 := m.decide(test.first)
			second, errs2 := m.decide(test.second)
			if errs1[0] != nil || errs2[0] != nil {
				t.Fatalf("each alone: %v, %v", errs1[0], errs2[0])
			}
			if !m.commit(first) {
				t.Fatal("the first is refused")
			}
			if got := m.commit(second); got != test.both {
				t.Errorf("the second succeeds: %v, want %v", got, test.both)
			}
		})
	}
}

func TestRequestsOfOneBatchSeeEachOther(t *testing.T) {
	m := newReplay(t)
	m.do(create("a", ""), offers("a", "VCPU", 2))
	txn, errs := m.decide(takes("x", "a", "VCPU", 1), takes("y", "a", "VCPU", 2), takes("z", "a", "VCPU", 1),
		create("b", "a"), create("b", "a"), remove("a"), remove("b"))
	for i, ok := range []bool{true, false, true, true, false, false, true} {
		if (errs[i] == nil) != ok {
			t.Errorf("request %d: %v", i, errs[i])
		}
	}
	if !m.commit(txn) {
		t.Fatal("refused")
	}
	a := m.providers["a"]
	if used := a.Used(m.classes.Get("VCPU").id); used != 2 || a.Generation != 3 || len(a.children) != 0 ||
		len(m.consumers) != 2 {
		t.Errorf("used %d, generation %d, children %d, consumers %d", used, a.Generation, len(a.children),
			len(m.consumers))
	}
}

// Objects that a request deleted or freed are available to the next request of the same transaction.
func TestWhatABatchTakesAwayIsFree(t *testing.T) {
	deleteClass := func(t *Tx) error { return t.DeleteClass("CUSTOM_X") }
	for name, test := range map[string]struct {
		before, batch []func(*Tx) error
		want          string
	}{
		"a child, so that its parent can be deleted": {
			[]func(*Tx) error{create("a", ""), create("b", "a")}, []func(*Tx) error{remove("b"), remove("a")}, "",
		},
		"a class with its provider": {
			[]func(*Tx) error{createClass("CUSTOM_X"), create("a", ""), has("a", spec("CUSTOM_X", 4))},
			[]func(*Tx) error{remove("a"), deleteClass}, "",
		},
		"a class with its inventory": {
			[]func(*Tx) error{createClass("CUSTOM_X"), create("a", ""), has("a", spec("CUSTOM_X", 4))},
			[]func(*Tx) error{func(t *Tx) error { return t.DeleteInventories("a") }, deleteClass}, "a(name of a)@2",
		},
		"a provider, which has no class to rename": {
			[]func(*Tx) error{createClass("CUSTOM_X"), create("a", ""), has("a", spec("CUSTOM_X", 4))},
			[]func(*Tx) error{remove("a"), func(t *Tx) error { return t.RenameClass("CUSTOM_X", "CUSTOM_Y") }},
			"CUSTOM_Y*0",
		},
		"a name that is given up": {
			[]func(*Tx) error{create("a", "")},
			[]func(*Tx) error{update("a", ProviderChange{Name: "n"}),
				func(t *Tx) error { _, _, err := t.CreateProvider("b", "name of a", ""); return err }},
			"a(n)@0, b(name of a)@0",
		},
		"a provider that is made in it": {
			nil, []func(*Tx) error{create("a", ""), remove("a")}, "",
		},
		"a claim": {
			[]func(*Tx) error{create("a", ""), has("a", spec("VCPU", 4)), claim(-1, demand("a", "VCPU", 4))},
			[]func(*Tx) error{releases("x"), remove("a")}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newReplay(t)
			m.do(test.before...)
			txn, errs := m.decide(test.batch...)
			for i, err := range errs {
				if err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			}
			if !m.commit(txn) || m.summary() != test.want {
				t.Errorf("%q, want %q", m.summary(), test.want)
			}
		})
	}
}

// A request that fails because of its reads makes the transaction compare them too, so no answer is based on stale
// memory.
func TestFailuresAreComparedToo(t *testing.T) {
	m := newReplay(t)
	m.do(create("a", ""), offers("a", "VCPU", 1), takes("x", "a", "VCPU", 1))
	txn, errs := m.decide(takes("y", "a", "VCPU", 1))
	if errs[0] == nil || len(txn.Then) != 0 {
		t.Fatalf("granted: %v", txn.Then)
	}
	m.do(releases("x"))
	if m.commit(txn) {
		t.Error("a refusal that was no longer true is confirmed")
	}
}

func TestReparentingMovesTheRootOfAllBelow(t *testing.T) {
	m := newReplay(t)
	m.do(create("a", ""), create("b", "a"), create("c", "b"), create("r", ""), reparents("b", "r"))
	if c := m.providers["c"]; c.root.UUID != "r" || len(m.roots) != 2 || len(m.providers["a"].children) != 0 {
		t.Errorf("root of c is %s, %d roots", c.root.UUID, len(m.roots))
	}
	m.do(reparents("b", ""))
	if c := m.providers["c"]; c.root.UUID != "b" || len(m.roots) != 3 {
		t.Errorf("root of c is %s, %d roots", c.root.UUID, len(m.roots))
	}
}

func TestTwoProvidersChangePlacesInOneTransaction(t *testing.T) {
	m := newReplay(t)
	m.do(create("a", ""), create("b", "a"), create("c", "b"))
	txn, errs := m.decide(reparents("b", ""), reparents("a", "b"))
	if errs[0] != nil || errs[1] != nil || !m.commit(txn) {
		t.Fatalf("%v", errs)
	}
	a, b, c := m.providers["a"], m.providers["b"], m.providers["c"]
	if a.up != b || b.up != nil || a.root != b || b.root != b || c.root != b || len(a.children) != 0 ||
		!slices.Equal(m.roots, []*Provider{b}) || len(b.children) != 2 {
		t.Errorf("a below %v, b below %v, roots %v", a.up, b.up, m.roots)
	}
}

// Loading a snapshot gives the same state as following every change.
func TestSnapshotEqualsHistory(t *testing.T) {
	m := newReplay(t)
	m.do(create("p2", ""), create("p1", "p2"), createClass("CUSTOM_X"),
		offers("p1", "CUSTOM_X", 5), takes("w", "p1", "CUSTOM_X", 2),
		reparents("p1", ""), releases("w"), takes("x", "p1", "CUSTOM_X", 3))
	fresh := newState(time.Unix(1000, 0))
	var entries []Entry
	for key, at := range m.modified {
		entries = append(entries, Entry{Key: key, Value: m.value(key), Created: m.created[key], Modified: at})
	}
	if err := fresh.apply(m.revision, entries); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*State{m.State, fresh} {
		p := s.providers["p1"]
		x := s.classes.Get("CUSTOM_X")
		if p.Used(x.id) != 3 || p.Generation != 3 || p.up != nil || len(s.roots) != 2 || s.roots[0].UUID != "p2" ||
			x.Users != 1 || len(p.consumers) != 1 {
			t.Errorf("%+v, %d roots, class %+v", p.ProviderData, len(s.roots), x)
		}
	}
}

// value encodes an entry again, in its stored form.
func (m *replay) value(k Key) []byte {
	switch k.Kind {
	case KindProvider:
		return encodeProvider(&m.providers[k.ID].ProviderData, m.State)
	case KindGeneration:
		return encodeGeneration(m.providers[k.ID].Generation)
	case KindConsumer:
		return encodeConsumer(&m.consumers[k.ID].ConsumerData, m.State)
	case KindClass, KindTrait:
		return encode(nameRecord{1000})
	}
	return []byte(k.ID)
}

func TestARefusedClaimNamesWhatIsLacking(t *testing.T) {
	m := newReplay(t)
	m.do(create("a", ""), create("b", ""), create("c", ""), has("c", spec("DISK_GB", 8)))
	_, errs := m.decide(claim(-1, demand("a", "DISK_GB", 2), demand("a", "VCPU", 2), demand("b", "DISK_GB", 2),
		demand("c", "DISK_GB", 2)))
	const want = "Unable to allocate inventory: Inventory for 'VCPU, DISK_GB' on resource provider 'a, b' invalid."
	if errs[0] == nil || errs[0].Error() != want {
		t.Errorf("got %v, want %s", errs[0], want)
	}
}
