package croft_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Limits on what a reader can keep in mind at once. Tests are ignored.
const (
	maxRoomLines = 5000
	maxMethods   = 40
	maxCircle    = 3 // files of a package that all lead to each other
)

// largeTypes may have more than maxMethods methods, for the given reason.
var largeTypes = map[string]string{}

// longCircles may have circles of more than maxCircle files, for the given reason.
var longCircles = map[string]string{}

func TestRoomsAreSmall(t *testing.T) {
	for _, p := range packages(t) {
		lines := 0
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(text, []byte("\n"))
		}
		if lines > maxRoomLines {
			t.Errorf("%s has %d lines without tests, more than %d: move a job of its own into a room of its own",
				p.ImportPath, lines, maxRoomLines)
		}
	}
}

// TestTypesAreSmall counts methods declared on a type, not those of embedded types.
func TestTypesAreSmall(t *testing.T) {
	large := map[string]bool{}
	for _, p := range packages(t) {
		fset := token.NewFileSet()
		for name, methods := range methodsOfTypes(parseFiles(t, fset, p)) {
			name = p.ImportPath + "." + name
			if methods <= maxMethods {
				continue
			}
			large[name] = true
			if largeTypes[name] == "" {
				t.Errorf("%s has %d methods, more than %d: divide it by its jobs", name, methods, maxMethods)
			}
		}
	}
	checkExceptions(t, "largeTypes", largeTypes, large)
}

func methodsOfTypes(files []*ast.File) map[string]int {
	methods := map[string]int{}
	for _, file := range files {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			receiver := f.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			if generic, ok := receiver.(*ast.IndexExpr); ok {
				receiver = generic.X
			}
			methods[types.ExprString(receiver)]++
		}
	}
	return methods
}

// TestCirclesOfFilesAreShort draws an arrow from each file of a package to the files that declare its
// package-level references: functions, types, variables, constants. If the files were packages, these would be
// their imports. So a method call is no arrow, and a method declaration is an arrow to the file of its type.
func TestCirclesOfFilesAreShort(t *testing.T) {
	exports := importer.ForCompiler(token.NewFileSet(), "gc", exportData(t))
	long := map[string]bool{}
	for _, p := range packages(t) {
		fset := token.NewFileSet()
		for _, circle := range circles(arrows(fset, exports, p.ImportPath, parseFiles(t, fset, p))) {
			if len(circle) <= maxCircle {
				continue
			}
			long[p.ImportPath] = true
			if longCircles[p.ImportPath] == "" {
				t.Errorf("%s: from each of these %d files all others can be reached: %s", p.ImportPath, len(circle),
					strings.Join(circle, " "))
			}
		}
	}
	checkExceptions(t, "longCircles", longCircles, long)
}

func checkExceptions(t *testing.T, list string, exceptions map[string]string, needed map[string]bool) {
	t.Helper()
	for name := range exceptions {
		if !needed[name] {
			t.Errorf("%s has %s, which needs it no more: take it out", list, name)
		}
	}
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

// exportData finds the compiler's export data of an imported package.
func exportData(t *testing.T) func(path string) (io.ReadCloser, error) {
	t.Helper()
	out, err := exec.Command("go", "list", "-tags", "libvirt_dlopen", "-export", "-deps",
		"-f", "{{.ImportPath}} {{.Export}}", "./...").Output()
	if err != nil {
		t.Fatalf("go list -export: %v", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		pkg, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[pkg] = file
	}
	return func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(files[path])
	}
}

// arrows maps each file of a package to the other files that declare what it uses.
func arrows(fset *token.FileSet, from types.Importer, path string, files []*ast.File) map[string]map[string]bool {
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: from, Error: func(error) {}} // files with cgo cannot be checked completely
	pkg, _ := config.Check(path, fset, files, &info)
	fileOf := func(at token.Pos) string { return filepath.Base(fset.Position(at).Filename) }
	to := map[string]map[string]bool{}
	for _, file := range files {
		to[fileOf(file.Pos())] = map[string]bool{}
	}
	for used, object := range info.Uses {
		if object.Parent() != pkg.Scope() {
			continue
		}
		if user, declared := fileOf(used.Pos()), fileOf(object.Pos()); user != declared {
			to[user][declared] = true
		}
	}
	return to
}

// circles lists the strongly connected sets of more than one file, each sorted.
func circles(to map[string]map[string]bool) [][]string {
	reach := map[string]map[string]bool{}
	for file := range to {
		seen := map[string]bool{}
		for next := slices.Collect(maps.Keys(to[file])); len(next) > 0; {
			at := next[len(next)-1]
			next = next[:len(next)-1]
			if !seen[at] {
				seen[at] = true
				next = slices.AppendSeq(next, maps.Keys(to[at]))
			}
		}
		reach[file] = seen
	}
	var found [][]string
	for _, file := range slices.Sorted(maps.Keys(to)) {
		var circle []string
		for other := range reach[file] {
			if reach[other][file] {
				circle = append(circle, other)
			}
		}
		slices.Sort(circle)
		if len(circle) > 1 && circle[0] == file {
			found = append(found, circle)
		}
	}
	return found
}

func TestShapes(t *testing.T) {
	fset := token.NewFileSet()
	var files []*ast.File
	for name, text := range map[string]string{
		"a.go": "package p\n func (b *B) FromA() { C() }\n func (b *B) last() {}",
		"b.go": "package p\n type B struct{}\n func (b B) One() { E() }",
		"c.go": "package p\n func C() { var b B; b.last(); d() }",
		"e.go": "package p\n func E() { var b B; b.FromA(); b.One() }",
		"d.go": "package p\n func d() {}\n type G[T any] struct{}\n func (g *G[T]) M() {}",
	} {
		file, err := parser.ParseFile(fset, name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if got, want := methodsOfTypes(files), map[string]int{"B": 3, "G": 1}; !maps.Equal(got, want) {
		t.Errorf("the methods are %v, want %v", got, want)
	}
	got := circles(arrows(fset, nil, "p", files))
	if len(got) != 1 || !slices.Equal(got[0], []string{"b.go", "e.go"}) {
		t.Errorf("the circles are %v, want b and e, which name each other", got)
	}
}
