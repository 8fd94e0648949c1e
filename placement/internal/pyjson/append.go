package pyjson

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// AppendString writes a JSON string in ASCII, other characters escaped, as
// Python's json module does.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= ' ' && c < 0x7f && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		r, n := utf8.DecodeRuneInString(s[i:])
		b = appendEscape(b, r)
		i += n - 1
		start = i + 1
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

func appendEscape(b []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(b, '\\', byte(r))
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	case 0x7f:
		return append(b, 0x7f)
	}
	if r >= 0x10000 {
		r -= 0x10000
		b = appendUnit(b, 0xd800+(r>>10))
		r = 0xdc00 + (r & 0x3ff)
	}
	return appendUnit(b, r)
}

func appendUnit(b []byte, u rune) []byte {
	return append(b, '\\', 'u', hexDigits[u>>12&15], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
}
