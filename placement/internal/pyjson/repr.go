package pyjson

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Repr shows a value as Python's repr does: {'name': 'x', 'ok': True}.
func Repr(v any) string { return string(appendRepr(nil, v, false)) }

func appendRepr(b []byte, v any, sorted bool) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "None"...)
	case bool:
		if v {
			return append(b, "True"...)
		}
		return append(b, "False"...)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case *big.Int:
		return v.Append(b, 10)
	case float64:
		return AppendFloat(b, v)
	case string:
		return appendQuoted(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendRepr(b, e, sorted)
		}
		return append(b, ']')
	case *Object:
		b = append(b, '{')
		for i, k := range order(v, sorted) {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(appendQuoted(b, v.keys[k]), ": "...)
			b = appendRepr(b, v.values[k], sorted)
		}
		return append(b, '}')
	}
	return fmt.Appendf(b, "%v", v)
}

// order returns the indexes of an object's keys as they are to be shown.
func order(o *Object, sorted bool) []int {
	idx := make([]int, len(o.keys))
	for i := range idx {
		idx[i] = i
	}
	if sorted {
		slices.SortFunc(idx, func(a, b int) int { return strings.Compare(o.keys[a], o.keys[b]) })
	}
	return idx
}

// AppendFloat writes a float as Python does: the shortest digits that read back
// the same, with a fraction or an exponent in any case.
func AppendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, "nan"...)
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	if !slices.Contains(b[start:], '.') {
		b = append(b, ".0"...)
	}
	return b
}

// appendQuoted writes a string literal: in single quotes, unless only those occur in it.
func appendQuoted(b []byte, s string) []byte {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b = append(b, quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == ' ' || unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case r < 0x100:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
	}
	return append(b, quote)
}

// Pretty shows a value as Python's pprint does, in lines of at most width
// characters where that is possible, keys in order.
func Pretty(v any, width int) string {
	p := pretty{width: width}
	p.format(v, 0, 0, 1)
	return p.out.String()
}

type pretty struct {
	out   strings.Builder
	width int
}

// format writes v, which begins at column indent and is followed by allowance
// closing characters.
func (p *pretty) format(v any, indent, allowance, level int) {
	rep := string(appendRepr(nil, v, true))
	if utf8.RuneCountInString(rep) <= p.width-indent-allowance {
		p.out.WriteString(rep)
		return
	}
	switch v := v.(type) {
	case *Object:
		p.object(v, indent, allowance+1, level)
	case []any:
		p.list(v, indent, allowance+1, level)
	case string:
		p.str(v, indent, allowance, level)
	default:
		p.out.WriteString(rep)
	}
}

func (p *pretty) object(o *Object, indent, allowance, level int) {
	p.out.WriteByte('{')
	indent++
	for i, k := range order(o, true) {
		last := i == o.Len()-1
		key := Repr(o.keys[k])
		p.out.WriteString(key + ": ")
		p.format(o.values[k], indent+utf8.RuneCountInString(key)+2, pick(last, allowance, 1), level+1)
		if !last {
			p.out.WriteString(",\n" + strings.Repeat(" ", indent))
		}
	}
	p.out.WriteByte('}')
}

func (p *pretty) list(list []any, indent, allowance, level int) {
	p.out.WriteByte('[')
	indent++
	for i, v := range list {
		last := i == len(list)-1
		p.format(v, indent, pick(last, allowance, 1), level+1)
		if !last {
			p.out.WriteString(",\n" + strings.Repeat(" ", indent))
		}
	}
	p.out.WriteByte(']')
}

// str breaks a string after its line ends, and a long line at blanks, into several
// literals, in parentheses where it stands alone.
func (p *pretty) str(s string, indent, allowance, level int) {
	if level == 1 {
		indent++
		allowance++
	}
	var chunks []string
	all := lines(s)
	for i, line := range all {
		after := 0
		if i == len(all)-1 {
			after = allowance
		}
		chunks = fill(chunks, line, p.width-indent, after)
	}
	text := strings.Join(chunks, "\n"+strings.Repeat(" ", indent))
	if level == 1 && len(chunks) > 1 {
		text = "(" + text + ")"
	}
	p.out.WriteString(text)
}

// fill appends the literals of one line, each as long as room allows, the last one
// with what comes after it.
func fill(chunks []string, line string, room, after int) []string {
	parts := blanks(line)
	current := parts[0]
	for i, part := range parts[1:] {
		if i == len(parts)-2 {
			room -= after
		}
		if utf8.RuneCountInString(Repr(current+part)) > room {
			chunks = append(chunks, Repr(current))
			current = ""
		}
		current += part
	}
	return append(chunks, Repr(current))
}

// lines cuts a string after each end of a line, as Python knows them.
func lines(s string) []string {
	const ends = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"
	var list []string
	for {
		at := strings.IndexAny(s, ends)
		if at < 0 {
			break
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			size = 2
		}
		list, s = append(list, s[:at+size]), s[at+size:]
	}
	if s != "" || len(list) == 0 {
		list = append(list, s)
	}
	return list
}

// blanks cuts a string after each run of blanks.
func blanks(s string) []string {
	var parts []string
	start, inBlank := 0, false
	for i, r := range s {
		blank := unicode.IsSpace(r)
		if inBlank && !blank {
			parts = append(parts, s[start:i])
			start = i
		}
		inBlank = blank
	}
	return append(parts, s[start:])
}

func pick(cond bool, a, b int) int {
	if cond {
		return a
	}
	return b
}
