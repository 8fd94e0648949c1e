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

// A Position is where in the files something was said. The zero Position is nowhere: a default.
type Position struct {
	File string // below the cluster's directory, with slashes
	Line int    // from 1; 0: the file as a whole
}

// String returns file:line.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// Problem is something wrong, or odd, in the files.
type Problem struct {
	At   Position
	Text string
}

// String is one line, whatever names and values of the files are in it.
func (p Problem) String() string { return plain.Line(p.At.String() + ": " + p.Text) }

// Error implements error: a problem is a part of the errors of Load.
func (p Problem) Error() string { return p.String() }

// Kind is what a value is.
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
	Anything // of what is known only when the slot has a node
)

var kinds = map[Kind]string{Null: "nothing", Bool: "true or false", Int: "a whole number", Float: "a number",
	String: "a text", List: "a list", Map: "a map", Anything: "anything"}

// String returns the kind as people say it.
func (k Kind) String() string { return kinds[k] }

// Value is what a file says, with the place where it does. Values are shared and do not change.
type Value struct {
	Kind  Kind
	Text  string // of a scalar, as written
	Plain bool   // a scalar without quotes
	// Parts are the pieces of a text with secrets inside, in their order; Text is all of them, sealed.
	Parts  []*Value
	Items  []*Value
	Keys   []string // of a map, in the order of the files
	Fields map[string]*Value
	At     Position
}

// Get returns the value at a path of keys and numbers of items, such as var, colour; nil: there is none.
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

// set is for maps that are being made.
func (v *Value) set(key string, to *Value) {
	if _, there := v.Fields[key]; !there {
		v.Keys = append(v.Keys, key)
	}
	v.Fields[key] = to
}

func newMap(at Position, room int) *Value {
	return &Value{Kind: Map, At: at, Fields: make(map[string]*Value, room), Keys: make([]string, 0, room)}
}

// problems collects what is wrong.
type problems struct{ list []Problem }

func (p *problems) add(at Position, format string, args ...any) {
	p.list = append(p.list, Problem{at, fmt.Sprintf(format, args...)})
}

// maxProblems are told of a directory.
const maxProblems = 100

// err returns everything that is wrong as one error, by file and line; nil: nothing is. Invalid.
func (p *problems) err() error {
	slices.SortStableFunc(p.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.At.File, b.At.File), cmp.Compare(a.At.Line, b.At.Line))
	})
	told := map[Problem]bool{} // what several inherit is told once
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
