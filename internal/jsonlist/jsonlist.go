// Package jsonlist reads long lists in JSON entry by entry.
package jsonlist

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Read reads an object with a list in one of its fields. It calls entry for each entry, which has to decode it, and
// returns the other fields. A list that is null or missing has no entries.
func Read(d *json.Decoder, list string, entry func() error) (rest map[string]json.RawMessage, err error) {
	if err := expect(d, '{'); err != nil {
		return nil, err
	}
	rest = map[string]json.RawMessage{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, is := token.(string)
		if !is {
			return nil, errors.New("a field has no name")
		}
		if name != list {
			var value json.RawMessage
			if err := d.Decode(&value); err != nil {
				return nil, err
			}
			rest[name] = value
			continue
		}
		switch token, err := d.Token(); {
		case err != nil:
			return nil, err
		case token == nil: // null
			continue
		case token != json.Delim('['):
			return nil, fmt.Errorf("%s is no list", list)
		}
		for d.More() {
			if err := entry(); err != nil {
				return nil, err
			}
		}
		if err := expect(d, ']'); err != nil {
			return nil, err
		}
	}
	return rest, expect(d, '}')
}

func expect(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err == nil && token != want {
		err = fmt.Errorf("%v instead of %v", token, want)
	}
	return err
}
