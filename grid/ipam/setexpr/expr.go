// Package setexpr reads expressions for sets of addresses, computes them and explains them.
//
//	#tag @set pool:web job:web/* node:syd/**      what is tagged, named, of a pool, leased by jobs, or of nodes
//	10.0.0.0/8 10.0.0.9 10.0.0.9-10.0.0.20 2001:db8::/32 all4 all6 none
//	a | b    a - b    a & b    !a    ( )          & binds over -, and - over |
//
// IPv4 and IPv6 are computed side by side and never mix: !10.0.0.0/8 has all of IPv6. IPv6 addresses that stand for
// IPv4 ones are those. # and a blank begin a comment. A - within a word belongs to it, so a difference has blanks
// around it.
package setexpr

import (
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// Pos is a place in an expression.
type Pos struct {
	File         string // empty: it is in none
	Line, Column int    // from 1; columns are bytes
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

// kind says what an expression is: an operation on others, or what one word stands for.
type kind byte

const (
	union        kind = '|'
	difference   kind = '-' // of the first part and all others
	intersection kind = '&'
	complement   kind = '!'
	literal      kind = '='
	tag          kind = '#'
	set          kind = '@'
	pool         kind = 'p'
	job          kind = 'j'
	node         kind = 'n'
)

// prefixes are how words begin that name something.
var prefixes = []struct {
	text string
	kind kind
}{{"#", tag}, {"@", set}, {"pool:", pool}, {"job:", job}, {"node:", node}}

// An Expr is an expression that was read. It is not changed any more.
type Expr struct {
	kind  kind
	parts []*Expr       // of an operation
	word  string        // as it was written
	name  string        // of a tag, set or pool, or a pattern
	value *netipx.IPSet // of a literal
	at    Pos
}

// String is the expression in one line, with the parentheses that it needs.
func (x *Expr) String() string {
	var b strings.Builder
	x.write(&b)
	return b.String()
}

// strength orders the operations by how they bind.
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

// Sets lists the names of the sets that the expression itself mentions.
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

// Prefixes are the two families of a set, each as the fewest prefixes that have exactly its addresses, in order.
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

// Literal returns the addresses of an expression that is one address, range or prefix.
func (x *Expr) Literal() (*netipx.IPSet, bool) { return x.value, x.kind == literal }
