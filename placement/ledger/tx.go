package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Tx is what one request, or a batch of them, reads and wants to write, over the state or over the Tx of the batch so
// far. Its tables hand out copies, so a change is local until the Tx is committed. It remembers what it read, as
// comparisons for the store's transaction. Requests that fail do so too: an answer, good or bad, was true at the moment
// of the commit.
type Tx struct {
	basis     basis
	providers providerTable
	consumers consumerTable
	classes   symbolTable
	traits    symbolTable
}

// newTx makes a Tx over a state, or over the Tx of the batch so far; nil: the batch begins.
func newTx(s *State, under *Tx, now int64) *Tx {
	t := &Tx{basis: basis{compares: map[Compare]struct{}{}, now: now}}
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

// merge adds what the Tx above it read and wrote.
func (t *Tx) merge(above *Tx) {
	t.providers.views.merge(&above.providers.views)
	t.providers.owners.merge(&above.providers.owners)
	t.consumers.views.merge(&above.consumers.views)
	t.classes.views.merge(&above.classes.views)
	t.traits.views.merge(&above.traits.views)
	t.keep(above)
	t.basis.created = above.basis.created
}

// keep adds only what the Tx above it read.
func (t *Tx) keep(above *Tx) { maps.Copy(t.basis.compares, above.basis.compares) }

// sizeWith bounds the number of comparisons, or of writes, of t and one together.
func (t *Tx) sizeWith(one *Tx) int {
	compares := len(t.basis.compares)
	for c := range one.basis.compares {
		if _, have := t.basis.compares[c]; !have {
			compares++
		}
	}
	return max(compares, t.writes()+one.writes())
}

// writes bounds the number of entries that t writes.
func (t *Tx) writes() int {
	return t.providers.writes() + t.consumers.writes() + t.classes.writes() + t.traits.writes()
}

// ClassName implements Vocabulary. It knows classes that were created in t too.
func (t *Tx) ClassName(i ID) string { return t.classes.name(i) }

// TraitName implements Vocabulary. It knows traits that were created in t too.
func (t *Tx) TraitName(i ID) string { return t.traits.name(i) }

// inUse tells whether a provider has a class or a trait.
func (t *Tx) inUse(all *symbolTable, v *symbolView) bool {
	inState := 0
	if x := all.base.Get(v.Name); x != nil {
		inState = x.Users
	}
	return t.providers.count(inState, func(p *ProviderData) bool { return all.usedBy(p, v.id) }) > 0
}

// allocate replaces a consumer's allocations, and updates the usage of all providers concerned.
func (t *Tx) allocate(c *consumerView, allocations []Allocation) {
	for _, a := range c.Allocations {
		t.providers.use(a.Provider, a.Class, -a.N)
	}
	for _, a := range allocations {
		t.providers.use(a.Provider, a.Class, a.N)
	}
	c.Allocations, c.write = allocations, true
}

// txn returns the store's transaction for a Tx directly over the state.
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
