package placement

import (
	"fmt"
	"testing"
	"time"
)

// memory applies transactions to a state as the store and the watch would.
type memory struct {
	*state
	t        *testing.T
	revision int64
	created  map[Key]int64
	modified map[Key]int64
}

func newMemory(t *testing.T) *memory {
	return &memory{state: newState(time.Unix(1000, 0)), t: t, revision: 1, created: map[Key]int64{}, modified: map[Key]int64{}}
}

// commit does a transaction if its comparisons hold.
func (m *memory) commit(txn Txn) bool {
	m.t.Helper()
	for _, c := range txn.If {
		if at := m.modified; c.Created && m.created[c.Key] != c.Revision || !c.Created && at[c.Key] != c.Revision {
			return false
		}
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
		entries = append(entries, Entry{Key: w.Key, Value: w.Value, Deleted: w.Delete, Created: m.created[w.Key], Modified: m.revision})
	}
	if err := m.apply(m.revision, entries); err != nil {
		m.t.Fatal(err)
	}
	return true
}

// decide runs requests as one batch and returns its transaction and their errors.
func (m *memory) decide(requests ...func(*tx) error) (Txn, []error) {
	batch := newTx(m.state, nil, 1000)
	var errs []error
	for _, r := range requests {
		one := newTx(m.state, batch, 1000)
		err := r(one)
		if err == nil {
			batch.merge(one)
		} else {
			batch.keep(one)
		}
		errs = append(errs, err)
	}
	return batch.txn(), errs
}

// do commits requests one after the other, all of which have to succeed.
func (m *memory) do(requests ...func(*tx) error) {
	m.t.Helper()
	for i, r := range requests {
		txn, errs := m.decide(r)
		if errs[0] != nil || !m.commit(txn) {
			m.t.Fatalf("request %d: %v", i, errs[0])
		}
	}
}

func create(id, parent string) func(*tx) error {
	return func(t *tx) error { _, err := t.insertProvider(id, "name of "+id, parent); return err }
}

func remove(id string) func(*tx) error {
	return func(t *tx) error {
		v := t.whole(id)
		if v == nil || len(t.children(id)) > 0 || len(v.usage) > 0 {
			return fmt.Errorf("%s cannot be removed", id)
		}
		t.owners[v.name] = ""
		v.exists, v.write = false, true
		return nil
	}
}

func offers(id, class string, total int64) func(*tx) error {
	return func(t *tx) error {
		v := t.provider(id)
		list, err := t.number([]offer{{class, inventory{total: total, minUnit: 1, maxUnit: 100, stepSize: 1, ratio: 1}}})
		if err != nil {
			return err
		}
		t.offer(v, list)
		return nil
	}
}

func takes(consumer, provider, class string, n int64) func(*tx) error {
	return func(t *tx) error {
		return t.claim(39, func(reason string) error { return badRequest("%s", reason) },
			claim{consumer: consumer, project: "p", user: "u", kind: "T", shares: []share{{provider, want{class, n}}}})
	}
}

func reparents(id, parent string) func(*tx) error {
	return func(t *tx) error { v := t.whole(id); v.write = true; return t.reparent(v, parent, true) }
}

// Two transactions that are decided on the same state: the second must lose wherever
// both together would be wrong.
func TestOfTwoConcurrentWritesThatClashOneLoses(t *testing.T) {
	for name, test := range map[string]struct {
		before        []func(*tx) error
		first, second func(*tx) error
		both          bool
	}{
		"claims of the same provider": {
			[]func(*tx) error{create("a", ""), offers("a", "VCPU", 1)}, takes("x", "a", "VCPU", 1), takes("y", "a", "VCPU", 1), false},
		"claims of two providers": {
			[]func(*tx) error{create("a", ""), offers("a", "VCPU", 1), create("b", ""), offers("b", "VCPU", 1)},
			takes("x", "a", "VCPU", 1), takes("y", "b", "VCPU", 1), true},
		"a claim and the inventory it stands on": {
			[]func(*tx) error{create("a", ""), offers("a", "VCPU", 1)}, offers("a", "VCPU", 0), takes("x", "a", "VCPU", 1), false},
		"a claim and the end of its provider": {
			[]func(*tx) error{create("a", ""), offers("a", "VCPU", 1)}, remove("a"), takes("x", "a", "VCPU", 1), false},
		"the end of a provider and a claim of it": {
			[]func(*tx) error{create("a", ""), offers("a", "VCPU", 1)}, takes("x", "a", "VCPU", 1), remove("a"), false},
		"providers of one name": {nil,
			func(t *tx) error { _, err := t.insertProvider("a", "n", ""); return err },
			func(t *tx) error { _, err := t.insertProvider("b", "n", ""); return err }, false},
		"a child and the end of its parent": {
			[]func(*tx) error{create("a", "")}, create("b", "a"), remove("a"), false},
		"the end of a parent and a child of it": {
			[]func(*tx) error{create("a", "")}, remove("a"), create("b", "a"), false},
		"two moves that would close a loop": {
			[]func(*tx) error{create("a", ""), create("b", "")}, reparents("a", "b"), reparents("b", "a"), false},
		"two moves that would close a loop further down": {
			[]func(*tx) error{create("a", ""), create("a1", "a"), create("b", ""), create("b1", "b")}, reparents("a", "b1"), reparents("b", "a1"), false},
		"the first use of a class and its end": {
			[]func(*tx) error{create("a", ""), func(t *tx) error { t.class("CUSTOM_X"); t.createClass("CUSTOM_X"); return nil }},
			offers("a", "CUSTOM_X", 1), func(t *tx) error { t.removeClass(t.class("CUSTOM_X")); return nil }, false},
		"two first uses of a class": {
			[]func(*tx) error{create("a", ""), create("b", ""), func(t *tx) error { t.class("CUSTOM_X"); t.createClass("CUSTOM_X"); return nil }},
			offers("a", "CUSTOM_X", 1), offers("b", "CUSTOM_X", 1), true},
		"the first use of a trait and its end": {
			[]func(*tx) error{create("a", ""), func(t *tx) error { t.trait("CUSTOM_X"); t.createTrait("CUSTOM_X"); return nil }},
			func(t *tx) error {
				ids, err := t.traitIDs([]any{"CUSTOM_X"})
				t.setTraits(t.provider("a"), ids)
				return err
			},
			func(t *tx) error { t.removeTrait(t.trait("CUSTOM_X")); return nil }, false},
		"claims for one consumer": {
			[]func(*tx) error{create("a", ""), offers("a", "VCPU", 9), create("b", ""), offers("b", "VCPU", 9)},
			takes("x", "a", "VCPU", 1), takes("x", "b", "VCPU", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(t)
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
	m := newMemory(t)
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
	if used := a.used(m.classes.byName["VCPU"].id); used != 2 || a.generation != 3 || len(a.children) != 0 || len(m.consumers) != 2 {
		t.Errorf("used %d, generation %d, children %d, consumers %d", used, a.generation, len(a.children), len(m.consumers))
	}
}

// A request that fails because of what it read makes the transaction ask that it
// was so: an answer out of a stale memory is not given.
func TestFailuresAreComparedToo(t *testing.T) {
	m := newMemory(t)
	m.do(create("a", ""), offers("a", "VCPU", 1), takes("x", "a", "VCPU", 1))
	txn, errs := m.decide(takes("y", "a", "VCPU", 1))
	if errs[0] == nil || len(txn.Then) != 0 {
		t.Fatalf("granted: %v", txn.Then)
	}
	m.do(func(t *tx) error { c := t.consumer("x"); t.allocate(c, nil); c.exists = false; return nil })
	if m.commit(txn) {
		t.Error("a refusal that was no longer true is confirmed")
	}
}

func TestReparentingMovesTheRootOfAllBelow(t *testing.T) {
	m := newMemory(t)
	m.do(create("a", ""), create("b", "a"), create("c", "b"), create("r", ""), reparents("b", "r"))
	if c := m.providers["c"]; c.root.uuid != "r" || len(m.roots) != 2 || len(m.providers["a"].children) != 0 {
		t.Errorf("root of c is %s, %d roots", c.root.uuid, len(m.roots))
	}
	m.do(reparents("b", ""))
	if c := m.providers["c"]; c.root.uuid != "b" || len(m.roots) != 3 {
		t.Errorf("root of c is %s, %d roots", c.root.uuid, len(m.roots))
	}
}

// Loading a snapshot gives the same state as following every change.
func TestSnapshotEqualsHistory(t *testing.T) {
	m := newMemory(t)
	m.do(create("p2", ""), create("p1", "p2"), func(t *tx) error { t.class("CUSTOM_X"); t.createClass("CUSTOM_X"); return nil },
		offers("p1", "CUSTOM_X", 5), takes("w", "p1", "CUSTOM_X", 2),
		reparents("p1", ""), func(t *tx) error { c := t.consumer("w"); t.allocate(c, nil); c.exists = false; return nil }, takes("x", "p1", "CUSTOM_X", 3))
	fresh := newState(time.Unix(1000, 0))
	var entries []Entry
	for key, at := range m.modified {
		entries = append(entries, Entry{Key: key, Value: m.value(key), Created: m.created[key], Modified: at})
	}
	if err := fresh.apply(m.revision, entries); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*state{m.state, fresh} {
		p := s.providers["p1"]
		x := s.classes.byName["CUSTOM_X"]
		if p.used(x.id) != 3 || p.generation != 3 || p.up != nil || len(s.roots) != 2 || s.roots[0].uuid != "p2" || x.users != 1 || len(p.consumers) != 1 {
			t.Errorf("%+v, %d roots, class %+v", p.providerData, len(s.roots), x)
		}
	}
}

// value writes an entry anew, as it is stored.
func (m *memory) value(k Key) []byte {
	switch k.Kind {
	case KindProvider:
		return encodeProvider(&m.providers[k.ID].providerData, m.state)
	case KindGeneration:
		return encodeGeneration(m.providers[k.ID].generation)
	case KindConsumer:
		return encodeConsumer(&m.consumers[k.ID].consumerData, m.state)
	case KindClass, KindTrait:
		return encode(nameRecord{1000})
	}
	return []byte(k.ID)
}
