package setexpr

import (
	"net/netip"
	"strings"
	"unicode/utf8"

	"go4.org/netipx"

	"croft"
	"croft/internal/lazyregexp"
)

const (
	maxBytes  = 1 << 20
	maxNested = 100 // nesting of parentheses
)

// Parse parses an expression. file and line are the position of the text, for error messages only. Invalid.
func Parse(text, file string, line int) (*Expr, error) { return ParseAt(text, Pos{file, line, 1}) }

// ParseAt is Parse for a text that starts at any position in a line.
func ParseAt(text string, at Pos) (*Expr, error) {
	p := &parser{text: text, at: at}
	switch {
	case len(text) > maxBytes:
		return nil, p.wrong("an expression of more than %d bytes", maxBytes)
	case !utf8.ValidString(text):
		return nil, p.wrong("the expression is not in UTF-8")
	}
	p.next()
	if p.token == "" {
		return nil, p.wrong("there is no expression: write none for a set without addresses")
	}
	x, err := p.chain(0)
	if err == nil && p.token != "" {
		return nil, p.wrong("%q has nothing before it to combine: write | or another operator", p.token)
	}
	return x, err
}

type parser struct {
	text   string // the remaining text
	at     Pos    // position of token
	token  string // an operator, a parenthesis, or a word; empty: the end
	after  Pos    // position of text
	begun  bool
	nested int
}

func (p *parser) wrong(format string, args ...any) error {
	return croft.Errorf(croft.Invalid, "%s: "+format, append([]any{p.at}, args...)...)
}

const (
	blanks    = " \t\r\n"
	operators = "|&!()"
)

// next reads one token.
func (p *parser) next() {
	if !p.begun {
		p.after, p.begun = p.at, true
	}
	for p.text != "" {
		if strings.IndexByte(blanks, p.text[0]) >= 0 {
			p.skip(1)
		} else if p.text[0] == '#' && (len(p.text) == 1 || strings.IndexByte(blanks, p.text[1]) >= 0) {
			line, _, _ := strings.Cut(p.text, "\n")
			p.skip(len(line))
		} else {
			break
		}
	}
	p.at, p.token = p.after, ""
	switch {
	case p.text == "":
		return
	case strings.IndexByte(operators+"-", p.text[0]) >= 0:
		p.token = p.text[:1]
	default:
		p.token = p.text
		if end := strings.IndexAny(p.text, blanks+operators); end >= 0 {
			p.token = p.text[:end]
		}
	}
	p.skip(len(p.token))
}

func (p *parser) skip(n int) {
	for _, c := range []byte(p.text[:n]) {
		p.after.Column++
		if c == '\n' {
			p.after.Line, p.after.Column = p.after.Line+1, 1
		}
	}
	p.text = p.text[n:]
}

var levels = []kind{union, difference, intersection}

// chain parses operands that one operator joins, starting with the operator of lowest precedence.
func (p *parser) chain(level int) (*Expr, error) {
	if level == len(levels) {
		return p.operand()
	}
	first, err := p.chain(level + 1)
	if err != nil {
		return nil, err
	}
	x := &Expr{kind: levels[level], parts: []*Expr{first}, at: first.at}
	for p.token == string(rune(levels[level])) {
		p.next()
		part, err := p.chain(level + 1)
		if err != nil {
			return nil, err
		}
		x.parts = append(x.parts, part)
	}
	if len(x.parts) == 1 {
		return first, nil
	}
	return x, nil
}

// operand parses a word, a complement, or an expression in parentheses.
func (p *parser) operand() (*Expr, error) {
	at, not := p.at, false
	for ; p.token == "!"; p.next() {
		not = !not
	}
	x, err := p.plain()
	if err == nil && not {
		x = &Expr{kind: complement, parts: []*Expr{x}, at: at}
	}
	return x, err
}

func (p *parser) plain() (*Expr, error) {
	switch p.token {
	case "":
		return nil, p.wrong("the expression ends where an address, a name or ( is expected")
	case "|", "&", "-", ")":
		return nil, p.wrong("%q where an address, a name or ( is expected", p.token)
	case "(":
		open := p.at
		if p.nested++; p.nested > maxNested {
			return nil, p.wrong("more than %d parentheses in each other", maxNested)
		}
		p.next()
		x, err := p.chain(0)
		if err != nil {
			return nil, err
		}
		if p.token != ")" {
			if p.token == "" {
				p.at = open
				return nil, p.wrong("the parenthesis that opens here is not closed")
			}
			return nil, p.wrong("%q where ) or an operator is expected", p.token)
		}
		p.nested--
		p.next()
		return x, nil
	}
	x, err := p.word(p.token)
	p.next()
	return x, err
}

// NameForm is the form of the names of tags, sets and pools.
var NameForm = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func (p *parser) word(word string) (*Expr, error) {
	x := &Expr{word: word, at: p.at}
	for _, begins := range prefixes {
		name, is := strings.CutPrefix(word, begins.text)
		if !is {
			continue
		}
		x.kind, x.name = begins.kind, name
		if x.kind == job || x.kind == node {
			if err := Pattern(name).Check(); err != nil {
				return nil, p.wrong("%s: %w", word, err)
			}
		} else if !NameForm.MatchString(name) {
			return nil, p.wrong("%q is no name: write a to z, 0 to 9, and . _ - inside of it, at most 63", word)
		}
		return x, nil
	}
	r, err := p.addresses(word)
	if err != nil {
		return nil, err
	}
	var b netipx.IPSetBuilder
	if r.IsValid() {
		b.AddRange(r)
	}
	x.kind = literal
	x.value, err = b.IPSet()
	return x, err
}

// addresses parses a range, a prefix, an address, or one of the words all4, all6 and none. none is the zero range.
func (p *parser) addresses(word string) (netipx.IPRange, error) {
	var none netipx.IPRange
	switch word {
	case "all4":
		return netipx.RangeOfPrefix(netip.PrefixFrom(netip.IPv4Unspecified(), 0)), nil
	case "all6":
		return netipx.RangeOfPrefix(netip.PrefixFrom(netip.IPv6Unspecified(), 0)), nil
	case "none":
		return none, nil
	}
	if strings.Contains(word, "/") {
		prefix, err := ParsePrefix(word)
		if err != nil && strings.Contains(word, "-") {
			return none, p.wrong("%q is no prefix: a difference has blanks around its -", word)
		} else if err != nil {
			return none, p.wrong("%w", err)
		}
		return netipx.RangeOfPrefix(prefix), nil
	}
	first, last, isRange := strings.Cut(word, "-")
	from, err := ParseAddr(first)
	if err != nil {
		return none, p.notAddress(word, err)
	}
	if !isRange {
		return netipx.IPRangeFrom(from, from), nil
	}
	to, err := ParseAddr(last)
	if err != nil {
		return none, p.notAddress(word, err)
	}
	r := netipx.IPRangeFrom(from, to)
	if !r.IsValid() {
		return none, p.wrong("the range %s ends before it starts, or mixes IPv4 and IPv6", word)
	}
	return r, nil
}

func (p *parser) notAddress(word string, err error) error {
	if NameForm.MatchString(word) && !strings.ContainsAny(word[:1], "0123456789") {
		return p.wrong("%q is no address: a set is written @%s, a tag #%s, a pool pool:%s", word, word, word, word)
	}
	return p.wrong("%w", err)
}

// ParseAddr parses an address. It converts IPv4-mapped IPv6 addresses to IPv4. Invalid: the text is not an address, or
// the address has a zone.
func ParseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return a, croft.Errorf(croft.Invalid, "%q is no address", text)
	case a.Zone() != "":
		return a, croft.Errorf(croft.Invalid,
			"%s has a zone, which means something on one machine only: leave out %%%s",
			text, a.Zone())
	}
	return a.Unmap(), nil
}

// ParsePrefix parses a prefix, with the conversion of ParseAddr. Invalid: the text is not a prefix, or has bits set
// beyond its length.
func ParsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, croft.Errorf(croft.Invalid, "%q is no prefix such as 10.0.0.0/8 or 2001:db8::/32", text)
	}
	if p.Masked() != p {
		return p, croft.Errorf(croft.Invalid, "%s has bits beyond its length: write %s, or the address alone", text,
			p.Masked())
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p, nil
}
