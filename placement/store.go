package placement

import (
	"context"
	"errors"
)

// Store keeps the state for all servers. It knows nothing of its meaning.
type Store interface {
	// Load returns every entry and the revision they were read at. Unavailable.
	Load(ctx context.Context) (Snapshot, error)
	// Watch calls changed with what each revision after the given one changed, one
	// revision at a time and in order. It returns only with an error: that of ctx,
	// or one after which the caller has to Load again.
	Watch(ctx context.Context, after int64, changed func(revision int64, entries []Entry)) error
	// Commit does all of Then if all of If holds, else nothing. ErrTooLarge: it is
	// refused for its size. Other errors: nobody knows whether it was done.
	Commit(ctx context.Context, t Txn) (Outcome, error)
	// Limit is how many comparisons, and how many writes, one transaction may have.
	Limit() int
}

// ErrTooLarge says that a transaction has more entries or bytes than the store allows.
var ErrTooLarge = errors.New("the store allows no transaction of that size")

// Kind says what an entry is.
type Kind string

// The kinds of entries. Their IDs are names for classes, traits and Name, UUIDs
// for the others.
const (
	KindClass      Kind = "class"      // a custom resource class
	KindTrait      Kind = "trait"      // a custom trait
	KindProvider   Kind = "provider"   // what a resource provider is and offers
	KindGeneration Kind = "generation" // its generation; every claim on it writes this one
	KindName       Kind = "name"       // the UUID of the provider of that name
	KindConsumer   Kind = "consumer"   // a consumer and its allocations
)

// Key names an entry.
type Key struct {
	Kind Kind
	ID   string
}

// Entry is a stored value, or the news that it is gone.
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

// Compare asks that an entry is as it was read: not changed since the revision, or,
// where Created is set, not deleted since it was created at the revision. Revision
// 0 asks that there is no such entry.
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

// Outcome tells what came of a transaction.
type Outcome struct {
	Done bool
	// Revision is that of the transaction where it wrote something, else that of the
	// last transaction that did: a memory of that revision has seen all there is.
	Revision int64
	// Before is the revision of the last transaction that wrote before this one.
	Before int64
}
