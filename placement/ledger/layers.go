package ledger

import "iter"

// layered is a map on top of another map, which it overrides.
type layered[V any] struct {
	own   map[string]V
	under *layered[V]
}

// get returns the value of a key in the topmost layer that has it.
func (l *layered[V]) get(key string) (v V, found bool) {
	for ; l != nil; l = l.under {
		if v, found = l.own[key]; found {
			return v, true
		}
	}
	return v, false
}

func (l *layered[V]) put(key string, v V) {
	if l.own == nil {
		l.own = map[string]V{}
	}
	l.own[key] = v
}

// all yields each key once, with its value in the topmost layer.
func (l *layered[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		seen := map[string]bool{}
		for layer := l; layer != nil; layer = layer.under {
			for key, v := range layer.own {
				if !seen[key] && !yield(key, v) {
					return
				}
				seen[key] = true
			}
		}
	}
}

// merge adds the entries of the layer above to this layer.
func (l *layered[V]) merge(above *layered[V]) {
	for key, v := range above.own {
		l.put(key, v)
	}
}

// readSet holds the reads of a transaction, as comparisons for the store, the transaction's time, and the number of
// objects it created.
type readSet struct {
	compares map[Compare]struct{}
	now      int64 // seconds since 1970
	created  int   // providers, classes and traits created
	early    bool  // it needs the revision of a transaction that is not stored yet
}

// unchanged requires that an entry has not been written since a revision; 0: that it does not exist.
func (b *readSet) unchanged(kind Kind, id string, revision int64) {
	b.compares[Compare{Key: Key{kind, id}, Revision: revision}] = struct{}{}
}

// notDeleted requires that an entry created at a revision still exists; 0: that it does not exist.
func (b *readSet) notDeleted(kind Kind, id string, revision int64) {
	b.compares[Compare{Key: Key{kind, id}, Created: true, Revision: revision}] = struct{}{}
}

// number returns the position of a new object among the objects created by the transaction.
func (b *readSet) number() int {
	b.created++
	return b.created - 1
}
