package etcdstore

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A program of a newer minor version writes fields into records that this one does not know, and would therefore drop
// when it reads, changes and writes such a record. Every write of this connection goes through preservingKV, which adds
// the unknown fields of the stored value to the written value. The stored value is read only for keys whose value had
// unknown fields when it was decoded, which happens only if a newer program runs.

// unknownFields holds the types of the values with unknown fields, by key.
type unknownFields struct {
	mu    sync.Mutex
	types map[string]reflect.Type
}

// note records that the value of a key had fields that the type of v lacks.
func (u *unknownFields) note(key string, v any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.types == nil {
		u.types = map[string]reflect.Type{}
	}
	u.types[key] = reflect.TypeOf(v).Elem()
}

func (u *unknownFields) typeOf(key string) reflect.Type {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.types[key]
}

func (u *unknownFields) none() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.types) == 0
}

// preservingKV keeps the unknown fields of the records that it writes.
type preservingKV struct {
	clientv3.KV
	unknown *unknownFields
	keys    func() keys
}

// Put implements clientv3.KV.
func (p preservingKV) Put(ctx context.Context, key, value string, options ...clientv3.OpOption) (*clientv3.PutResponse,
	error) {
	done, err := p.Do(ctx, clientv3.OpPut(key, value, options...))
	return done.Put(), err
}

// Do implements clientv3.KV.
func (p preservingKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if op.IsPut() && !p.unknown.none() {
		ops, err := p.preserved(ctx, nil, []clientv3.Op{op})
		if err != nil {
			return clientv3.OpResponse{}, err
		}
		op = ops[0]
	}
	return p.KV.Do(ctx, op)
}

// Txn implements clientv3.KV.
func (p preservingKV) Txn(ctx context.Context) clientv3.Txn {
	if p.unknown.none() {
		return p.KV.Txn(ctx)
	}
	return &preservingTxn{kv: p, ctx: ctx}
}

type preservingTxn struct {
	kv       preservingKV
	ctx      context.Context
	compares []clientv3.Cmp
	then     []clientv3.Op
	another  []clientv3.Op
}

// If implements clientv3.Txn.
func (t *preservingTxn) If(compares ...clientv3.Cmp) clientv3.Txn { t.compares = compares; return t }

// Then implements clientv3.Txn.
func (t *preservingTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.then = ops; return t }

// Else implements clientv3.Txn.
func (t *preservingTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.another = ops; return t }

// Commit implements clientv3.Txn.
func (t *preservingTxn) Commit() (*clientv3.TxnResponse, error) {
	then, err := t.kv.preserved(t.ctx, t.compares, t.then)
	if err != nil {
		return nil, err
	}
	return t.kv.KV.Txn(t.ctx).If(t.compares...).Then(then...).Else(t.another...).Commit()
}

// preserved returns the operations of a transaction with the unknown fields of the values that they replace. A record
// that the transaction creates gets no such fields from a removed record of the same name. The record may change
// between this read and the transaction; then a comparison of its revision fails, or the caller is the only writer of
// the key.
func (p preservingKV) preserved(
	ctx context.Context,
	compares []clientv3.Cmp,
	ops []clientv3.Op,
) ([]clientv3.Op, error) {
	created := map[string]bool{}
	for i := range compares {
		if c := compares[i].GetCompare(); c.GetResult() == etcdserverpb.Compare_EQUAL && len(c.GetRangeEnd()) == 0 &&
			(c.GetTarget() == etcdserverpb.Compare_CREATE && c.GetCreateRevision() == 0 ||
				c.GetTarget() == etcdserverpb.Compare_MOD && c.GetModRevision() == 0) {
			created[string(c.GetKey())] = true
		}
	}
	next := ops
	for i, op := range ops {
		key := string(op.KeyBytes())
		if !op.IsPut() || len(op.ValueBytes()) == 0 {
			continue
		}
		value := op.ValueBytes()
		if !created[key] {
			extra, err := p.extra(ctx, key)
			if err != nil {
				return nil, err
			}
			value = extra.addTo(value)
		}
		if record := p.keys().recordOf(key); record != "" { // an order contains the spec of its record
			extra, err := p.extra(ctx, record)
			if err != nil {
				return nil, err
			}
			if spec := extra.fields["spec"]; spec != nil && bytes.Contains(value, []byte(`"spec":{"`)) {
				value = (&surplus{fields: map[string]*surplus{"spec": spec}}).addTo(value)
			}
		}
		if bytes.Equal(value, op.ValueBytes()) {
			continue
		}
		if &next[0] == &ops[0] { // do not change the caller's slice
			next = append([]clientv3.Op(nil), ops...)
		}
		next[i].WithValueBytes(value)
	}
	return next, nil
}

// extra returns the unknown fields of the stored value of a key.
func (p preservingKV) extra(ctx context.Context, key string) (*surplus, error) {
	known := p.unknown.typeOf(key)
	if known == nil {
		return &surplus{}, nil
	}
	got, err := p.KV.Get(ctx, key)
	if err != nil || len(got.Kvs) == 0 {
		return &surplus{}, err
	}
	return surplusOf(got.Kvs[0].Value, known), nil
}

// recordOf returns the key of the record of an order's instance; empty: the key is not an order's.
func (k keys) recordOf(key string) string {
	if !strings.HasPrefix(key, k.allOrders()) {
		return ""
	}
	return k.instances() + last([]byte(key))
}

// surplus is the part of a stored value that a type does not know: a whole value, or fields of an object, or of
// elements of a list, each identified by its known part.
type surplus struct {
	whole    any
	fields   map[string]*surplus
	elements map[string]*surplus
}

func (s *surplus) empty() bool {
	return s == nil || s.whole == nil && len(s.fields) == 0 && len(s.elements) == 0
}

// surplusOf returns the part of a value that a type does not know.
func surplusOf(value []byte, known reflect.Type) *surplus {
	v := reflect.New(known)
	if json.Unmarshal(value, v.Interface()) != nil {
		return &surplus{}
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return &surplus{}
	}
	return compareValues(parsed(value), parsed(text))
}

// parsed parses JSON without converting numbers.
func parsed(text []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// compareValues returns the part of a stored value that its known form lacks.
func compareValues(stored, known any) *surplus {
	s := &surplus{}
	switch stored := stored.(type) {
	case map[string]any:
		known, is := known.(map[string]any)
		if !is {
			return s
		}
		s.fields = map[string]*surplus{}
		for name, v := range stored {
			part, has := known[name]
			if !has {
				s.fields[name] = &surplus{whole: v}
			} else if more := compareValues(v, part); !more.empty() {
				s.fields[name] = more
			}
		}
	case []any:
		known, is := known.([]any)
		if !is || len(known) != len(stored) {
			return s
		}
		s.elements = map[string]*surplus{}
		for i := range stored {
			if more := compareValues(stored[i], known[i]); !more.empty() {
				s.elements[printed(known[i])] = more
			}
		}
	}
	return s
}

// printed returns JSON in which the fields of objects are sorted by name.
func printed(v any) string {
	text, _ := json.Marshal(v) // never fails, because v was JSON
	return string(text)
}

// addTo adds the surplus to a value that was encoded from the known type.
func (s *surplus) addTo(value []byte) []byte {
	if s.empty() {
		return value
	}
	switch v := parsed(value).(type) {
	case map[string]any, []any: // a list is, for example, the distances of a type
		return []byte(printed(s.add(v)))
	}
	return value
}

// add adds the surplus to a known value. Parts that the known value no longer has are not restored.
func (s *surplus) add(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, more := range s.fields {
			part, has := v[name]
			switch {
			case !has && more.whole != nil:
				v[name] = more.whole
			case has && more.whole == nil:
				v[name] = more.add(part)
			}
		}
	case []any:
		for i := range v {
			if more := s.elements[printed(v[i])]; more != nil {
				v[i] = more.add(v[i])
			}
		}
	}
	return v
}
