package foreign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
)

// readJSON parses a list of objects, or an object with such a list in results (NetBox) or leases.
func readJSON(text []byte) ([]Record, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var top any
	if err := decoder.Decode(&top); err != nil {
		return nil, croft.Errorf(croft.Invalid, "JSON: %w", err)
	}
	if decoder.More() {
		return nil, croft.Errorf(croft.Invalid, "JSON: more than one value")
	}
	if object, is := top.(map[string]any); is {
		top = nil
		for _, k := range []string{"results", "leases", "arguments"} {
			if inner, is := object[k].(map[string]any); is { // Kea puts leases into arguments
				top = inner["leases"]
			} else if object[k] != nil {
				top = object[k]
			}
			if top != nil {
				break
			}
		}
		if next, _ := object["next"].(string); next != "" {
			return nil, croft.Errorf(croft.Invalid,
				"JSON: this is one page of several (next is %s): fetch it with limit=0",
				next)
		}
	}
	list, is := top.([]any)
	if !is {
		return nil, croft.Errorf(croft.Invalid,
			"JSON: want a list of objects, or an object with one in results or leases")
	}
	var all []Record
	for i, one := range list {
		object, is := one.(map[string]any)
		at := fmt.Sprint("item ", i+1)
		if !is {
			return nil, croft.Errorf(croft.Invalid, "%s: want an object", at)
		}
		var found []Record
		var err error
		if inner, is := object["addr_info"].([]any); is {
			found, err = ofInterface(object, inner, at)
		} else {
			found, err = ofObject(object, at)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func ofObject(object map[string]any, at string) ([]Record, error) {
	keys := slices.Sorted(maps.Keys(object))
	i := addressColumn(keys)
	if i < 0 {
		return nil, croft.Errorf(croft.Invalid, "%s: no key is called address or prefix: there are %q", at, keys)
	}
	r, err := newRecord(plainText(object[keys[i]]), at, slices.Contains(prefixNames, key(keys[i])))
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if k == keys[i] {
			continue
		}
		if list, is := object[k].([]any); is && slices.Contains(tagNames, key(k)) {
			for _, tag := range list {
				if err := r.tag(plainText(tag)); err != nil {
					return nil, err
				}
			}
		} else if err := r.add(k, plainText(object[k])); err != nil {
			return nil, err
		}
	}
	return []Record{r}, nil
}

// plainText converts a JSON value to one text. For an object, it is the field that NetBox would display.
func plainText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case map[string]any:
		for _, k := range []string{"slug", "value", "name", "address", "display"} {
			if text := plainText(v[k]); text != "" {
				return text
			}
		}
		return ""
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, plainText(one))
		}
		return strings.Join(all, ", ")
	}
	return fmt.Sprint(v)
}

// ofInterface reads the addresses of an interface in the output of ip -j addr. It skips addresses of the scopes host
// and link, which are meaningful only on that machine or link.
func ofInterface(object map[string]any, inner []any, at string) ([]Record, error) {
	var all []Record
	for _, one := range inner {
		info, is := one.(map[string]any)
		if scope := plainText(info["scope"]); !is || scope == "host" || scope == "link" {
			continue
		}
		r, err := newRecord(plainText(info["local"]), at, false)
		if err != nil {
			return nil, err
		}
		for name, value := range map[string]any{"interface": object["ifname"], "mac": object["address"]} {
			if err := r.add(name, plainText(value)); err != nil {
				return nil, err
			}
		}
		all = append(all, r)
	}
	return all, nil
}
