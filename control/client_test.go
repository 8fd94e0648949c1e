package control_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/format"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"croft/control"
)

var update = flag.Bool("update", false, "write the files that are made from the table of operations")

// TestTheClientIsMadeFromTheTable keeps the methods of the client equal to the table of operations.
func TestTheClientIsMadeFromTheTable(t *testing.T) {
	t.Parallel()
	const file = "../client/operations.go"
	want := clientOf(t, control.Operations())
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not made from the table: go test ./control -run %s -update (%v)", file, t.Name(), err)
	}
}

// clientOf returns the source of the methods of the client.
func clientOf(t *testing.T, all []control.Operation) []byte {
	t.Helper()
	packages := map[string]string{"context": "context"} // names by path
	var methods strings.Builder
	for _, o := range all {
		if o.Out == nil || o.Takes != "" { // written by hand
			continue
		}
		in, given, input := "", "nil", ""
		if o.In.NumField() > 0 {
			input = typeName(o.In, packages)
			in, given = ", in "+input, "in"
		}
		if o.Entry != nil {
			in, given = in+", which ...api.Listing", "listed{"+given+", which}"
		}
		name := strings.ToUpper(o.ID[:1]) + o.ID[1:]
		answers, calls := "error", "c.do(ctx"
		if o.Out.Name() != "nothing" {
			out := typeName(o.Out, packages)
			answers, calls = "("+out+", error)", "call["+out+"](ctx, c"
		}
		signature := fmt.Sprintf("func (c *Client) %s(ctx context.Context%s) %s {", name, in, answers)
		if len(signature) > 120 {
			signature = strings.Replace(signature, ", in ", ",\n\tin ", 1)
		}
		fmt.Fprintf(&methods, "\n// %s: %s.\n%s\n\treturn %s, %q, %s)\n}\n", name, o.Summary, signature, calls, o.At,
			given)
	}
	text := "// Code generated from the table of operations by TestTheClientIsMadeFromTheTable. DO NOT EDIT.\n\npackage client\n\n" +
		"import (\n"
	for _, at := range slices.Sorted(maps.Keys(packages)) {
		name := packages[at]
		if name == path.Base(at) {
			name = ""
		}
		text += fmt.Sprintf("\t%s %q\n", name, at)
	}
	source, err := format.Source([]byte(text + ")\n" + methods.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, text+")\n"+methods.String())
	}
	return source
}

// typeName returns the name of a type in the client's source, and adds its package to packages.
func typeName(of reflect.Type, packages map[string]string) string {
	switch {
	case of.Kind() == reflect.Pointer:
		return "*" + typeName(of.Elem(), packages)
	case of.Kind() == reflect.Slice && of.Name() == "":
		return "[]" + typeName(of.Elem(), packages)
	case of.PkgPath() == "":
		return of.String()
	}
	name := packages[of.PkgPath()]
	if name == "" {
		name, _, _ = strings.Cut(of.String(), ".")
		if name == "api" && of.PkgPath() == "croft/pool/api" {
			name = "pools"
		}
		packages[of.PkgPath()] = cmp.Or(name, path.Base(of.PkgPath()))
	}
	return name + "." + of.Name()
}
