package ledger

import (
	"iter"
	"slices"
	"time"
)

// ID identifies a resource class or a trait in the memory of one ledger.
type ID = int32

// Symbol is a resource class or a trait.
type Symbol struct {
	Name     string
	Standard bool
	Created  int64 // seconds since 1970
	Users    int   // number of providers

	id       ID
	at       int64 // revision of its creation; 0 if standard
	modified int64 // revision of its entry
}

// ID returns the symbol's number, which is never reused.
func (x *Symbol) ID() ID { return x.id }

// Symbols holds the resource classes or the traits: the standard ones in list order, then the custom ones by order of
// creation.
type Symbols struct {
	byName map[string]*Symbol
	byID   []*Symbol // nil: deleted
}

func newSymbols(standard []string, now time.Time) *Symbols {
	n := &Symbols{byName: make(map[string]*Symbol, len(standard))}
	for _, name := range standard {
		n.add(&Symbol{Name: name, Standard: true, Created: now.Unix()})
	}
	return n
}

func (n *Symbols) add(x *Symbol) *Symbol {
	x.id = ID(len(n.byID))
	n.byID = append(n.byID, x)
	n.byName[x.Name] = x
	return x
}

// Get returns the symbol with a name; nil: it does not exist.
func (n *Symbols) Get(name string) *Symbol { return n.byName[name] }

// All yields the existing symbols, by ID.
func (n *Symbols) All() iter.Seq[*Symbol] {
	return func(yield func(*Symbol) bool) {
		for _, x := range n.byID {
			if x != nil && !yield(x) {
				return
			}
		}
	}
}

// put adds or updates a custom symbol that the watch reported.
func (n *Symbols) put(name string, created, at, modified int64) {
	if x := n.byName[name]; x != nil && x.at == at {
		x.modified = modified
		return
	}
	n.remove(name)
	n.add(&Symbol{Name: name, Created: created, at: at, modified: modified})
}

func (n *Symbols) remove(name string) {
	if x := n.byName[name]; x != nil && !x.Standard {
		n.byID[x.id] = nil
		delete(n.byName, name)
	}
}

// intern returns the ID of a name in an entry. A missing name means that entries arrived out of order; it is added, so
// that nothing is lost.
func (n *Symbols) intern(name string) ID {
	if x := n.byName[name]; x != nil {
		return x.id
	}
	return n.add(&Symbol{Name: name}).id
}

func (n *Symbols) name(i ID) string {
	if x := n.byID[i]; x != nil {
		return x.Name
	}
	return ""
}

// custom returns the number of custom symbols.
func (n *Symbols) custom() int {
	created := 0
	for x := range n.All() {
		created += count(!x.Standard)
	}
	return created
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// use adds delta to the number of users of each ID.
func (n *Symbols) use(ids []ID, delta int) {
	for _, i := range ids {
		if x := n.byID[i]; x != nil {
			x.Users += delta
		}
	}
}

// insertID adds an ID to a sorted set.
func insertID(ids []ID, i ID) []ID {
	at, found := slices.BinarySearch(ids, i)
	if found {
		return ids
	}
	return slices.Insert(ids, at, i)
}

func hasID(ids []ID, i ID) bool {
	_, found := slices.BinarySearch(ids, i)
	return found
}
