package placement

import (
	"iter"
	"slices"
	"time"
)

// id numbers a resource class or a trait in the memory of one server.
type id = int32

// named is a resource class or a trait.
type named struct {
	id       id
	name     string
	standard bool
	created  int64 // seconds since 1970
	at       int64 // revision it was created at; 0 for standard ones
	modified int64 // revision
	users    int   // providers that have it
}

// names holds the resource classes or the traits: standard ones in the order of
// their list, then custom ones in the order of their creation. An id is given once.
type names struct {
	byName map[string]*named
	byID   []*named // nil: gone
}

func newNames(standard []string, now time.Time) *names {
	n := &names{byName: make(map[string]*named, len(standard))}
	for _, name := range standard {
		n.add(&named{name: name, standard: true, created: now.Unix()})
	}
	return n
}

func (n *names) add(x *named) *named {
	x.id = id(len(n.byID))
	n.byID = append(n.byID, x)
	n.byName[x.name] = x
	return x
}

// put stores what a watch tells of a custom name.
func (n *names) put(name string, created, at, modified int64) {
	if x := n.byName[name]; x != nil && x.at == at {
		x.modified = modified
		return
	}
	n.remove(name)
	n.add(&named{name: name, created: created, at: at, modified: modified})
}

func (n *names) remove(name string) {
	if x := n.byName[name]; x != nil && !x.standard {
		n.byID[x.id] = nil
		delete(n.byName, name)
	}
}

// intern returns the id of a name that an entry mentions. One that does not exist
// can only mean entries out of order; it is made so that nothing is lost.
func (n *names) intern(name string) id {
	if x := n.byName[name]; x != nil {
		return x.id
	}
	return n.add(&named{name: name}).id
}

func (n *names) name(i id) string {
	if x := n.byID[i]; x != nil {
		return x.name
	}
	return ""
}

// all yields those that exist, by id.
func (n *names) all() iter.Seq[*named] {
	return func(yield func(*named) bool) {
		for _, x := range n.byID {
			if x != nil && !yield(x) {
				return
			}
		}
	}
}

// custom counts those that users made.
func (n *names) custom() int {
	made := 0
	for x := range n.all() {
		made += count(!x.standard)
	}
	return made
}

func (n *names) use(ids []id, delta int) {
	for _, i := range ids {
		if x := n.byID[i]; x != nil {
			x.users += delta
		}
	}
}

// insertID adds an id to a sorted set of them.
func insertID(ids []id, i id) []id {
	at, found := slices.BinarySearch(ids, i)
	if found {
		return ids
	}
	return slices.Insert(ids, at, i)
}

func hasID(ids []id, i id) bool {
	_, found := slices.BinarySearch(ids, i)
	return found
}
