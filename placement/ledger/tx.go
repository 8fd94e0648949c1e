package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Tx holds the reads and pending writes of one request, or of a batch of requests, on top of the state or of the
// batch's Tx so far. Its tables return copies, so changes are local until the Tx is committed. It records its reads as
// comparisons for the store's transaction. A failed request records them too, so that an answer, success or failure,
// was true at the moment of the commit.
type Tx struct {
	basis     readSet
	providers providerTable
	consumers consumerTable
	classes   symbolTable
	traits    symbolTable
}

// newTx creates a Tx on top of under, the batch so far; nil: the Tx starts a batch, on top of the state.
func newTx(s *State, under *Tx, now int64) *Tx {
	t := &Tx{basis: readSet{compares: map[Compare]struct{}{}, now: now}}
	t.providers = providerTable{base: s, basis: &t.basis}
	t.consumers = consumerTable{base: s, basis: &t.basis}
	t.classes = symbolTable{kind: KindClass, base: s.classes, basis: &t.basis,
		usedBy: func(p *ProviderData, class ID) bool { return p.Inventory(class) != nil }}
	t.traits = symbolTable{kind: KindTrait, base: s.traits, basis: &t.basis,
		usedBy: func(p *ProviderData, trait ID) bool { return hasID(p.Traits, trait) }}
	if under != nil {
		t.basis.created = under.basis.created
		t.providers.views.under, t.providers.owners.under = &under.providers.views, &under.providers.owners
		t.consumers.views.under = &under.consumers.views
		t.classes.views.under, t.traits.views.under = &under.classes.views, &under.traits.views
	}
	return t
}

// promisedRevision is the revision of entries that a transaction in flight will have written.
const promisedRevision = -1

// claimsOnly reports whether t writes only claims: consumers and the generations of providers.
func (t *Tx) claimsOnly() bool {
	written := len(t.providers.owners.own) > 0
	for _, v := range t.providers.views.own {
		written = written || v.write
	}
	return !written && t.classes.writes()+t.traits.writes() == 0
}

// promised returns a layer with the claims that t writes, at promisedRevision: the next transaction is decided on top
// of it while t is written.
func (t *Tx) promised() *Tx {
	p := newTx(t.providers.base, nil, t.basis.now)
	for uuid, v := range t.providers.views.own {
		if v.writeGeneration {
			after := *v
			after.writeGeneration, after.generationRevision = false, promisedRevision
			p.providers.views.put(uuid, &after)
		}
	}
	for uuid, v := range t.consumers.views.own {
		if v.write {
			after := *v
			if after.write, after.modified = false, promisedRevision; !v.exists {
				after.modified = 0
			}
			p.consumers.views.put(uuid, &after)
		}
	}
	return p
}

// merge adds the reads and writes of the Tx on top of t.
func (t *Tx) merge(above *Tx) {
	t.providers.views.merge(&above.providers.views)
	t.providers.owners.merge(&above.providers.owners)
	t.consumers.views.merge(&above.consumers.views)
	t.classes.views.merge(&above.classes.views)
	t.traits.views.merge(&above.traits.views)
	t.keep(above)
	t.basis.created = above.basis.created
}

// keep adds only the reads of the Tx on top of t.
func (t *Tx) keep(above *Tx) { maps.Copy(t.basis.compares, above.basis.compares) }

// sizeWith returns an upper bound of the comparisons, or of the writes, of t and one together.
func (t *Tx) sizeWith(one *Tx) int {
	compares := len(t.basis.compares)
	for c := range one.basis.compares {
		if _, have := t.basis.compares[c]; !have {
			compares++
		}
	}
	return max(compares, t.writes()+one.writes())
}

// writes returns an upper bound of the entries that t writes.
func (t *Tx) writes() int {
	return t.providers.writes() + t.consumers.writes() + t.classes.writes() + t.traits.writes()
}

// ClassName implements Vocabulary, including classes created in t.
func (t *Tx) ClassName(i ID) string { return t.classes.name(i) }

// TraitName implements Vocabulary, including traits created in t.
func (t *Tx) TraitName(i ID) string { return t.traits.name(i) }

// inUse reports whether any provider has a class or a trait.
func (t *Tx) inUse(all *symbolTable, v *symbolView) bool {
	inState := 0
	if x := all.base.Get(v.Name); x != nil {
		inState = x.Users
	}
	return t.providers.count(inState, func(p *ProviderData) bool { return all.usedBy(p, v.id) }) > 0
}

// allocate replaces a consumer's allocations and updates the usage of all affected providers.
func (t *Tx) allocate(c *consumerView, allocations []Allocation) {
	for _, a := range c.Allocations {
		t.providers.use(a.Provider, a.Class, -a.N)
	}
	for _, a := range allocations {
		t.providers.use(a.Provider, a.Class, a.N)
	}
	c.Allocations, c.write = allocations, true
}

// txn returns the store's transaction for a Tx directly on top of the state.
func (t *Tx) txn() Txn {
	out := Txn{If: slices.Collect(maps.Keys(t.basis.compares))}
	t.classes.addTo(&out)
	t.traits.addTo(&out)
	t.providers.addTo(&out, t)
	t.consumers.addTo(&out, t)
	slices.SortFunc(out.Then, func(a, b Write) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.ID, b.ID))
	})
	return out
}
