// Package policy is a language of four instructions for where replicas go: use, select, take and emit. Each take
// becomes its own CRUSH rule, so that crushtool can check it.
//
//	use B         start at bucket B
//	select n T    below each current bucket, choose n distinct buckets of type T
//	take n        below each current bucket, choose n distinct devices
//	emit          return the chosen devices, and start at the root again
//
// n = 0 means as many as are still wanted, and -k means k fewer than are wanted. A final emit is implied. Instructions
// are separated by semicolons or newlines; # starts a comment.
package policy

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"croft/crush"
)

// Limits of a policy.
const (
	maxText         = 16 << 10
	maxInstructions = 64
	maxCount        = 1 << 10
	maxPasses       = 16
)

// Op is the operation of an instruction; the values are used in the binary form.
type Op byte

// The instructions.
const (
	Use Op = iota + 1
	Select
	Take
	Emit
)

var words = map[string]Op{"use": Use, "select": Select, "take": Take, "emit": Emit}

// String implements fmt.Stringer.
func (op Op) String() string {
	for word, one := range words {
		if one == op {
			return word
		}
	}
	return "instruction " + strconv.Itoa(int(op))
}

// Instruction is one step of a policy.
type Instruction struct {
	Op   Op
	N    int    // of select and take
	Name string // the bucket of use, the type of select
	Line int    // line number in the source text, from 1
}

// String returns the instruction as text.
func (i Instruction) String() string {
	switch i.Op {
	case Use:
		return "use " + i.Name
	case Select:
		return fmt.Sprintf("select %d %s", i.N, i.Name)
	case Take:
		return fmt.Sprintf("take %d", i.N)
	}
	return i.Op.String()
}

// Policy is a list of instructions that ends with emit.
type Policy []Instruction

// String returns the policy as text, one instruction per line.
func (p Policy) String() string {
	var b strings.Builder
	for _, i := range p {
		b.WriteString(i.String() + "\n")
	}
	return b.String()
}

// Parse parses a policy. The error names the line. Before each emit there must be a take, so that the policy can place
// something.
func Parse(text string) (Policy, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("the policy is longer than %d KiB", maxText>>10)
	}
	var p Policy
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		for _, one := range strings.Split(line, ";") {
			fields := strings.Fields(one)
			if len(fields) == 0 {
				continue
			}
			i, err := parse(fields)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
			i.Line = n + 1
			p = append(p, i)
		}
	}
	if len(p) > 0 && p[len(p)-1].Op != Emit {
		p = append(p, Instruction{Op: Emit, Line: p[len(p)-1].Line})
	}
	return p, p.check()
}

func parse(fields []string) (i Instruction, err error) {
	forms := map[Op]string{Use: "use BUCKET", Select: "select N TYPE", Take: "take N", Emit: "emit"}
	i.Op = words[fields[0]]
	form, known := forms[i.Op]
	if !known {
		return i, fmt.Errorf("%q is none of use, select, take and emit", fields[0])
	}
	if len(fields) != len(strings.Fields(form)) {
		return i, fmt.Errorf("%q: write it as %s", strings.Join(fields, " "), form)
	}
	if i.Op == Use {
		i.Name = fields[1]
	}
	if i.Op == Select {
		i.Name = fields[2]
	}
	if i.Op == Select || i.Op == Take {
		if i.N, err = strconv.Atoi(fields[1]); err != nil || i.N > maxCount || i.N < -maxCount {
			return i, fmt.Errorf("%s: %q is no number from %d to %d", fields[0], fields[1], -maxCount, maxCount)
		}
	}
	return i, nil
}

// check validates the order of the instructions.
func (p Policy) check() error {
	if len(p) == 0 {
		return fmt.Errorf("the policy has no instructions")
	}
	if len(p) > maxInstructions {
		return fmt.Errorf("the policy has %d instructions, and %d are allowed", len(p), maxInstructions)
	}
	taken := false
	for _, i := range p {
		switch i.Op {
		case Take:
			taken = true
		case Emit:
			if !taken {
				return fmt.Errorf("line %d: there is no take before this emit, so it hands out nothing", i.Line)
			}
			taken = false
		}
	}
	return nil
}

// Encode returns the binary form, which has numbers for buckets and types and stays valid when they are renamed.
// Unknown names are errors.
func (p Policy) Encode(m *crush.Map) ([]byte, error) {
	names := newNames(m)
	var b []byte
	for _, i := range p {
		b = append(b, byte(i.Op))
		switch i.Op {
		case Use:
			id, err := names.bucket(i)
			if err != nil {
				return nil, err
			}
			b = binary.AppendVarint(b, int64(id))
		case Select:
			kind, err := names.kind(i)
			if err != nil {
				return nil, err
			}
			b = binary.AppendVarint(binary.AppendVarint(b, int64(i.N)), int64(kind))
		case Take:
			b = binary.AppendVarint(b, int64(i.N))
		}
	}
	return b, nil
}

// Decode parses the binary form.
func Decode(code []byte, m *crush.Map) (Policy, error) {
	names := newNames(m)
	var p Policy
	number := func() (int, error) {
		n, size := binary.Varint(code)
		if size <= 0 || n > 1<<31 || n < -1<<31 {
			return 0, fmt.Errorf("the code of instruction %d is cut off, or no code", len(p)+1)
		}
		code = code[size:]
		return int(n), nil
	}
	for len(code) > 0 && len(p) <= maxInstructions {
		i := Instruction{Op: Op(code[0]), Line: len(p) + 1}
		code = code[1:]
		var n int
		var err error
		switch i.Op {
		case Use:
			if n, err = number(); err == nil {
				i.Name, err = names.nameOf(crush.ID(n))
			}
		case Select:
			if i.N, err = number(); err == nil {
				if n, err = number(); err == nil {
					i.Name, err = names.nameOfKind(crush.Type(n))
				}
			}
		case Take:
			i.N, err = number()
		case Emit:
		default:
			err = fmt.Errorf("there is no instruction of the code %d", i.Op)
		}
		if err == nil && (i.N > maxCount || i.N < -maxCount) {
			err = fmt.Errorf("instruction %d: %d is no number from %d to %d", i.Line, i.N, -maxCount, maxCount)
		}
		if err != nil {
			return nil, err
		}
		p = append(p, i)
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	if p[len(p)-1].Op != Emit {
		return nil, fmt.Errorf("the code does not end with emit")
	}
	return p, nil
}

// names indexes the buckets and types of a map.
type names struct {
	m       *crush.Map
	buckets map[string]*crush.Bucket
	kinds   map[string]crush.Type
}

func newNames(m *crush.Map) names {
	n := names{m, map[string]*crush.Bucket{}, map[string]crush.Type{}}
	for i := range m.Buckets {
		n.buckets[m.Buckets[i].Name] = &m.Buckets[i]
	}
	for _, t := range m.Types {
		n.kinds[t.Name] = t.Type
	}
	return n
}

func (n names) bucket(i Instruction) (crush.ID, error) {
	if b := n.buckets[i.Name]; b != nil {
		return b.ID, nil
	}
	return 0, fmt.Errorf("line %d: there is no bucket %q to use", i.Line, i.Name)
}

func (n names) kind(i Instruction) (crush.Type, error) {
	kind, ok := n.kinds[i.Name]
	switch {
	case !ok:
		return 0, fmt.Errorf("line %d: there is no type %q to select", i.Line, i.Name)
	case kind == 0:
		return 0, fmt.Errorf("line %d: %q is the type of devices; take them", i.Line, i.Name)
	}
	return kind, nil
}

func (n names) nameOf(id crush.ID) (string, error) {
	if b := n.m.Bucket(id); b != nil {
		return b.Name, nil
	}
	return "", fmt.Errorf("there is no bucket %d to use", id)
}

func (n names) nameOfKind(kind crush.Type) (string, error) {
	at := slices.IndexFunc(n.m.Types, func(t crush.TypeName) bool { return t.Type == kind && kind != 0 })
	if at < 0 {
		return "", fmt.Errorf("there is no type %d to select", kind)
	}
	return n.m.Types[at].Name, nil
}
