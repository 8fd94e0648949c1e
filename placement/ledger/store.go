package ledger

import (
	"context"
	"errors"
)

// Store keeps the state that all ledgers share. It does not interpret the entries.
type Store interface {
	// Load returns every entry, all read at the same revision. Unavailable.
	Load(ctx context.Context) (Snapshot, error)
	// Watch calls changed with the changes of each revision after the given one, in order. It returns only with an
	// error: the context's, or an error after which the caller must Load again.
	Watch(ctx context.Context, after int64, changed func(revision int64, entries []Entry)) error
	// Commit applies all of Then if all of If holds, else nothing. ErrTooLarge: the transaction is refused for its
	// size. After any other error it is unknown whether it was applied.
	Commit(ctx context.Context, t Txn) (Outcome, error)
	// Limit is the maximum number of comparisons, and of writes, in one transaction.
	Limit() int
}

// ErrTooLarge reports that a transaction has more entries or bytes than the store allows.
var ErrTooLarge = errors.New("the store allows no transaction of that size")

// Kind is the kind of an entry.
type Kind string

// The kinds of entries. Classes, traits and names are identified by name, the others by UUID.
const (
	KindClass      Kind = "class"      // a custom resource class
	KindTrait      Kind = "trait"      // a custom trait
	KindProvider   Kind = "provider"   // a resource provider without its generation
	KindGeneration Kind = "generation" // a provider's generation; written by every claim on the provider
	KindName       Kind = "name"       // the UUID of the provider with that name
	KindConsumer   Kind = "consumer"   // a consumer and its allocations
)

// Key names an entry.
type Key struct {
	Kind Kind
	ID   string
}

// Entry is a stored value, or a deletion.
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

// Compare requires that an entry is unchanged since it was read: not written since Revision or, if Created is set, not
// deleted since its creation at Revision. With Revision 0 the entry must not exist.
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
	If     []Compare
	Then   []Write
	Riders []Rider
}

// Rider is an addition of a caller of ChangeWith to the transaction of its change: comparisons and writes of records
// that the ledger does not interpret. The store interprets it.
type Rider interface {
	// Size returns an upper bound of its comparisons, and of its writes.
	Size() int
	// Alone lists names that only one rider of a transaction may have, such as the instance name that it takes. Another
	// rider with the same name waits for the next transaction.
	Alone() []string
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
	// Refused has the riders because of which the transaction was not done, and the answers to their requests; a nil
	// answer: an earlier attempt has written the rider. The other riders may be tried again.
	Refused map[Rider]error
	// Revision is the transaction's own revision if it wrote something, else the revision of the last write: a state of
	// that revision is up to date.
	Revision int64
	// Before is the revision of the last write before this transaction.
	Before int64
}
