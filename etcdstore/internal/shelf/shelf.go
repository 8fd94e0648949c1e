// Package shelf stores the records of one noun in etcd, each under its own key. The generation of a record is the
// revision of its last change. Every write is one transaction that compares the record as it was read, and contains the
// charge of the project that pays for the record.
package shelf

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
	"croft/tenant"
)

// Shelf stores records of type T, each under the key Prefix + name. Its zero functions are the defaults.
type Shelf[T any] struct {
	Conn   *kv.Conn
	Prefix string
	Noun   string // for errors, such as "site"
	Plural string // Noun and an s by default

	// Stamp sets the fields of a record that are not in its stored value: its generation, and the revision at which it
	// was created.
	Stamp func(v *T, generation, created int64)
	// Decode reads a record; by default its value is the JSON of a T.
	Decode func(stored *mvccpb.KeyValue) (T, error)
	// Encode returns the value of a record; by default the JSON of the record without its generation.
	Encode func(T) string
	// Empty reports whether a record says the same as no record; such a record is removed.
	Empty func(T) bool

	Missing func(ctx context.Context, name string) error      // NotFound
	Differs func(name string, generation, wanted int64) error // Conflict: the record has another generation

	// Most is the maximum number of records; TooMany is the error about one more. 0: any number.
	Most    int64
	TooMany func(count int64) error

	// Charge returns the charge for a record, which Projects counts. nil: no project pays for records of this noun.
	Charge   func(T) tenants.Charge
	Projects *tenants.Projects

	// Guard returns the further parts of the transaction that replaces now by next, and may complete next. It is called
	// for each attempt.
	Guard func(ctx context.Context, now T, next *T) (Guard, error)
}

// Guard is a part of a transaction.
type Guard struct {
	If   []clientv3.Cmp
	Then []clientv3.Op
	Else []clientv3.Op // reads for Refused
	// Refused returns the error for the condition in If that is not met; nil: all may be met at the next attempt.
	Refused func(answers []*etcdserverpb.ResponseOp) error
}

func (s Shelf[T]) plural() string {
	if s.Plural != "" {
		return s.Plural
	}
	return s.Noun + "s"
}

// Read decodes a stored record.
func (s Shelf[T]) Read(stored *mvccpb.KeyValue) (v T, err error) {
	if s.Decode != nil {
		return s.Decode(stored)
	}
	err = s.Conn.Decode(stored.Key, stored.Value, &v)
	s.stamp(&v, stored.ModRevision, stored.CreateRevision)
	return v, err
}

func (s Shelf[T]) stamp(v *T, generation, created int64) {
	if s.Stamp != nil {
		s.Stamp(v, generation, created)
	}
}

// Text returns the stored value of a record.
func (s Shelf[T]) Text(v T) string {
	if s.Encode != nil {
		return s.Encode(v)
	}
	s.stamp(&v, 0, 0)
	return kv.Encode(v)
}

// NotFound returns the error about a record that does not exist.
func (s Shelf[T]) NotFound(ctx context.Context, name string) error {
	if s.Missing != nil {
		return s.Missing(ctx, name)
	}
	return croft.Errorf(croft.NotFound, "there is no %s %.80q", s.Noun, name)
}

// differs returns the error about a record that has another generation than the wanted one.
func (s Shelf[T]) differs(ctx context.Context, name string, now, wanted int64) error {
	switch {
	case s.Differs != nil:
		return s.Differs(name, now, wanted)
	case now == 0:
		return s.NotFound(ctx, name)
	case wanted == 0:
		return croft.Errorf(croft.Conflict, "there is a %s %s already", s.Noun, name)
	}
	return croft.Errorf(croft.Conflict, "%s %s has generation %d, not %d: another request changed it; read it again",
		s.Noun, name, now, wanted)
}

// Each calls each with every record at a revision, in the order of names; 0: the current revision.
func (s Shelf[T]) Each(ctx context.Context, revision int64, each func(T) error) error {
	return s.Conn.ReadRange(ctx, "read the "+s.plural(), s.Prefix, revision, func(stored *mvccpb.KeyValue) error {
		v, err := s.Read(stored)
		if err != nil {
			return err
		}
		return each(v)
	})
}

// List returns all records at a revision, by name; 0: the current revision.
func (s Shelf[T]) List(ctx context.Context, revision int64) ([]T, error) {
	all := []T{}
	err := s.Each(ctx, revision, func(v T) error {
		all = append(all, v)
		return nil
	})
	return all, err
}

// Find returns a record. NotFound.
func (s Shelf[T]) Find(ctx context.Context, name string) (v T, err error) {
	stored, err := s.Conn.Get(ctx, s.Prefix+name, "read %s %s", s.Noun, name)
	if err != nil {
		return v, err
	}
	if stored == nil {
		return v, s.NotFound(ctx, name)
	}
	return s.Read(stored)
}

// Named returns the named records that exist, as of one moment. Records may be large, so it reads few of them at once.
func (s Shelf[T]) Named(ctx context.Context, names ...string) ([]T, error) {
	all, revision := []T{}, int64(0)
	for some := range slices.Chunk(names, 8) {
		var ops []clientv3.Op
		for _, name := range some {
			ops = append(ops, clientv3.OpGet(s.Prefix+name, clientv3.WithRev(revision)))
		}
		read, answers, err := s.Conn.Commit(ctx, kv.Txn{Then: ops}, "read the %s", s.plural())
		if err != nil {
			return all, err
		}
		revision = cmp.Or(revision, read)
		for _, answer := range answers {
			if stored := kv.First(answer); stored != nil {
				v, err := s.Read(stored)
				if err != nil {
					return all, err
				}
				all = append(all, v)
			}
		}
	}
	return all, nil
}

// Indexed returns the records that the keys below an index name. It omits records that are removed between both reads.
func (s Shelf[T]) Indexed(ctx context.Context, index string, nameOf func(*mvccpb.KeyValue) string) ([]T, error) {
	var names []string
	err := s.Conn.ReadRange(ctx, "list the "+s.plural(), index, 0, func(stored *mvccpb.KeyValue) error {
		names = append(names, nameOf(stored))
		return nil
	})
	if err != nil {
		return []T{}, err
	}
	return s.Named(ctx, names...)
}

// Source returns the source of the charges for the records.
func (s Shelf[T]) Source() tenants.Source {
	return tenants.Source{Prefix: s.Prefix, Charge: func(key, value []byte) (tenants.Charge, error) {
		v, err := s.Read(&mvccpb.KeyValue{Key: key, Value: value})
		return s.Charge(v), err
	}}
}

// Change replaces a record by the result of next, and returns it. next gets the present record, or the zero value if
// there is none; it is called again after each concurrent change, so the retries end. ErrSame from it is no failure.
// Conflict: the record has another generation than the given one; nil: any generation, 0: there is no record.
func (s Shelf[T]) Change(ctx context.Context, name string, generation *int64,
	next func(now T, there bool) (T, error)) (v T, err error) {
	for {
		old, err := s.look(ctx, name)
		if err != nil {
			return v, err
		}
		if generation != nil && *generation != old.generation {
			return old.record, s.differs(ctx, name, old.generation, *generation)
		}
		v, err := next(old.record, old.generation != 0)
		if errors.Is(err, ErrSame) {
			return old.record, nil
		}
		if err != nil {
			return v, err
		}
		written, err := s.replace(ctx, name, old, &v)
		if err != nil || written {
			return v, err
		}
	}
}

// ErrSame ends a Change that has nothing to change.
var ErrSame = errors.New("the record is already as it should be")

// Set replaces the record of a generation by v, whatever it is, and returns v with its new generation; 0: there is no
// record. Conflict: the record has another generation.
func (s Shelf[T]) Set(ctx context.Context, name string, generation int64, v T) (T, error) {
	return s.Change(ctx, name, &generation, func(T, bool) (T, error) { return v, nil })
}

// old is a record as read.
type old[T any] struct {
	record                        T
	generation, created, revision int64 // of the last change, of the creation, and of the read; 0: no record
}

func (s Shelf[T]) look(ctx context.Context, name string) (o old[T], err error) {
	got, err := s.Conn.Etcd.Get(ctx, s.Prefix+name)
	if err != nil {
		return o, s.Conn.Wrap(err, "read %s %s", s.Noun, name)
	}
	o.revision = got.Header.Revision
	for _, stored := range got.Kvs {
		o.generation, o.created = stored.ModRevision, stored.CreateRevision
		o.record, err = s.Read(stored)
	}
	return o, err
}

// room returns the condition that no record was created since the records were counted. An error of TooMany.
func (s Shelf[T]) room(ctx context.Context) (clientv3.Cmp, error) {
	got, err := s.Conn.Etcd.Get(ctx, s.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return clientv3.Cmp{}, s.Conn.Wrap(err, "count the %s", s.plural())
	}
	if got.Count >= s.Most {
		return clientv3.Cmp{}, s.TooMany(got.Count)
	}
	return kv.NoneSince(s.Prefix, got.Header.Revision), nil
}

// replace replaces a record as read. False: something changed since.
func (s Shelf[T]) replace(ctx context.Context, name string, o old[T], v *T) (bool, error) {
	var g Guard
	if s.Guard != nil {
		var err error
		if g, err = s.Guard(ctx, o.record, v); err != nil {
			return false, err
		}
	}
	key := s.Prefix + name
	write := clientv3.OpPut(key, s.Text(*v))
	removed := s.Empty != nil && s.Empty(*v)
	if removed {
		write = clientv3.OpDelete(key)
	}
	g.If, g.Then = append(g.If, kv.Unchanged(key, o.generation)), append(g.Then, write)
	if o.generation == 0 && s.Most > 0 {
		room, err := s.room(ctx)
		if err != nil {
			return false, err
		}
		g.If = append(g.If, room)
	}
	var pay tenants.Charge
	if s.Charge != nil {
		pay = s.Charge(*v)
		if o.generation != 0 {
			pay.Amounts = pay.Amounts.Minus(s.Charge(o.record).Amounts)
		}
	}
	revision, answers, err := s.commit(ctx, pay, g, "write "+s.Noun+" "+name)
	if err != nil {
		return false, err
	}
	if revision == 0 {
		if g.Refused == nil {
			return false, nil
		}
		return false, g.Refused(answers)
	}
	if removed {
		s.stamp(v, 0, 0)
	} else {
		s.stamp(v, revision, cmp.Or(o.created, revision))
	}
	return true, nil
}

// commit commits a transaction with its charge, and returns its revision; 0: a condition is not met.
func (s Shelf[T]) commit(ctx context.Context, pay tenants.Charge, g Guard, what string) (int64,
	[]*etcdserverpb.ResponseOp, error) {
	if s.Projects == nil {
		return s.Conn.Commit(ctx, kv.Txn{If: g.If, Then: g.Then, Else: g.Else}, "%s", what)
	}
	return s.Projects.Commit(ctx, tenants.Change{Project: pay.Project, Charge: pay.Amounts, If: g.If, Then: g.Then,
		Else: g.Else, What: what})
}

// Remove removes a record of a generation; nil: of any. A prepare that is not nil returns the further parts of the
// transaction; it gets the record, and the revision at which it was read. NotFound. Conflict: the record has another
// generation.
func (s Shelf[T]) Remove(ctx context.Context, name string, generation *int64,
	prepare func(now T, revision int64) (Guard, error)) error {
	for {
		o, err := s.look(ctx, name)
		switch {
		case err != nil:
			return err
		case o.generation == 0:
			return s.NotFound(ctx, name)
		case generation != nil && *generation != o.generation:
			return s.differs(ctx, name, o.generation, *generation)
		}
		var g Guard
		if prepare != nil {
			if g, err = prepare(o.record, o.revision); err != nil {
				return err
			}
		}
		var pay tenants.Charge
		if s.Charge != nil {
			pay = s.Charge(o.record)
			pay.Amounts = tenant.Amounts{}.Minus(pay.Amounts)
		}
		key := s.Prefix + name
		g.If, g.Then = append(g.If, kv.Unchanged(key, o.generation)), append(g.Then, clientv3.OpDelete(key))
		revision, _, err := s.commit(ctx, pay, g, "remove "+s.Noun+" "+name)
		if err != nil || revision != 0 {
			return err
		} // otherwise something changed, so the retries end
	}
}
