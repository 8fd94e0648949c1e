package pyjson

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds nesting, as Python's recursion limit does.
const maxDepth = 900

// SyntaxError says what is wrong with a text and where, in Python's words.
type SyntaxError struct {
	Message string
	Offset  int // in characters
	Line    int
	Column  int
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s: line %d column %d (char %d)", e.Message, e.Line, e.Column, e.Offset)
}

type parser struct {
	text  string
	pos   int // in bytes
	depth int
}

// Parse reads one JSON value. NaN, Infinity and -Infinity are numbers, as they
// are to Python.
func Parse(text []byte) (any, error) {
	if !utf8.Valid(text) {
		return nil, decodeError(text)
	}
	p := &parser{text: string(text)}
	p.space()
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	p.space()
	if p.pos < len(p.text) {
		return nil, p.fail("Extra data", p.pos)
	}
	return v, nil
}

// decodeError names the first byte that is not UTF-8.
func decodeError(text []byte) error {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("'utf-8' codec can't decode byte 0x%02x in position %d: invalid start byte", text[i], i)
		}
		i += n
	}
	return fmt.Errorf("'utf-8' codec can't decode the text")
}

func (p *parser) fail(message string, at int) error {
	before := p.text[:at]
	start := strings.LastIndexByte(before, '\n') + 1
	return &SyntaxError{
		Message: message,
		Offset:  utf8.RuneCountInString(before),
		Line:    strings.Count(before, "\n") + 1,
		Column:  utf8.RuneCountInString(before[start:]) + 1,
	}
}

func (p *parser) space() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\n\r", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

// next is the byte at hand, 0 at the end.
func (p *parser) next() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

var words = []struct {
	text  string
	value any
}{
	{"null", nil}, {"true", true}, {"false", false},
	{"NaN", math.NaN()}, {"Infinity", math.Inf(1)}, {"-Infinity", math.Inf(-1)},
}

func (p *parser) value() (any, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, fmt.Errorf("maximum recursion depth exceeded while decoding a JSON document")
	}
	defer func() { p.depth-- }()
	switch c := p.next(); {
	case c == '"':
		p.pos++
		return p.str()
	case c == '{':
		p.pos++
		return p.object()
	case c == '[':
		p.pos++
		return p.array()
	case c == '-' || c >= '0' && c <= '9':
		if v, ok, err := p.number(); ok || err != nil {
			return v, err
		}
	}
	for _, w := range words {
		if strings.HasPrefix(p.text[p.pos:], w.text) {
			p.pos += len(w.text)
			return w.value, nil
		}
	}
	return nil, p.fail("Expecting value", p.pos)
}

func (p *parser) object() (any, error) {
	o := &Object{}
	p.space()
	if p.next() == '}' {
		p.pos++
		return o, nil
	}
	for {
		if p.next() != '"' {
			return nil, p.fail("Expecting property name enclosed in double quotes", p.pos)
		}
		p.pos++
		key, err := p.str()
		if err != nil {
			return nil, err
		}
		p.space()
		if p.next() != ':' {
			return nil, p.fail("Expecting ':' delimiter", p.pos)
		}
		p.pos++
		p.space()
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		o.Set(key, v)
		p.space()
		switch p.next() {
		case '}':
			p.pos++
			return o, nil
		case ',':
			p.pos++
			p.space()
		default:
			return nil, p.fail("Expecting ',' delimiter", p.pos)
		}
	}
}

func (p *parser) array() (any, error) {
	list := []any{}
	p.space()
	if p.next() == ']' {
		p.pos++
		return list, nil
	}
	for {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		p.space()
		switch p.next() {
		case ']':
			p.pos++
			return list, nil
		case ',':
			p.pos++
			p.space()
		default:
			return nil, p.fail("Expecting ',' delimiter", p.pos)
		}
	}
}

// maxDigits bounds integers, as Python does: to convert them takes time that grows with
// the square of their length.
const maxDigits = 4300

// number reads -?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?, as much of it as is there.
func (p *parser) number() (v any, ok bool, err error) {
	i := p.pos
	digits := func() bool {
		start := i
		for i < len(p.text) && p.text[i] >= '0' && p.text[i] <= '9' {
			i++
		}
		return i > start
	}
	if p.text[i] == '-' {
		i++
	}
	if i < len(p.text) && p.text[i] == '0' {
		i++
	} else if !digits() {
		return nil, false, nil
	}
	end, whole := i, true
	if i < len(p.text) && p.text[i] == '.' {
		if i++; digits() {
			end, whole = i, false
		}
		i = end
	}
	if i < len(p.text) && (p.text[i] == 'e' || p.text[i] == 'E') {
		if i++; i < len(p.text) && (p.text[i] == '-' || p.text[i] == '+') {
			i++
		}
		if digits() {
			end, whole = i, false
		}
	}
	text := p.text[p.pos:end]
	p.pos = end
	if !whole {
		f, _ := strconv.ParseFloat(text, 64) // out of range: infinity, as in Python
		return f, true, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true, nil
	}
	if digits := len(strings.TrimPrefix(text, "-")); digits > maxDigits {
		return nil, false, fmt.Errorf("an integer has %d digits, and at most %d are read", digits, maxDigits)
	}
	n, ok := new(big.Int).SetString(text, 10)
	return n, ok, nil
}

// str reads what follows an opening quote.
func (p *parser) str() (string, error) {
	begin := p.pos - 1
	start := p.pos
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '"':
			s := p.text[start:p.pos]
			p.pos++
			return s, nil
		case c == '\\':
			return p.escaped(begin, start)
		case c < 0x20:
			return "", p.fail("Invalid control character at", p.pos)
		}
		p.pos++
	}
	return "", p.fail("Unterminated string starting at", begin)
}

// escaped goes on with a string in which the first backslash has been met.
func (p *parser) escaped(begin, start int) (string, error) {
	out := []byte(p.text[start:p.pos])
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '"':
			p.pos++
			return string(out), nil
		case c == '\\':
			r, err := p.escape(begin)
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		case c < 0x20:
			return "", p.fail("Invalid control character at", p.pos)
		default:
			out = append(out, c)
			p.pos++
		}
	}
	return "", p.fail("Unterminated string starting at", begin)
}

func (p *parser) escape(begin int) (rune, error) {
	at := p.pos
	p.pos++
	if p.pos >= len(p.text) {
		return 0, p.fail("Unterminated string starting at", begin)
	}
	c := p.text[p.pos]
	if c == 'u' {
		return p.unicode(at)
	}
	i := strings.IndexByte(`"\/bfnrt`, c)
	if i < 0 {
		return 0, p.fail(`Invalid \escape`, at)
	}
	p.pos++
	return rune("\"\\/\b\f\n\r\t"[i]), nil
}

func (p *parser) unicode(at int) (rune, error) {
	r, ok := p.hex4(at + 2)
	if !ok {
		return 0, p.fail(`Invalid \uXXXX escape`, at+1)
	}
	p.pos = at + 6
	if utf16.IsSurrogate(r) && strings.HasPrefix(p.text[p.pos:], `\u`) {
		if low, ok := p.hex4(p.pos + 2); ok {
			if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
				p.pos += 6
				return both, nil
			}
		}
	}
	return r, nil
}

func (p *parser) hex4(at int) (rune, bool) {
	if at+4 > len(p.text) {
		return 0, false
	}
	n, err := strconv.ParseUint(p.text[at:at+4], 16, 16)
	return rune(n), err == nil
}
