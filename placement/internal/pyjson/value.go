// Package pyjson reads and writes JSON as the original Placement does, whose
// texts reach its clients: objects keep the order of their keys, errors are worded
// as Python's json module words them, and values can be shown as Python shows them.
package pyjson

import (
	"math/big"
)

// A value is nil, bool, int64, *big.Int (beyond 64 bits), float64, string,
// []any or *Object.

// Object is a JSON object that remembers the order of its keys. Of a key given
// twice the last value counts, at the place of the first.
type Object struct {
	keys   []string
	values []any
	index  map[string]int // made when there are many keys
}

// many is the number of keys from which on an index pays.
const many = 8

// Len is the number of keys.
func (o *Object) Len() int { return len(o.keys) }

// At returns the i-th key and its value.
func (o *Object) At(i int) (string, any) { return o.keys[i], o.values[i] }

// Get returns the value of a key.
func (o *Object) Get(key string) (any, bool) {
	if i := o.find(key); i >= 0 {
		return o.values[i], true
	}
	return nil, false
}

// Object returns the value of a key where that is an object, else an empty one.
func (o *Object) Object(key string) *Object {
	if v, ok := o.Get(key); ok {
		if inner, ok := v.(*Object); ok {
			return inner
		}
	}
	return &Object{}
}

// String returns the value of a key where that is a string, else "".
func (o *Object) String(key string) string {
	v, _ := o.Get(key)
	s, _ := v.(string)
	return s
}

// Set gives a key its value.
func (o *Object) Set(key string, v any) {
	if i := o.find(key); i >= 0 {
		o.values[i] = v
		return
	}
	o.keys, o.values = append(o.keys, key), append(o.values, v)
	switch {
	case o.index != nil:
		o.index[key] = len(o.keys) - 1
	case len(o.keys) > many:
		o.index = make(map[string]int, 2*len(o.keys))
		for i, k := range o.keys {
			o.index[k] = i
		}
	}
}

func (o *Object) find(key string) int {
	if o.index != nil {
		if i, ok := o.index[key]; ok {
			return i
		}
		return -1
	}
	for i, k := range o.keys {
		if k == key {
			return i
		}
	}
	return -1
}

// Int returns the value as an integer where it is one that fits 64 bits. A float
// without a fraction is one too, as it is to a JSON schema.
func Int(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case float64:
		if v == float64(int64(v)) && v > -1e18 && v < 1e18 {
			return int64(v), true
		}
	}
	return 0, false
}

// Float returns the value as a float where it is a number.
func Float(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, true
	}
	return 0, false
}
