package api_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"croft/control/api"
)

var update = flag.Bool("update", false, "write the reference in docs/api.md")

const (
	reference = "../../docs/api.md"
	begin     = "<!-- begin -->\n"
	end       = "<!-- end -->"
)

// TestTheReferenceIsTheDocument keeps docs/api.md equal to the document.
func TestTheReferenceIsTheDocument(t *testing.T) {
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), begin)
	got, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s has no place for the reference", reference)
	}
	want := written()
	if *update {
		if err := os.WriteFile(reference, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Errorf("%s is not what the document says: go test ./control/api -run %s -update", reference, t.Name())
	}
}

// object is a part of the document.
type object = map[string]any

// written is the reference in Markdown.
func written() string {
	var w strings.Builder
	tree := api.Tree()
	for _, tag := range tree["tags"].([]any) {
		name := tag.(object)["name"].(string)
		fmt.Fprintf(&w, "\n## The operations: %s\n\n%s\n", name, oneLine(tag.(object)["description"]))
		for _, o := range api.Operations() {
			if o.Tag == name {
				writeOperation(&w, tree, o)
			}
		}
	}
	w.WriteString("\n## Schemas\n")
	schemas := tree["components"].(object)["schemas"].(object)
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		fmt.Fprintf(&w, "\n### %s\n\n| field | type | what |\n|---|---|---|\n", name)
		schema := schemas[name].(object)
		fields := schema["properties"].(object)
		required, _ := schema["required"].([]any)
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			f := fields[field].(object)
			needed := ""
			if slices.Contains(required, any(field)) {
				needed = ", always"
			}
			fmt.Fprintf(&w, "| `%s` | %s%s | %s |\n", field, kindOf(f), needed, oneLine(f["description"]))
		}
	}
	return w.String() + "\n"
}

func writeOperation(w *strings.Builder, tree object, o api.Operation) {
	operation := tree["paths"].(object)[o.Path].(object)[strings.ToLower(o.Method)].(object)
	fmt.Fprintf(w, "\n### `%s %s`\n\n%s (`%s`). %s\n", o.Method, o.Path, o.Summary, o.ID,
		oneLine(operation["description"]))
	if len(o.Parameters) > 0 {
		w.WriteString("\n| parameter | in | type |\n|---|---|---|\n")
	}
	for _, p := range o.Parameters {
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", p.Name, p.In, kindOf(p.Schema))
	}
	if o.Body != "" {
		fmt.Fprintf(w, "\nBody: %s.\n", kindOf(object{"$ref": o.Body}))
	}
	answers := operation["responses"].(object)
	var statuses []string
	for _, status := range slices.Sorted(maps.Keys(answers)) {
		if status != "default" {
			statuses = append(statuses, status)
		}
	}
	fmt.Fprintf(w, "\nAnswers: %s, or a [Problem](#problem).\n", strings.Join(statuses, ", "))
}

// kindOf describes the type of a schema.
func kindOf(s object) string {
	if ref, ok := s["$ref"].(string); ok {
		name := ref[strings.LastIndex(ref, "/")+1:]
		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	}
	if words, ok := s["enum"].([]any); ok {
		var all []string
		for _, word := range words {
			all = append(all, fmt.Sprintf("`%v`", word))
		}
		return strings.Join(all, ", ")
	}
	kind, _ := s["type"].(string)
	if several, ok := s["type"].([]any); ok {
		kind = strings.ReplaceAll(strings.Trim(fmt.Sprint(several), "[]"), " ", " or ")
	}
	switch {
	case kind == "array":
		return "list of " + kindOf(s["items"].(object))
	case s["format"] != nil:
		kind += fmt.Sprintf(" (%v)", s["format"])
	case s["default"] != nil:
		kind += fmt.Sprintf(", %v by default", s["default"])
	}
	return kind
}

// oneLine joins the lines of a description.
func oneLine(description any) string {
	text, _ := description.(string)
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}
