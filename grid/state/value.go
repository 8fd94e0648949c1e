package state

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"croft"
	"croft/internal/plain"
)

// A Position is a place in the files. The zero Position stands for a default, which no file contains.
type Position struct {
	File string // relative to the cluster's directory, with slashes
	Line int    // 1 or more; 0: the file as a whole
}

// String returns file:line.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// Problem is a mistake or an oddity in the files.
type Problem struct {
	At   Position
	Text string
}

// String returns the problem in one line, even if names and values in it contain line breaks.
func (p Problem) String() string { return plain.Line(p.At.String() + ": " + p.Text) }

// Error implements error: the errors of Load consist of problems.
func (p Problem) Error() string { return p.String() }

// Kind is the type of a value.
type Kind int

// The kinds of values.
const (
	Null Kind = iota
	Bool
	Int
	Float
	String
	List
	Map
	Anything // a value that is not known before the slot has a node
)

var kinds = map[Kind]string{Null: "nothing", Bool: "true or false", Int: "a whole number", Float: "a number",
	String: "a text", List: "a list", Map: "a map", Anything: "anything"}

// String returns the kind's name in messages.
func (k Kind) String() string { return kinds[k] }

// Value is a value in a file, with its position. Values are shared and do not change.
type Value struct {
	Kind  Kind
	Text  string // a scalar's text, as written
	Plain bool   // the scalar has no quotes
	// Parts are the pieces of a text that contains sealed values, in order; Text is the whole text, still sealed.
	Parts  []*Value
	Items  []*Value
	Keys   []string // the keys of a map, in the order of the files
	Fields map[string]*Value
	At     Position
}

// Get returns the value at a path of keys and list indexes, such as var, colour; nil: there is none.
func (v *Value) Get(path ...string) *Value {
	for _, key := range path {
		if v == nil {
			return nil
		}
		switch v.Kind {
		case Map:
			v = v.Fields[key]
		case List:
			n, err := strconv.Atoi(key)
			if err != nil || n < 0 || n >= len(v.Items) {
				return nil
			}
			v = v.Items[n]
		default:
			return nil
		}
	}
	return v
}

// set adds a key to a map that is being built.
func (v *Value) set(key string, to *Value) {
	if _, there := v.Fields[key]; !there {
		v.Keys = append(v.Keys, key)
	}
	v.Fields[key] = to
}

func newMap(at Position, room int) *Value {
	return &Value{Kind: Map, At: at, Fields: make(map[string]*Value, room), Keys: make([]string, 0, room)}
}

// problems collects the problems of one Load.
type problems struct{ list []Problem }

func (p *problems) add(at Position, format string, args ...any) {
	p.list = append(p.list, Problem{at, fmt.Sprintf(format, args...)})
}

// maxProblems is the largest number of problems that are reported.
const maxProblems = 100

// err returns all problems as one Invalid error, sorted by file and line; nil: there are none.
func (p *problems) err() error {
	slices.SortStableFunc(p.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.At.File, b.At.File), cmp.Compare(a.At.Line, b.At.Line))
	})
	told := map[Problem]bool{} // a problem that several inherit is reported once
	p.list = slices.DeleteFunc(p.list, func(one Problem) bool {
		before := told[one]
		told[one] = true
		return before
	})
	var all []error
	for i, one := range p.list {
		if i == maxProblems {
			all = append(all, croft.Errorf(croft.Invalid, "and %d more mistakes", len(p.list)-i))
			break
		}
		all = append(all, croft.Errorf(croft.Invalid, "%w", one))
	}
	return errors.Join(all...)
}
