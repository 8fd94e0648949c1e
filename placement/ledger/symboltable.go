package ledger

// maxCustom bounds the custom resource classes, and the custom traits, that exist at once: any client that may create
// providers can create them, and each takes an entry of the store.
const maxCustom = 20_000

// symbolTable holds the resource classes, or the traits, as a transaction sees them.
type symbolTable struct {
	kind  Kind
	base  *Symbols
	views layered[*symbolView]
	basis *readSet

	usedBy func(*ProviderData, ID) bool // reports whether a provider has a symbol
}

// symbolView is the transaction's copy of a symbol.
type symbolView struct {
	Symbol
	exists bool
	write  bool // the entry is to be created, rewritten to prevent deletion, or deleted
}

// hold prevents the deletion of a custom symbol while the caller starts to use it: it rewrites the entry unchanged, and
// a deletion requires that the entry was not written.
func (v *symbolView) hold() {
	if !v.Standard {
		v.write = true
	}
}

// get returns a symbol to read and change; nil: it does not exist.
func (t *symbolTable) get(name string) *symbolView {
	v := t.views.own[name]
	if v == nil {
		v = &symbolView{Symbol: Symbol{Name: name, id: -1}}
		if below, found := t.views.get(name); found {
			*v = *below
		} else if x := t.base.Get(name); x != nil {
			v.Symbol, v.exists = *x, true
		}
		t.views.put(name, v)
	}
	if !v.Standard {
		t.basis.notDeleted(t.kind, name, v.at)
	}
	if !v.exists {
		return nil
	}
	return v
}

// ensure returns a symbol, and creates it if necessary. It refuses a new symbol beyond maxCustom.
func (t *symbolTable) ensure(name string) (v *symbolView, created bool, err error) {
	if v := t.get(name); v != nil {
		return v, false, nil
	}
	custom := t.base.custom()
	for _, v := range t.views.all() {
		custom += count(v.exists && v.at == 0 && !v.Standard)
	}
	if custom >= maxCustom {
		what := map[Kind]string{KindClass: "resource classes", KindTrait: "traits"}[t.kind]
		e := invalid("There are %d custom %s already, which is the limit: delete unused ones.", custom,
			what)
		e.Cause = ErrFull
		return nil, false, e
	}
	return t.create(name), true, nil
}

// create creates a symbol that get did not find.
func (t *symbolTable) create(name string) *symbolView {
	v := t.views.own[name]
	v.exists, v.write, v.Created = true, true, t.basis.now
	v.id = -2 - ID(t.basis.number()) // temporary, until it is stored
	return v
}

// remove deletes a symbol that has no users.
func (t *symbolTable) remove(v *symbolView) {
	t.basis.unchanged(t.kind, v.Name, v.modified)
	v.exists, v.write = false, true
}

// name returns the name of an ID, including symbols created by the transaction.
func (t *symbolTable) name(i ID) string {
	if i >= 0 {
		return t.base.name(i)
	}
	for name, v := range t.views.all() {
		if v.id == i {
			return name
		}
	}
	return ""
}

// writes is the number of entries to write.
func (t *symbolTable) writes() int {
	n := 0
	for _, v := range t.views.own {
		n += count(v.write)
	}
	return n
}

// addTo adds the writes to a transaction of the store.
func (t *symbolTable) addTo(out *Txn) {
	for name, v := range t.views.own {
		switch {
		case !v.write:
		case v.exists:
			out.put(t.kind, name, encode(nameRecord{v.Created}))
		case v.at != 0:
			out.delete(t.kind, name)
		}
	}
}
