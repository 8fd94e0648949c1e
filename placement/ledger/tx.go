package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Tx is what one request, or a batch of them, reads and wants to write, over the state or over the Tx of the batch so
// far. It hands out copies, so a change is local until the Tx is committed. It remembers what it read, as comparisons
// for the store's transaction. Requests that fail do so too: an answer, good or bad, was true at the moment of the
// commit.
type Tx struct {
	base      *State
	under     *Tx // nil: base
	now       int64
	index     int // of the next provider that is created
	providers map[string]*providerView
	consumers map[string]*consumerView
	owners    map[string]string // provider name -> UUID; empty: the name is free
	classes   map[string]*symbolView
	traits    map[string]*symbolView
	compares  map[Compare]struct{}
}

type providerView struct {
	ProviderData
	exists          bool
	write           bool // write the provider's entry
	writeGeneration bool // write the entry of its generation
}

type consumerView struct {
	ConsumerData
	exists bool
	write  bool
}

type symbolView struct {
	Symbol
	exists bool
	write  bool // create it, keep it from being deleted, or delete it
}

func newTx(base *State, under *Tx, now int64) *Tx {
	index := 0
	if under != nil {
		index = under.index
	}
	return &Tx{base: base, under: under, now: now, index: index,
		providers: map[string]*providerView{}, consumers: map[string]*consumerView{}, owners: map[string]string{},
		classes: map[string]*symbolView{}, traits: map[string]*symbolView{}, compares: map[Compare]struct{}{}}
}

// merge adds what the Tx above it read and wrote.
func (t *Tx) merge(above *Tx) {
	maps.Copy(t.providers, above.providers)
	maps.Copy(t.consumers, above.consumers)
	maps.Copy(t.owners, above.owners)
	maps.Copy(t.classes, above.classes)
	maps.Copy(t.traits, above.traits)
	t.keep(above)
	t.index = above.index
}

// sizeWith bounds the number of comparisons, or of writes, of t and one together.
func (t *Tx) sizeWith(one *Tx) int {
	compares := len(t.compares)
	for c := range one.compares {
		if _, have := t.compares[c]; !have {
			compares++
		}
	}
	return max(compares, t.writes()+one.writes())
}

// writes bounds the number of entries that t writes.
func (t *Tx) writes() int {
	n := len(t.owners)
	for _, v := range t.classes {
		n += count(v.write)
	}
	for _, v := range t.traits {
		n += count(v.write)
	}
	for _, v := range t.providers {
		n += count(v.write) + count(v.writeGeneration || !v.exists && v.write)
	}
	for _, v := range t.consumers {
		n += count(v.write)
	}
	return n
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// keep adds only what the Tx above it read.
func (t *Tx) keep(above *Tx) { maps.Copy(t.compares, above.compares) }

func (t *Tx) unchanged(kind Kind, id string, revision int64) {
	t.compares[Compare{Key: Key{kind, id}, Revision: revision}] = struct{}{}
}

// look finds a provider in t and the layers below it, without remembering it.
func (t *Tx) look(uuid string) (providerView, bool) {
	for l := t; l != nil; l = l.under {
		if v := l.providers[uuid]; v != nil {
			return *v, true
		}
	}
	if p := t.base.providers[uuid]; p != nil {
		return providerView{ProviderData: p.ProviderData, exists: true}, true
	}
	return providerView{}, false
}

// view returns a provider to read and change, whether it exists or not.
func (t *Tx) view(uuid string) *providerView {
	if v := t.providers[uuid]; v != nil {
		return v
	}
	v, _ := t.look(uuid)
	v.UUID = uuid
	t.providers[uuid] = &v
	return &v
}

// provider returns a provider, of which the caller relies on inventories, usage and generation; nil: it does not exist.
func (t *Tx) provider(uuid string) *providerView {
	v := t.view(uuid)
	t.unchanged(KindGeneration, uuid, v.generationRevision)
	if !v.exists {
		return nil
	}
	return v
}

// whole is provider for callers that rely on all of it: name, parent, traits and aggregates too.
func (t *Tx) whole(uuid string) *providerView {
	v := t.provider(uuid)
	t.unchanged(KindProvider, uuid, t.view(uuid).modified)
	return v
}

// children returns the UUIDs of a provider's children.
func (t *Tx) children(uuid string) []string {
	kids := map[string]bool{}
	if p := t.base.providers[uuid]; p != nil {
		for _, c := range p.children {
			kids[c.UUID] = true
		}
	}
	for l := t; l != nil; l = l.under { // a layer overrules those below it
		for id := range l.providers {
			v, _ := t.look(id)
			kids[id] = v.exists && v.Parent == uuid
		}
	}
	maps.DeleteFunc(kids, func(_ string, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(kids))
}

// owner returns the UUID of the provider of a name; "": the name is free.
func (t *Tx) owner(name string) string {
	for l := t; l != nil; l = l.under {
		if uuid, ok := l.owners[name]; ok {
			t.compareOwner(name)
			return uuid
		}
	}
	t.compareOwner(name)
	if p := t.base.byName[name]; p != nil {
		return p.UUID
	}
	return ""
}

// compareOwner has the transaction compare who owns a name.
func (t *Tx) compareOwner(name string) {
	if p := t.base.byName[name]; p != nil {
		t.unchanged(KindProvider, p.UUID, p.modified)
	} else {
		t.unchanged(KindName, name, 0)
	}
}

// rename gives a provider a name that is free.
func (t *Tx) rename(v *providerView, name string) {
	if v.Name != "" && v.exists {
		t.owners[v.Name] = ""
	}
	t.owners[name] = v.UUID
	v.Name, v.write = name, true
}

// consumer returns a consumer to read and change; nil: it does not exist.
func (t *Tx) consumer(uuid string) *consumerView {
	v := t.consumerView(uuid)
	if !v.exists {
		return nil
	}
	return v
}

func (t *Tx) consumerView(uuid string) *consumerView {
	if v := t.consumers[uuid]; v != nil {
		return v
	}
	v := consumerView{ConsumerData: ConsumerData{UUID: uuid}}
	found := false
	for l := t.under; l != nil && !found; l = l.under {
		if u := l.consumers[uuid]; u != nil {
			v, found = *u, true
		}
	}
	if c := t.base.consumers[uuid]; c != nil && !found {
		v = consumerView{ConsumerData: c.ConsumerData, exists: true}
	}
	t.unchanged(KindConsumer, uuid, v.modified)
	t.consumers[uuid] = &v
	return &v
}

// allocate replaces a consumer's allocations, and updates the usage of all providers concerned. Their generations are
// written, so that a claim elsewhere cannot overlook it. To count them up is left to the caller.
func (t *Tx) allocate(c *consumerView, allocations []Allocation) {
	for _, a := range c.Allocations {
		v := t.view(a.Provider)
		t.unchanged(KindGeneration, a.Provider, v.generationRevision)
		v.use(a.Class, -a.N)
		v.writeGeneration = true
	}
	for _, a := range allocations {
		v := t.view(a.Provider)
		t.unchanged(KindGeneration, a.Provider, v.generationRevision)
		v.use(a.Class, a.N)
		v.writeGeneration = true
	}
	c.Allocations, c.write = allocations, true
}

// bump counts up a provider's generation.
func (v *providerView) bump() { v.Generation++; v.writeGeneration = true }

// symbolLayer picks the classes or the traits of one layer.
type symbolLayer func(*Tx) map[string]*symbolView

func classLayer(t *Tx) map[string]*symbolView { return t.classes }
func traitLayer(t *Tx) map[string]*symbolView { return t.traits }

// class returns a resource class; nil: it does not exist.
func (t *Tx) class(name string) *symbolView {
	return t.symbol(KindClass, name, t.base.classes, classLayer)
}

// trait returns a trait; nil: it does not exist.
func (t *Tx) trait(name string) *symbolView {
	return t.symbol(KindTrait, name, t.base.traits, traitLayer)
}

func (t *Tx) symbol(kind Kind, name string, all *Symbols, layer symbolLayer) *symbolView {
	for l := t; l != nil; l = l.under {
		if v := layer(l)[name]; v != nil {
			copied := *v
			layer(t)[name] = &copied
			break
		}
	}
	v := layer(t)[name]
	if v == nil {
		v = &symbolView{Symbol: Symbol{Name: name, id: -1}}
		if x := all.Get(name); x != nil {
			v = &symbolView{Symbol: *x, exists: true}
		}
		layer(t)[name] = v
	}
	if !v.Standard {
		t.compares[Compare{Key: Key{kind, name}, Created: true, Revision: v.at}] = struct{}{}
	}
	if !v.exists {
		return nil
	}
	return v
}

// createClass and createTrait create a symbol that class or trait did not find.
func (t *Tx) createClass(name string) { t.create(t.classes[name]) }
func (t *Tx) createTrait(name string) { t.create(t.traits[name]) }

func (t *Tx) create(v *symbolView) {
	v.exists, v.write, v.Created = true, true, t.now
	// Until it is stored it has an ID below all others.
	v.id = -2 - ID(len(t.base.classes.byID)+len(t.base.traits.byID)+t.index)
	t.index++
}

// hold keeps a custom class or trait from being deleted while the caller begins to use it: it writes the entry as it
// is, and a deletion compares that the entry was not written.
func (v *symbolView) hold() {
	if !v.Standard {
		v.write = true
	}
}

// removeClass and removeTrait delete a symbol without users.
func (t *Tx) removeClass(v *symbolView) { t.remove(KindClass, v) }
func (t *Tx) removeTrait(v *symbolView) { t.remove(KindTrait, v) }

func (t *Tx) remove(kind Kind, v *symbolView) {
	t.unchanged(kind, v.Name, v.modified)
	v.exists, v.write = false, true
}

// known returns the UUIDs of all providers of the state and of the layers. Some may not exist.
func (t *Tx) known() []string {
	all := maps.Collect(maps.All(t.base.providers))
	for l := t; l != nil; l = l.under {
		for uuid := range l.providers {
			all[uuid] = nil
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// holders returns the UUIDs of the consumers that may have allocations of a provider.
func (t *Tx) holders(uuid string) map[string]bool {
	out := map[string]bool{}
	if p := t.base.providers[uuid]; p != nil {
		for c := range p.consumers {
			out[c.UUID] = true
		}
	}
	for l := t; l != nil; l = l.under {
		for id := range l.consumers {
			out[id] = true
		}
	}
	return out
}

// uses counts the providers for which has is true. count is their number in the state.
func (t *Tx) uses(count int, has func(*ProviderData) bool) int {
	seen := map[string]bool{}
	for l := t; l != nil; l = l.under {
		for uuid := range l.providers {
			if seen[uuid] {
				continue
			}
			seen[uuid] = true
			if p := t.base.providers[uuid]; p != nil && has(&p.ProviderData) {
				count--
			}
			if v, _ := t.look(uuid); v.exists && has(&v.ProviderData) {
				count++
			}
		}
	}
	return count
}

// ClassName implements Vocabulary. It knows classes that were created in t too.
func (t *Tx) ClassName(i ID) string { return t.nameOf(i, t.base.classes, classLayer) }

// TraitName implements Vocabulary. It knows traits that were created in t too.
func (t *Tx) TraitName(i ID) string { return t.nameOf(i, t.base.traits, traitLayer) }

func (t *Tx) nameOf(i ID, all *Symbols, layer symbolLayer) string {
	if i >= 0 {
		return all.name(i)
	}
	for l := t; l != nil; l = l.under {
		for name, v := range layer(l) {
			if v.id == i {
				return name
			}
		}
	}
	return ""
}

// txn returns the store's transaction for a Tx directly over the state.
func (t *Tx) txn() Txn {
	var out Txn
	for c := range t.compares {
		out.If = append(out.If, c)
	}
	for kind, views := range map[Kind]map[string]*symbolView{KindClass: t.classes, KindTrait: t.traits} {
		for name, v := range views {
			switch {
			case !v.write:
			case v.exists:
				out.put(kind, name, encode(nameRecord{v.Created}))
			case v.at != 0:
				out.delete(kind, name)
			}
		}
	}
	for uuid, v := range t.providers {
		t.writeProvider(&out, uuid, v)
	}
	for name, uuid := range t.owners {
		if uuid != "" {
			out.put(KindName, name, []byte(uuid))
		} else if t.base.byName[name] != nil {
			out.delete(KindName, name)
		}
	}
	for uuid, v := range t.consumers {
		switch {
		case !v.write:
		case v.exists:
			out.put(KindConsumer, uuid, encodeConsumer(&v.ConsumerData, t))
		case v.modified != 0:
			out.delete(KindConsumer, uuid)
		}
	}
	slices.SortFunc(out.Then, func(a, b Write) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.ID, b.ID))
	})
	return out
}

func (t *Tx) writeProvider(out *Txn, uuid string, v *providerView) {
	switch {
	case !v.exists && v.modified != 0 && v.write:
		out.delete(KindProvider, uuid)
		out.delete(KindGeneration, uuid)
	case !v.exists:
	default:
		if v.write {
			out.put(KindProvider, uuid, encodeProvider(&v.ProviderData, t))
		}
		if v.writeGeneration {
			out.put(KindGeneration, uuid, encodeGeneration(v.Generation))
		}
	}
}

func (o *Txn) put(kind Kind, id string, value []byte) {
	o.Then = append(o.Then, Write{Key: Key{kind, id}, Value: value})
}

func (o *Txn) delete(kind Kind, id string) {
	o.Then = append(o.Then, Write{Key: Key{kind, id}, Delete: true})
}
