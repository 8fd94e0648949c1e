package ledger

import (
	"maps"
	"slices"
)

// providerTable holds the providers and their names as a transaction sees them.
type providerTable struct {
	base   *State
	views  layered[*providerView]
	owners layered[string] // provider name -> UUID; empty: the name is free
	basis  *readSet
}

// providerView is the transaction's copy of a provider.
type providerView struct {
	ProviderData
	exists          bool
	write           bool // write the provider's entry
	writeGeneration bool // write the entry of its generation
}

// bump increments a provider's generation.
func (v *providerView) bump() { v.Generation++; v.writeGeneration = true }

// look returns a provider without recording the read.
func (t *providerTable) look(uuid string) providerView {
	if v, found := t.views.get(uuid); found {
		return *v
	}
	if p := t.base.providers[uuid]; p != nil {
		return providerView{ProviderData: p.ProviderData, exists: true}
	}
	return providerView{ProviderData: ProviderData{UUID: uuid}}
}

// view returns a provider to read and change, even if it does not exist.
func (t *providerTable) view(uuid string) *providerView {
	if v := t.views.own[uuid]; v != nil {
		return v
	}
	v := t.look(uuid)
	t.views.put(uuid, &v)
	return &v
}

// get returns a provider whose inventories, usage and generation the caller relies on; nil: it does not exist.
func (t *providerTable) get(uuid string) *providerView {
	v := t.view(uuid)
	t.basis.unchanged(KindGeneration, uuid, v.generationRevision)
	if !v.exists {
		return nil
	}
	return v
}

// whole is like get, for callers that also rely on name, parent, traits and aggregates, or that write the entry.
func (t *providerTable) whole(uuid string) *providerView {
	v := t.get(uuid)
	t.basis.unchanged(KindProvider, uuid, t.view(uuid).modified)
	return v
}

// root returns the UUID of the root of an existing provider.
func (t *providerTable) root(uuid string) string {
	for {
		v := t.look(uuid)
		if v.Parent == "" {
			return uuid
		}
		uuid = v.Parent
	}
}

// hasChildren reports whether a provider has children.
func (t *providerTable) hasChildren(uuid string) bool {
	for _, v := range t.views.all() {
		if v.exists && v.Parent == uuid {
			return true
		}
	}
	p := t.base.providers[uuid]
	return p != nil && slices.ContainsFunc(p.children, func(child *Provider) bool {
		_, viewed := t.views.get(child.UUID)
		return !viewed
	})
}

// all returns the UUIDs of all providers; it may include providers that do not exist.
func (t *providerTable) all() []string {
	all := maps.Collect(maps.All(t.base.providers))
	for uuid := range t.views.all() {
		all[uuid] = nil
	}
	return slices.Sorted(maps.Keys(all))
}

// count returns the number of providers for which has is true. inState is their number in the state.
func (t *providerTable) count(inState int, has func(*ProviderData) bool) int {
	n := inState
	for uuid, v := range t.views.all() {
		if p := t.base.providers[uuid]; p != nil {
			n -= count(has(&p.ProviderData))
		}
		n += count(v.exists && has(&v.ProviderData))
	}
	return n
}

// owner returns the UUID of the provider with a name; "": the name is free.
func (t *providerTable) owner(name string) string {
	stored := t.base.byName[name]
	if stored != nil {
		t.basis.unchanged(KindProvider, stored.UUID, stored.modified)
	} else {
		t.basis.unchanged(KindName, name, 0)
	}
	if uuid, found := t.owners.get(name); found || stored == nil {
		return uuid
	}
	return stored.UUID
}

// rename gives a provider a free name.
func (t *providerTable) rename(v *providerView, name string) {
	if v.Name != "" && v.exists {
		t.owners.put(v.Name, "")
	}
	t.owners.put(name, v.UUID)
	v.Name, v.write = name, true
}

// remove deletes a provider.
func (t *providerTable) remove(v *providerView) {
	t.owners.put(v.Name, "")
	v.exists, v.write = false, true
}

// setInventories replaces a provider's inventories.
func (t *providerTable) setInventories(v *providerView, list []Inventory) {
	sortInventories(list)
	v.Inventories = list
	t.rewrite(v)
}

// rewrite writes a provider at its next generation. The entry also has its name and parent, which change without the
// generation.
func (t *providerTable) rewrite(v *providerView) {
	t.basis.unchanged(KindProvider, v.UUID, v.modified)
	v.Updated, v.write = t.basis.now, true
	v.bump()
}

// setTraits replaces a provider's traits. Setting the same traits changes nothing.
func (t *providerTable) setTraits(v *providerView, ids []ID) {
	if slices.Equal(ids, v.Traits) {
		return
	}
	v.Traits = ids
	t.rewrite(v)
}

// use adds n, which may be negative, to the amount allocated from a provider. It writes the generation, so that a
// concurrent claim conflicts; the caller increments it.
func (t *providerTable) use(uuid string, class ID, n int64) {
	v := t.view(uuid)
	t.basis.unchanged(KindGeneration, uuid, v.generationRevision)
	v.use(class, n)
	v.writeGeneration = true
}

// writes returns an upper bound of the entries to write.
func (t *providerTable) writes() int {
	n := len(t.owners.own)
	for _, v := range t.views.own {
		n += count(v.write) + count(v.writeGeneration || !v.exists && v.write)
	}
	return n
}

// addTo adds the writes to a transaction of the store.
func (t *providerTable) addTo(out *Txn, names Vocabulary) {
	for uuid, v := range t.views.own {
		switch {
		case !v.exists && v.modified != 0 && v.write:
			out.delete(KindProvider, uuid)
			out.delete(KindGeneration, uuid)
		case !v.exists:
		default:
			if v.write {
				out.put(KindProvider, uuid, encodeProvider(&v.ProviderData, names))
			}
			if v.writeGeneration {
				out.put(KindGeneration, uuid, encodeGeneration(v.Generation))
			}
		}
	}
	for name, uuid := range t.owners.own {
		if uuid != "" {
			out.put(KindName, name, []byte(uuid))
		} else if t.base.byName[name] != nil {
			out.delete(KindName, name)
		}
	}
}
