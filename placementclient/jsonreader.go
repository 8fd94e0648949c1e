package placementclient

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// jsonReader reads a JSON text of known form from start to end. After an error it reads no further; err contains the
// position.
type jsonReader struct {
	text  []byte
	at    int
	depth int // nesting of skipped values
	err   error
}

// maxDepth bounds the nesting of skipped values.
const maxDepth = 100

// peek returns the next byte other than white space; 0 at the end, and after an error.
func (r *jsonReader) peek() byte {
	for r.err == nil && r.at < len(r.text) {
		switch b := r.text[r.at]; b {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return b
		}
	}
	return 0
}

func (r *jsonReader) fail(wanted string) {
	if r.err == nil {
		r.err = fmt.Errorf("no %s at byte %d", wanted, r.at)
	}
	r.at = len(r.text)
}

// take reads one byte.
func (r *jsonReader) take(b byte) bool {
	if r.peek() != b {
		return false
	}
	r.at++
	return true
}

// object calls value for every member; value must read the member's value. null has no members.
func (r *jsonReader) object(value func(key []byte)) {
	if r.null() {
		return
	}
	if !r.take('{') {
		r.fail("object")
		return
	}
	for first := true; r.err == nil && !r.take('}'); first = false {
		if !first && !r.take(',') {
			r.fail("comma")
			return
		}
		key := r.string()
		if !r.take(':') {
			r.fail("colon")
			return
		}
		value(key)
	}
}

// array calls value for every element; value must read it. null has no elements.
func (r *jsonReader) array(value func()) {
	if r.null() {
		return
	}
	if !r.take('[') {
		r.fail("array")
		return
	}
	for first := true; r.err == nil && !r.take(']'); first = false {
		if !first && !r.take(',') {
			r.fail("comma")
			return
		}
		value()
	}
}

// null reads a null if it is the next value.
func (r *jsonReader) null() bool {
	if r.peek() != 'n' || !bytes.HasPrefix(r.text[r.at:], []byte("null")) {
		return false
	}
	r.at += len("null")
	return true
}

// string reads a string. The result is a slice of the text, unless the string has escapes.
func (r *jsonReader) string() []byte {
	if r.peek() != '"' {
		r.fail("string")
		return nil
	}
	escaped := false
	for i := r.at + 1; i < len(r.text); i++ {
		switch r.text[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			token := r.text[r.at : i+1]
			if escaped {
				return r.unescape(token)
			}
			r.at = i + 1
			return token[1 : len(token)-1]
		}
	}
	r.fail("end of a string")
	return nil
}

func (r *jsonReader) unescape(token []byte) []byte {
	var s string
	if err := json.Unmarshal(token, &s); err != nil {
		r.fail("string")
		return nil
	}
	r.at += len(token)
	return []byte(s)
}

// textOrNull reads a string; false: it is null.
func (r *jsonReader) textOrNull() ([]byte, bool) {
	if r.null() {
		return nil, false
	}
	return r.string(), true
}

// integer reads a whole number.
func (r *jsonReader) integer() int64 {
	r.peek()
	end := r.at
	for end < len(r.text) && (r.text[end] == '-' || r.text[end] >= '0' && r.text[end] <= '9') {
		end++
	}
	n, err := strconv.ParseInt(string(r.text[r.at:end]), 10, 64)
	if err != nil || end < len(r.text) && (r.text[end] == '.' || r.text[end]|0x20 == 'e') {
		r.fail("whole number")
		return 0
	}
	r.at = end
	return n
}

// skip skips a value of any form.
func (r *jsonReader) skip() {
	if r.depth++; r.depth > maxDepth {
		r.fail("end of nesting")
	}
	defer func() { r.depth-- }()
	switch r.peek() {
	case '{':
		r.object(func([]byte) { r.skip() })
	case '[':
		r.array(func() { r.skip() })
	case '"':
		r.string()
	case 't', 'f', 'n', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		for r.at < len(r.text) && bytes.IndexByte([]byte(",]} \t\n\r"), r.text[r.at]) < 0 {
			r.at++
		}
	default:
		r.fail("value")
	}
}

// end fails unless the text has ended.
func (r *jsonReader) end() {
	if r.peek() != 0 {
		r.fail("end")
	}
}
