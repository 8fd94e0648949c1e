package state

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Limits of the expansion of ${...}.
const (
	maxExpansions = 8       // nested expansions of one value
	maxExpanded   = 4 << 20 // bytes that expansions add to the texts of a file
	maxExpandedTo = 20_000  // values that the texts of a file expand to
)

// scope maps the names in ${...} to values.
type scope struct {
	ofNode bool              // the scope of a node's file, not of a job's
	names  map[string]*Value // name, instance, slot, ip, node
	own    *Value            // the job's or node's own values
	// later: there is no slot yet, so names that only a slot has expand to Anything.
	later bool

	address string // the slot's own address, if its job asks for one
	pooled  bool   // the address is from a pool
}

// slotNames are the names that are known only for a slot of a job.
var slotNames = map[string]bool{"slot": true, "ip": true, "node": true}

// text returns a text value.
func text(s string) *Value { return &Value{Kind: String, Text: s} }

// guessed returns the value of a default: a number or a truth value if the text looks like one, otherwise a text.
func guessed(s string) *Value {
	if n, err := strconv.Atoi(s); err == nil && strconv.Itoa(n) == s {
		return &Value{Kind: Int, Text: s}
	}
	if s == "true" || s == "false" {
		return &Value{Kind: Bool, Text: s}
	}
	return text(s)
}

// lookup returns the value of a name; nil: the name is unknown.
func (s *scope) lookup(name string) *Value {
	first, rest, _ := strings.Cut(name, ".")
	if v := s.names[first]; v != nil {
		if rest == "" {
			if v.Kind == Map {
				return v.Fields["name"]
			}
			return v
		}
		return v.Get(strings.Split(rest, ".")...)
	}
	if s.later && slotNames[first] {
		return &Value{Kind: Anything}
	}
	return s.own.Get(strings.Split(name, ".")...)
}

// expanding is the expansion of one value.
type expanding struct {
	s     *scope
	at    Position // the position of the value that is expanded
	stack []string // the names on the way to the current one, to detect cycles
	size  int
	count int
}

// expand replaces ${...} in all texts of a value. Sealed texts are not changed.
func (s *scope) expand(v *Value) (*Value, *Problem) {
	e := expanding{s: s}
	out, err := e.value(v)
	if err != nil {
		return nil, &Problem{e.at, err.Error()}
	}
	return out, nil
}

func (e *expanding) value(v *Value) (*Value, error) {
	if len(e.stack) > 0 {
		if e.count++; e.count > maxExpandedTo {
			return nil, fmt.Errorf("the file's ${...} become more than %d values", maxExpandedTo)
		}
	}
	switch v.Kind {
	case String:
		if len(e.stack) == 0 {
			e.at = v.At
		}
		return e.scalar(v)
	case List:
		out := *v
		out.Items = make([]*Value, len(v.Items))
		for i, item := range v.Items {
			var err error
			if out.Items[i], err = e.value(item); err != nil {
				return nil, err
			}
		}
		return &out, nil
	case Map:
		out := newMap(v.At, len(v.Keys))
		for _, key := range v.Keys {
			item, err := e.value(v.Fields[key])
			if err != nil {
				return nil, err
			}
			out.set(key, item)
		}
		return out, nil
	}
	return v, nil
}

// sealed is the prefix of a sealed value.
const sealed = "age:"

// Sealed reports whether a value is a sealed value, or a text that contains some.
func (v *Value) Sealed() bool {
	return v != nil && v.Kind == String && (len(v.Parts) > 0 || strings.HasPrefix(v.Text, sealed))
}

func (e *expanding) scalar(v *Value) (*Value, error) {
	if !strings.Contains(v.Text, "$") || v.Sealed() {
		return v, nil
	}
	if strings.HasPrefix(v.Text, "${") {
		if end := closing(v.Text); end == len(v.Text)-1 {
			found, err := e.name(v.Text[2:end])
			if err != nil {
				return nil, err
			}
			kept := *found
			kept.At, kept.Plain = v.At, false
			return &kept, nil
		}
	}
	var b strings.Builder // text since the last sealed value
	var parts []*Value    // the parts before b, if there are sealed values
	for rest := v.Text; rest != ""; {
		at := strings.IndexByte(rest, '$')
		if at < 0 || at == len(rest)-1 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:at])
		rest = rest[at:]
		switch rest[1] {
		case '$':
			b.WriteByte('$')
			rest = rest[2:]
			continue
		case '{':
		default: // a plain dollar sign, such as a shell's $HOME
			b.WriteByte('$')
			rest = rest[1:]
			continue
		}
		end := closing(rest)
		if end < 0 {
			return nil, fmt.Errorf("${ has no end: write $${ for the text itself")
		}
		found, err := e.name(rest[2:end])
		if err != nil {
			return nil, err
		}
		switch {
		case found.Sealed():
			if e.size += len(found.Text); e.size > maxExpanded {
				return nil, fmt.Errorf("the file's ${...} become more than %d bytes", maxExpanded)
			}
			parts = append(parts, found.pieces(b.String())...)
			b.Reset()
			rest = rest[end+1:]
			continue
		case found.Kind == Map || found.Kind == List:
			return nil, fmt.Errorf("${%s} is %s, which has no place inside of a text", rest[2:end], found.Kind)
		case found.Kind == Anything:
			return found, nil
		}
		if e.size += len(found.Text); e.size > maxExpanded {
			return nil, fmt.Errorf("the file's ${...} become more than %d bytes", maxExpanded)
		}
		said := found.Text
		before := b.String()
		for _, part := range slices.Backward(parts) {
			before = part.Text + before
		}
		if rest[2:end] == "ip" && ofURL(before, rest[end+1:]) && isIPv6(said) {
			said = "[" + said + "]"
		}
		b.WriteString(said)
		rest = rest[end+1:]
	}
	out := *v
	out.Text, out.Plain = b.String(), false
	if len(parts) > 0 {
		out.Parts = append(parts, text(b.String()))
		out.Text = ""
		for _, part := range out.Parts {
			out.Text += part.Text
		}
	}
	return &out, nil
}

// pieces returns the text before, followed by the parts of a value that is sealed or contains sealed values.
func (v *Value) pieces(before string) []*Value {
	if len(v.Parts) == 0 {
		return []*Value{text(before), v}
	}
	return append([]*Value{text(before)}, v.Parts...)
}

// ofURL reports whether an address between two texts is the host of a URL or is followed by a port: ${ip}:80, //${ip}/,
// //user@${ip}/.
func ofURL(before, after string) bool {
	return !strings.HasSuffix(before, "[") && (strings.HasPrefix(after, ":") || strings.HasSuffix(before, "//") ||
		strings.HasSuffix(before, "@") && strings.Contains(before, "//"))
}

func isIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6()
}

// closing returns the index of the brace that closes the opening brace at the start of s; -1: it is not closed.
func closing(s string) int {
	depth := 0
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '{' && (s[i-1] == '$'):
			depth++
		case s[i] == '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// name expands what stands inside ${...}: the value of a name, or its default.
func (e *expanding) name(inside string) (*Value, error) {
	name, otherwise, hasDefault := strings.Cut(inside, ":-")
	if name == "" || strings.ContainsAny(name, " \t\n${}") {
		return nil, fmt.Errorf("${%s}: %q is no name", inside, name)
	}
	for _, before := range e.stack {
		if before == name {
			return nil, fmt.Errorf("${%s} refers to itself: %s", name, strings.Join(append(e.stack, name), " -> "))
		}
	}
	if len(e.stack) == maxExpansions {
		return nil, fmt.Errorf("${%s}: more than %d values lead to each other: %s", name, maxExpansions,
			strings.Join(append(e.stack, name), " -> "))
	}
	found := e.s.lookup(name)
	if found == nil || found.Kind == Null || found.Kind == String && found.Text == "" && hasDefault {
		if !hasDefault {
			return nil, e.unknown(name)
		}
		found = guessed(otherwise)
	}
	e.stack = append(e.stack, name)
	out, err := e.value(found)
	e.stack = e.stack[:len(e.stack)-1]
	return out, err
}

func (e *expanding) unknown(name string) error {
	first, _, _ := strings.Cut(name, ".")
	switch {
	case slotNames[first] && e.s.names[first] == nil && e.s.ofNode:
		return fmt.Errorf("${%s} is for jobs; the name of the node is ${name} here, and its other values are ${address} "+
			"and so on", name)
	case slotNames[first] && e.s.names[first] == nil:
		return fmt.Errorf("${%s} is known for a slot alone, and this is the same for all slots of the job", name)
	case first == "instance":
		return fmt.Errorf("${instance}: this is no instance of a template")
	}
	return fmt.Errorf("${%s} is not known; write ${%s:-...} for a default, or $${%s} for the text itself", name, name,
		name)
}
