package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// tx is what one request, or a batch of them, reads and wants to write, over the
// state or over the tx of the batch so far. It hands out copies: to change one is
// to change nothing else until the tx is committed. It remembers what it read, as
// comparisons for the store's transaction, and so do requests that fail: an answer,
// good or bad, was true at the moment of the commit.
type tx struct {
	base      *state
	under     *tx // nil: base
	now       int64
	index     int // of the next provider that is created
	providers map[string]*providerView
	consumers map[string]*consumerView
	owners    map[string]string // provider name -> UUID; empty: nobody's
	classes   map[string]*nameView
	traits    map[string]*nameView
	compares  map[Compare]struct{}
}

type providerView struct {
	providerData
	exists  bool
	write   bool   // the provider's entry
	advance bool   // the generation's entry
	stored  string // name in the store; empty: none
}

type consumerView struct {
	consumerData
	exists bool
	write  bool
}

type nameView struct {
	named
	exists bool
	write  bool // create it, keep it from being deleted, or delete it
}

func newTx(base *state, under *tx, now int64) *tx {
	index := 0
	if under != nil {
		index = under.index
	}
	return &tx{base: base, under: under, now: now, index: index,
		providers: map[string]*providerView{}, consumers: map[string]*consumerView{}, owners: map[string]string{},
		classes: map[string]*nameView{}, traits: map[string]*nameView{}, compares: map[Compare]struct{}{}}
}

// merge takes over what the tx above it did.
func (t *tx) merge(above *tx) {
	maps.Copy(t.providers, above.providers)
	maps.Copy(t.consumers, above.consumers)
	maps.Copy(t.owners, above.owners)
	maps.Copy(t.classes, above.classes)
	maps.Copy(t.traits, above.traits)
	t.keep(above)
	t.index = above.index
}

// sizeWith bounds how many comparisons, or writes, t has with what one read and did.
func (t *tx) sizeWith(one *tx) int {
	compares := len(t.compares)
	for c := range one.compares {
		if _, have := t.compares[c]; !have {
			compares++
		}
	}
	return max(compares, t.writes()+one.writes())
}

// writes bounds how many entries t writes.
func (t *tx) writes() int {
	n := len(t.owners)
	for _, v := range t.classes {
		n += count(v.write)
	}
	for _, v := range t.traits {
		n += count(v.write)
	}
	for _, v := range t.providers {
		n += count(v.write) + count(v.advance || !v.exists && v.write)
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

// keep takes over only what the tx above it read.
func (t *tx) keep(above *tx) { maps.Copy(t.compares, above.compares) }

func (t *tx) unchanged(kind Kind, id string, revision int64) {
	t.compares[Compare{Key: Key{kind, id}, Revision: revision}] = struct{}{}
}

// look finds the view of a provider in the layers below, without remembering it.
func (t *tx) look(uuid string) (providerView, bool) {
	for l := t; l != nil; l = l.under {
		if v := l.providers[uuid]; v != nil {
			return *v, true
		}
	}
	if p := t.base.providers[uuid]; p != nil {
		return providerView{providerData: p.providerData, exists: true, stored: p.name}, true
	}
	return providerView{}, false
}

// view returns the provider to read and change, whether it exists or not.
func (t *tx) view(uuid string) *providerView {
	if v := t.providers[uuid]; v != nil {
		return v
	}
	v, _ := t.look(uuid)
	v.uuid = uuid
	t.providers[uuid] = &v
	return &v
}

// provider returns a provider whose inventory, usage and generation the caller
// relies on; nil where there is none.
func (t *tx) provider(uuid string) *providerView {
	v := t.view(uuid)
	t.unchanged(KindGeneration, uuid, v.fence)
	if !v.exists {
		return nil
	}
	return v
}

// whole is provider for callers that rely on everything: name, place and aggregates too.
func (t *tx) whole(uuid string) *providerView {
	v := t.provider(uuid)
	t.unchanged(KindProvider, uuid, t.view(uuid).modified)
	return v
}

// children returns the UUIDs of a provider's children.
func (t *tx) children(uuid string) []string {
	kids := map[string]bool{}
	if p := t.base.providers[uuid]; p != nil {
		for _, c := range p.children {
			kids[c.uuid] = true
		}
	}
	for l := t; l != nil; l = l.under { // what a layer says, the layers below may not undo
		for id := range l.providers {
			v, _ := t.look(id)
			kids[id] = v.exists && v.parent == uuid
		}
	}
	maps.DeleteFunc(kids, func(_ string, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(kids))
}

// owner returns the UUID of the provider of that name, "" where it is free.
func (t *tx) owner(name string) string {
	for l := t; l != nil; l = l.under {
		if uuid, ok := l.owners[name]; ok {
			t.compareOwner(name)
			return uuid
		}
	}
	t.compareOwner(name)
	if p := t.base.byName[name]; p != nil {
		return p.uuid
	}
	return ""
}

// compareOwner makes sure that whether a name is taken is as the state says.
func (t *tx) compareOwner(name string) {
	if p := t.base.byName[name]; p != nil {
		t.unchanged(KindProvider, p.uuid, p.modified)
	} else {
		t.unchanged(KindName, name, 0)
	}
}

// rename gives a provider its name; the caller has seen that it is free.
func (t *tx) rename(v *providerView, name string) {
	if v.name != "" && v.exists {
		t.owners[v.name] = ""
	}
	t.owners[name] = v.uuid
	v.name, v.write = name, true
}

// consumer returns a consumer to read and change; nil where there is none.
func (t *tx) consumer(uuid string) *consumerView {
	v := t.consumerView(uuid)
	if !v.exists {
		return nil
	}
	return v
}

func (t *tx) consumerView(uuid string) *consumerView {
	if v := t.consumers[uuid]; v != nil {
		return v
	}
	v := consumerView{consumerData: consumerData{uuid: uuid}}
	found := false
	for l := t.under; l != nil && !found; l = l.under {
		if u := l.consumers[uuid]; u != nil {
			v, found = *u, true
		}
	}
	if c := t.base.consumers[uuid]; c != nil && !found {
		v = consumerView{consumerData: c.consumerData, exists: true}
	}
	t.unchanged(KindConsumer, uuid, v.modified)
	t.consumers[uuid] = &v
	return &v
}

// allocate replaces a consumer's allocations. The usage of all providers concerned
// follows; their generations are written, so that no claim elsewhere overlooks it,
// and counted up only by those who call bump.
func (t *tx) allocate(c *consumerView, allocations []allocation) {
	for _, a := range c.allocations {
		v := t.view(a.provider)
		t.unchanged(KindGeneration, a.provider, v.fence)
		v.use(a.class, -a.n)
		v.advance = true
	}
	for _, a := range allocations {
		v := t.view(a.provider)
		t.unchanged(KindGeneration, a.provider, v.fence)
		v.use(a.class, a.n)
		v.advance = true
	}
	c.allocations, c.write = allocations, true
}

// bump counts up a provider's generation.
func (v *providerView) bump() { v.generation++; v.advance = true }

// class returns a resource class; nil where there is none.
func (t *tx) class(name string) *nameView {
	return t.nameView(KindClass, name, t.base.classes, func(l *tx) map[string]*nameView { return l.classes })
}

// trait returns a trait; nil where there is none.
func (t *tx) trait(name string) *nameView {
	return t.nameView(KindTrait, name, t.base.traits, func(l *tx) map[string]*nameView { return l.traits })
}

func (t *tx) nameView(kind Kind, name string, all *names, layer func(*tx) map[string]*nameView) *nameView {
	for l := t; l != nil; l = l.under {
		if v := layer(l)[name]; v != nil {
			copied := *v
			layer(t)[name] = &copied
			break
		}
	}
	v := layer(t)[name]
	if v == nil {
		v = &nameView{named: named{name: name, id: -1}}
		if x := all.byName[name]; x != nil {
			v = &nameView{named: *x, exists: true}
		}
		layer(t)[name] = v
	}
	if !v.standard {
		t.compares[Compare{Key: Key{kind, name}, Created: true, Revision: v.at}] = struct{}{}
	}
	if !v.exists {
		return nil
	}
	return v
}

// createClass and createTrait make a name that has been seen not to exist.
func (t *tx) createClass(name string) { t.create(t.classes[name]) }
func (t *tx) createTrait(name string) { t.create(t.traits[name]) }

func (t *tx) create(v *nameView) {
	v.exists, v.write, v.named.created = true, true, t.now
	// Until the store has it, it has an id of its own below all others.
	v.id = -2 - id(len(t.base.classes.byID)+len(t.base.traits.byID)+t.index)
	t.index++
}

// hold keeps a custom class or trait from being deleted while the caller begins to
// use it: it is written as it is, and its deletion asks that nobody wrote it.
func (v *nameView) hold() {
	if !v.standard {
		v.write = true
	}
}

// removeClass and removeTrait delete a name; the caller has seen that nobody uses it.
func (t *tx) removeClass(v *nameView) { t.remove(KindClass, v) }
func (t *tx) removeTrait(v *nameView) { t.remove(KindTrait, v) }

func (t *tx) remove(kind Kind, v *nameView) {
	t.unchanged(kind, v.name, v.modified)
	v.exists, v.write = false, true
}

// known returns the UUIDs of all providers of the state and of the layers, some of
// which may not exist.
func (t *tx) known() []string {
	all := maps.Collect(maps.All(t.base.providers))
	for l := t; l != nil; l = l.under {
		for uuid := range l.providers {
			all[uuid] = nil
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// holders returns the UUIDs of the consumers that may have allocations of a provider.
func (t *tx) holders(uuid string) map[string]bool {
	out := map[string]bool{}
	if p := t.base.providers[uuid]; p != nil {
		for c := range p.consumers {
			out[c.uuid] = true
		}
	}
	for l := t; l != nil; l = l.under {
		for id := range l.consumers {
			out[id] = true
		}
	}
	return out
}

// uses counts the providers for which has is true, given the state's own count.
func (t *tx) uses(count int, has func(*providerData) bool) int {
	seen := map[string]bool{}
	for l := t; l != nil; l = l.under {
		for uuid := range l.providers {
			if seen[uuid] {
				continue
			}
			seen[uuid] = true
			if p := t.base.providers[uuid]; p != nil && has(&p.providerData) {
				count--
			}
			if v, _ := t.look(uuid); v.exists && has(&v.providerData) {
				count++
			}
		}
	}
	return count
}

// className and traitName make tx a vocabulary: they know those created in it.
func (t *tx) className(i id) string {
	return t.nameOf(i, t.base.classes, func(l *tx) map[string]*nameView { return l.classes })
}
func (t *tx) traitName(i id) string {
	return t.nameOf(i, t.base.traits, func(l *tx) map[string]*nameView { return l.traits })
}

func (t *tx) nameOf(i id, all *names, layer func(*tx) map[string]*nameView) string {
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

// txn is the store's transaction for a tx that lies on the state.
func (t *tx) txn() Txn {
	var out Txn
	for c := range t.compares {
		out.If = append(out.If, c)
	}
	for kind, views := range map[Kind]map[string]*nameView{KindClass: t.classes, KindTrait: t.traits} {
		for name, v := range views {
			switch {
			case !v.write:
			case v.exists:
				out.put(kind, name, encode(nameRecord{v.named.created}))
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
			out.put(KindConsumer, uuid, encodeConsumer(&v.consumerData, t))
		case v.modified != 0:
			out.delete(KindConsumer, uuid)
		}
	}
	slices.SortFunc(out.Then, func(a, b Write) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.ID, b.ID))
	})
	return out
}

func (t *tx) writeProvider(out *Txn, uuid string, v *providerView) {
	switch {
	case !v.exists && v.modified != 0 && v.write:
		out.delete(KindProvider, uuid)
		out.delete(KindGeneration, uuid)
	case !v.exists:
	default:
		if v.write {
			out.put(KindProvider, uuid, encodeProvider(&v.providerData, t))
		}
		if v.advance {
			out.put(KindGeneration, uuid, encodeGeneration(v.generation))
		}
	}
}

func (o *Txn) put(kind Kind, id string, value []byte) {
	o.Then = append(o.Then, Write{Key: Key{kind, id}, Value: value})
}

func (o *Txn) delete(kind Kind, id string) {
	o.Then = append(o.Then, Write{Key: Key{kind, id}, Delete: true})
}
