package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"croft/placement/internal/pyjson"
)

// Error says what is wrong with a value and by which part of which schema.
type Error struct {
	message    string
	keyword    string
	schema     *pyjson.Object
	instance   any
	typed      bool  // the instance is of the schema's type
	path       []any // from the whole value to instance
	schemaPath []any
	context    []*Error // of anyOf: why each option failed
}

func failure(format string, args ...any) *Error {
	return &Error{message: fmt.Sprintf(format, args...)}
}

// Error gives the message, the schema and the value, as long as they may be.
func (e *Error) Error() string {
	place := e.schemaPath[:max(len(e.schemaPath)-1, 0)]
	return fmt.Sprintf("%s\n\nFailed validating %s in %s:\n    %s\n\nOn %s:\n    %s",
		e.message, pyjson.Repr(e.keyword), indexed("schema", place), shown(e.schema),
		indexed("instance", e.path), shown(e.instance))
}

func shown(v any) string {
	return strings.ReplaceAll(pyjson.Pretty(v, 72), "\n", "\n    ")
}

func indexed(container string, path []any) string {
	for _, p := range path {
		container += "[" + pyjson.Repr(p) + "]"
	}
	return container
}

// compare tells which of two errors says more: the one higher up in the value,
// then one that is not anyOf's, then one about a value of the wrong type.
func compare(a, b *Error) int {
	return cmp.Or(
		cmp.Compare(len(b.path), len(a.path)),
		compareBool(a.keyword != "anyOf", b.keyword != "anyOf"),
		compareBool(!a.typed, !b.typed),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// bestMatch chooses the error to show: the first of those that say most; of
// anyOf's, the one that got furthest, where one did.
func bestMatch(errs []*Error) *Error {
	if len(errs) == 0 {
		return nil
	}
	best := errs[0]
	for _, e := range errs[1:] {
		if compare(e, best) > 0 {
			best = e
		}
	}
	for len(best.context) > 0 {
		sorted := slices.SortedStableFunc(slices.Values(best.context), compare)
		if len(sorted) > 1 && compare(sorted[0], sorted[1]) == 0 {
			return best
		}
		best = sorted[0]
	}
	return best
}
