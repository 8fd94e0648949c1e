package croft_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const maxWords = 30

// glossaryRow finds a word and its meaning in the table of docs/ARCHITECTURE.md.
var glossaryRow = regexp.MustCompile(`(?m)^\| \*\*(.+?)\*\* \| (.+) \|$`)

// TestAWordMeansOneThing allows a word of the glossary as the name of at most one type or package. Packages
// that only tests import are ignored.
func TestAWordMeansOneThing(t *testing.T) {
	rows := glossaryRow.FindAllStringSubmatch(read(t, "docs/ARCHITECTURE.md"), -1)
	if len(rows) < 20 || len(rows) > maxWords {
		t.Errorf("the glossary has %d words, want 20 to %d", len(rows), maxWords)
	}
	var words []string
	for _, row := range rows {
		words = append(words, row[1])
	}
	if !slices.IsSorted(words) {
		t.Errorf("the words of the glossary are not in order: %q", words)
	}
	names := namesOfTypes(t)
	for _, word := range words {
		if users := names[strings.ToLower(strings.ReplaceAll(word, " ", ""))]; len(users) > 1 {
			t.Errorf("%s is the name of %s: a word of the glossary means one thing", word, strings.Join(users, ", "))
		}
	}
}

// namesOfTypes maps each name in lower case to the packages with that name, and to the package-level types.
func namesOfTypes(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	for _, p := range packages(t) {
		if matchAny(testHelpers, p.ImportPath) {
			continue
		}
		base := path.Base(p.ImportPath)
		names[base] = append(names[base], "the package "+p.ImportPath)
		for _, file := range parseFiles(t, token.NewFileSet(), p) {
			for _, d := range file.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok || g.Tok != token.TYPE {
					continue
				}
				for _, spec := range g.Specs {
					name := spec.(*ast.TypeSpec).Name.Name
					lower := strings.ToLower(name)
					names[lower] = append(names[lower], p.ImportPath+"."+name)
				}
			}
		}
	}
	return names
}

func parseFiles(t *testing.T, fset *token.FileSet, p goPackage) []*ast.File {
	t.Helper()
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}
