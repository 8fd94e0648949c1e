package httpapi

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"croft"
)

// CheckText refuses a JSON document with text that is not Unicode: invalid UTF-8, or half of a surrogate pair.
// encoding/json would silently replace such text by U+FFFD. Invalid.
func CheckText(document []byte) error {
	if !utf8.Valid(document) {
		return croft.Errorf(croft.Invalid, "it is not JSON: it has bytes that are not UTF-8")
	}
	for rest := document; ; {
		at := bytes.IndexByte(rest, '\\')
		if at < 0 {
			return nil
		}
		rest = rest[at:]
		first, isUnit := codeUnit(rest)
		switch {
		case !isUnit:
			rest = rest[min(len(rest), len(`\\`)):]
		case !utf16.IsSurrogate(first):
			rest = rest[escape:]
		default:
			second, _ := codeUnit(rest[escape:])
			if utf16.DecodeRune(first, second) == utf8.RuneError {
				return croft.Errorf(croft.Invalid, "it has %s, which is half of a character: write the other half too",
					rest[:escape])
			}
			rest = rest[2*escape:]
		}
	}
}

// escape is the length of an escaped code unit.
const escape = len(`\u0000`)

// codeUnit returns the code unit of UTF-16 that a text starts with, if it is escaped.
func codeUnit(text []byte) (unit rune, is bool) {
	if len(text) < escape || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:escape]), 16, 16)
	return rune(n), err == nil
}
