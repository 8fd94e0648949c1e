package state

import "strings"

// inherit merges a file's values over the values that it inherits: maps merge, other values replace, key+ appends to a
// list, and null (~) deletes. upper may be nil. A key+ that cannot be appended is a problem.
func inherit(upper, own *Value, p *problems) *Value {
	if own.Kind == List {
		return settled(own, p)
	}
	if own.Kind != Map {
		return own
	}
	if upper == nil || upper.Kind != Map {
		upper = &Value{}
	}
	out := newMap(own.At, len(upper.Keys)+len(own.Keys))
	replaced := func(key string) bool {
		return own.Fields[key] != nil || own.Fields[key+"+"] != nil
	}
	for _, key := range upper.Keys {
		if !replaced(key) {
			out.set(key, upper.Fields[key])
		}
	}
	for _, key := range own.Keys {
		value := own.Fields[key]
		base, adds := strings.CutSuffix(key, "+")
		switch {
		case value.Kind == Null && !adds:
		case !adds:
			out.set(key, inherit(upper.Fields[key], value, p))
		case value.Kind != List:
			p.add(value.At, "%s adds to a list, and this is %s", key, value.Kind)
		default:
			out.set(base, added(upper.Fields[base], settled(value, p), p))
		}
	}
	return out
}

// added appends a list to an inherited list, which may be nil.
func added(upper, own *Value, p *problems) *Value {
	if upper == nil {
		return own
	}
	if upper.Kind != List {
		p.add(own.At, "this adds to a list, and %s is inherited from %s", upper.Kind, upper.At)
		return own
	}
	out := &Value{Kind: List, At: own.At, Items: make([]*Value, 0, len(upper.Items)+len(own.Items))}
	out.Items = append(append(out.Items, upper.Items...), own.Items...)
	return out
}

// settled applies key+ and null in the maps of a list; these maps inherit nothing.
func settled(list *Value, p *problems) *Value {
	out := &Value{Kind: List, At: list.At, Items: make([]*Value, len(list.Items))}
	for i, item := range list.Items {
		out.Items[i] = inherit(nil, item, p)
	}
	return out
}

// without returns a copy of a map without some keys.
func (v *Value) without(keys ...string) *Value {
	out := newMap(v.At, len(v.Keys))
next:
	for _, key := range v.Keys {
		for _, no := range keys {
			if key == no {
				continue next
			}
		}
		out.set(key, v.Fields[key])
	}
	return out
}
