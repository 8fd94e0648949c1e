// Package setexpr parses, evaluates and explains expressions for sets of addresses.
//
//	#tag @set pool:web job:web/* node:syd/**      addresses with a tag, of a named set, a pool, jobs, or nodes
//	10.0.0.0/8 10.0.0.9 10.0.0.9-10.0.0.20 2001:db8::/32 all4 all6 none
//	a | b    a - b    a & b    !a    ( )          & binds over -, and - over |
//
// A set contains IPv4 and IPv6 addresses, so !10.0.0.0/8 includes all of IPv6. IPv4-mapped IPv6 addresses count as IPv4
// addresses. A # before a blank starts a comment. A - within a word is part of the word, so the operator - needs blanks
// around it.
package setexpr

import (
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// Pos is a position in the text of an expression.
type Pos struct {
	File         string // empty: the text is not from a file
	Line, Column int    // from 1; columns count bytes
}

func (p Pos) String() string {
	switch {
	case p.File != "":
		return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	case p.Line > 1:
		return fmt.Sprintf("line %d, column %d", p.Line, p.Column)
	}
	return fmt.Sprintf("column %d", p.Column)
}

// kind is the kind of an expression: an operation, or the kind of a single word.
type kind byte

const (
	union        kind = '|'
	difference   kind = '-' // the first part without all others
	intersection kind = '&'
	complement   kind = '!'
	literal      kind = '='
	tag          kind = '#'
	set          kind = '@'
	pool         kind = 'p'
	job          kind = 'j'
	node         kind = 'n'
)

// prefixes lists the prefixes of words with the kinds of names that they introduce.
var prefixes = []struct {
	text string
	kind kind
}{{"#", tag}, {"@", set}, {"pool:", pool}, {"job:", job}, {"node:", node}}

// An Expr is a parsed expression. It is immutable.
type Expr struct {
	kind  kind
	parts []*Expr       // operands of an operation
	word  string        // the word as written
	name  string        // the name of a tag, set or pool, or the pattern
	value *netipx.IPSet // addresses of a literal
	at    Pos
}

// String returns the expression on one line, with only the necessary parentheses.
func (x *Expr) String() string {
	var b strings.Builder
	x.write(&b)
	return b.String()
}

// strength returns the precedence of an operation.
func (k kind) strength() int { return 1 + strings.IndexByte("|-&!", byte(k)) }

func (x *Expr) write(b *strings.Builder) {
	switch {
	case x.parts == nil:
		b.WriteString(x.word)
		return
	case x.kind == complement:
		b.WriteByte('!')
	}
	for i, part := range x.parts {
		if i > 0 {
			b.WriteString(" " + string(rune(x.kind)) + " ")
		}
		if part.parts != nil && part.kind.strength() <= x.kind.strength() && part.kind != complement {
			b.WriteByte('(')
			part.write(b)
			b.WriteByte(')')
		} else {
			part.write(b)
		}
	}
}

// Sets lists the names of the sets that the expression itself refers to.
func (x *Expr) Sets() []string {
	if x.kind == set {
		return []string{x.name}
	}
	var names []string
	for _, part := range x.parts {
		names = append(names, part.Sets()...)
	}
	return names
}

// Prefixes returns the IPv4 and IPv6 addresses of a set, each as the smallest sorted list of prefixes that contains
// exactly these addresses.
func Prefixes(s *netipx.IPSet) (four, six []netip.Prefix) {
	for _, p := range s.Prefixes() {
		if p.Addr().Is4() {
			four = append(four, p)
		} else {
			six = append(six, p)
		}
	}
	return four, six
}

// Literal returns the addresses of an expression that is a single address, range or prefix.
func (x *Expr) Literal() (*netipx.IPSet, bool) { return x.value, x.kind == literal }
