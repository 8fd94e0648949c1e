package clusters

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
)

// shelf stores records of one kind, each under its own key.
type shelf[T any] struct {
	what       string // for errors
	prefix     string
	generation func(*T) *int64
	created    func(*T) *int64 // nil: their keys contain their identity
}

func (s shelf[T]) decode(c *kv.Conn, stored *mvccpb.KeyValue) (v T, err error) {
	err = c.Decode(stored.Key, stored.Value, &v)
	*s.generation(&v) = stored.ModRevision
	if s.created != nil {
		*s.created(&v) = stored.CreateRevision
	}
	return v, err
}

func (s shelf[T]) missing(name string) error {
	return croft.Errorf(croft.NotFound, "there is no %s %.80q", s.what, name)
}

// list returns all records at a revision; 0: the current one.
func (s shelf[T]) list(ctx context.Context, c *kv.Conn, revision int64) ([]T, error) {
	all := []T{}
	err := c.ReadRange(ctx, "read the "+s.what+"s", s.prefix, revision, func(stored *mvccpb.KeyValue) error {
		v, err := s.decode(c, stored)
		all = append(all, v)
		return err
	})
	return all, err
}

// indexed returns the records that are named by the keys below a prefix. It omits records that are removed between both
// reads.
func (s shelf[T]) indexed(ctx context.Context, c *kv.Conn, prefix string, nameOf func(*mvccpb.KeyValue) string) ([]T,
	error) {
	all := []T{}
	var ops []clientv3.Op
	err := c.ReadRange(ctx, "list the "+s.what+"s", prefix, 0, func(stored *mvccpb.KeyValue) error {
		ops = append(ops, clientv3.OpGet(s.prefix+nameOf(stored)))
		return nil
	})
	for some := range slices.Chunk(ops, 8) { // records may be large, and answers of etcd are limited in size
		if err != nil {
			break
		}
		var found [][]*mvccpb.KeyValue
		found, err = c.GetMany(ctx, "read the "+s.what+"s", some)
		for _, stored := range slices.Concat(found...) {
			v, wrong := s.decode(c, stored)
			if wrong != nil {
				return all, wrong
			}
			all = append(all, v)
		}
	}
	return all, err
}

// find returns a record. NotFound.
func (s shelf[T]) find(ctx context.Context, c *kv.Conn, name string) (v T, err error) {
	got, err := c.Etcd.Get(ctx, s.prefix+name)
	if err != nil {
		return v, c.Wrap(err, "read %s %s", s.what, name)
	}
	if len(got.Kvs) == 0 {
		return v, s.missing(name)
	}
	return s.decode(c, got.Kvs[0])
}

// put replaces the record of the given generation if further conditions are met, and does more, in one transaction with
// the charge. False: the conditions are not met. Conflict: the record has another generation.
func (s shelf[T]) put(ctx context.Context, p *tenants.Projects, name string, v *T, pay tenants.Charge,
	ifs []clientv3.Cmp, more ...clientv3.Op) (bool, error) {
	key, at := s.prefix+name, s.generation(v)
	before := *at
	*at = 0
	text := kv.Encode(*v)
	*at = before
	revision, answers, err := p.Commit(ctx, tenants.Change{Project: pay.Project, Charge: pay.Amounts,
		If: append(ifs, kv.Unchanged(key, before)), Then: append(more, clientv3.OpPut(key, text)),
		Else: []clientv3.Op{clientv3.OpGet(key, clientv3.WithKeysOnly())}, What: "write " + s.what + " " + name})
	if err != nil {
		return false, err
	}
	if revision != 0 {
		*at = revision
		if before == 0 && s.created != nil {
			*s.created(v) = revision
		}
		return true, nil
	}
	now := kv.First(answers[0])
	switch {
	case now == nil && before == 0, now != nil && now.ModRevision == before:
		return false, nil
	case now == nil:
		return false, s.missing(name)
	case before == 0:
		return false, croft.Errorf(croft.Conflict, "there is a %s %s already", s.what, name)
	}
	return false, croft.Errorf(croft.Conflict, "%s %s has generation %d, not %d: another request changed it; read "+
		"it again",
		s.what, name, now.ModRevision, before)
}
