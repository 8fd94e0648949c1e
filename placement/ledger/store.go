package ledger

import (
	"context"
	"errors"
)

// Store keeps the state for all ledgers. It does not know what it means.
type Store interface {
	// Load returns every entry and the revision they were read at. Unavailable.
	Load(ctx context.Context) (Snapshot, error)
	// Watch calls changed with the changes of each revision after the given one, in order. It returns only with an
	// error: that of ctx, or one after which the caller has to Load again.
	Watch(ctx context.Context, after int64, changed func(revision int64, entries []Entry)) error
	// Commit does all of Then if all of If holds, else nothing. ErrTooLarge: it is refused for its size. Other errors:
	// nobody knows whether it was done.
	Commit(ctx context.Context, t Txn) (Outcome, error)
	// Limit is the number of comparisons, and of writes, that one transaction may have.
	Limit() int
}

// ErrTooLarge says that a transaction has more entries or bytes than the store allows.
var ErrTooLarge = errors.New("the store allows no transaction of that size")

// Kind says what an entry is.
type Kind string

// The kinds of entries. The IDs of classes, traits and names are names, those of the others UUIDs.
const (
	KindClass      Kind = "class"      // a custom resource class
	KindTrait      Kind = "trait"      // a custom trait
	KindProvider   Kind = "provider"   // a resource provider without its generation
	KindGeneration Kind = "generation" // a provider's generation; every claim on the provider writes it
	KindName       Kind = "name"       // the UUID of the provider that has the name
	KindConsumer   Kind = "consumer"   // a consumer and its allocations
)

// Key names an entry.
type Key struct {
	Kind Kind
	ID   string
}

// Entry is a stored value, or the report that it was deleted.
type Entry struct {
	Key
	Value    []byte
	Created  int64 // revision
	Modified int64 // revision
	Deleted  bool
}

// Snapshot is all entries at one revision.
type Snapshot struct {
	Entries  []Entry
	Revision int64
}

// Compare asks that an entry is as it was read: not changed since Revision, or, if Created is set, not deleted since it
// was created at Revision. A Revision of 0 asks that the entry does not exist.
type Compare struct {
	Key
	Created  bool
	Revision int64
}

// Write stores or deletes an entry.
type Write struct {
	Key
	Value  []byte
	Delete bool
}

// Txn is a transaction.
type Txn struct {
	If   []Compare
	Then []Write
}

func (t *Txn) put(kind Kind, id string, value []byte) {
	t.Then = append(t.Then, Write{Key: Key{kind, id}, Value: value})
}

func (t *Txn) delete(kind Kind, id string) {
	t.Then = append(t.Then, Write{Key: Key{kind, id}, Delete: true})
}

// Outcome is the outcome of a transaction.
type Outcome struct {
	Done bool
	// Revision is the transaction's if it wrote something, else that of the last one that did: a state of that revision
	// is up to date.
	Revision int64
	// Before is the revision of the last transaction that wrote before this one.
	Before int64
}
