package croft_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// withoutSentences lists the packages whose output only programs and the developers of croft read.
var withoutSentences = []string{"croft/bench/", "croft/test/", "croft/internal/testing/", "croft/internal/wording",
	"croft/pool/api"}

// raceEnabled reports whether the tests are built with the race detector.
var raceEnabled bool

// writesDurations lists the functions that may get an unformatted time.Duration: they write logs, which programs read.
var writesDurations = []string{"log/slog.", "(*log/slog."}

// Every duration in a sentence has passed through wording.Duration. fmt writes 10 days as 240h0m0s, which people cannot
// read easily and which differs from the form that the options of croft accept and print.
func TestNoSentenceHasADurationInGosNotation(t *testing.T) {
	fset := token.NewFileSet()
	for _, p := range typed(t, fset) {
		if strings.HasSuffix(p.path, "test") || slices.ContainsFunc(withoutSentences, func(prefix string) bool {
			return strings.HasPrefix(p.path, prefix)
		}) {
			continue
		}
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				for _, at := range rawDurations(p.info, call) {
					t.Errorf("%s: write the duration with wording.Duration, for programs with wording.ForPrograms",
						fset.Position(at))
				}
				return true
			})
		}
	}
}

// rawDurations returns the positions of the durations that a call writes in Go's notation: the receiver of String, and
// every argument that is passed as an interface.
func rawDurations(info *types.Info, call *ast.CallExpr) []token.Pos {
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "String" && isDuration(info.TypeOf(sel.X)) {
		return []token.Pos{call.Pos()}
	}
	signature, ok := types.Unalias(info.TypeOf(call.Fun)).Underlying().(*types.Signature)
	if !ok || call.Ellipsis.IsValid() || mayHaveDurations(info, call) {
		return nil
	}
	var at []token.Pos
	for i, arg := range call.Args {
		if isDuration(info.TypeOf(arg)) && takesAny(signature, i) {
			at = append(at, arg.Pos())
		}
	}
	return at
}

func takesAny(signature *types.Signature, i int) bool {
	params := signature.Params()
	if signature.Variadic() && i >= params.Len()-1 {
		_, any := params.At(params.Len() - 1).Type().(*types.Slice).Elem().Underlying().(*types.Interface)
		return any
	}
	_, any := params.At(i).Type().Underlying().(*types.Interface)
	return any
}

func mayHaveDurations(info *types.Info, call *ast.CallExpr) bool {
	var name *ast.Ident
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		name = fun
	case *ast.SelectorExpr:
		name = fun.Sel
	default:
		return false
	}
	f, ok := info.Uses[name].(*types.Func)
	return ok && slices.ContainsFunc(writesDurations, func(prefix string) bool {
		return strings.HasPrefix(f.FullName(), prefix)
	})
}

func isDuration(t types.Type) bool {
	return t != nil && types.TypeString(types.Unalias(t), nil) == "time.Duration"
}

// A typedPackage is a package of croft, without its tests, with the types of its expressions.
type typedPackage struct {
	path  string
	files []*ast.File
	info  *types.Info
}

// typed returns the packages of croft. The types of their imports come from the compiler's cache.
func typed(t *testing.T, fset *token.FileSet) []typedPackage {
	t.Helper()
	args := []string{"list", "-tags", "libvirt_dlopen", "-export", "-compiled", "-deps",
		"-json=ImportPath,Dir,CompiledGoFiles,Export,Module"}
	if raceEnabled {
		args = append(args, "-race") // the packages are compiled so already
	}
	list := exec.Command("go", append(args, "./...")...)
	list.Stderr = os.Stderr
	listed, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	type listedPackage struct {
		ImportPath, Dir, Export string
		CompiledGoFiles         []string
		Module                  *struct{ Main bool }
	}
	var ours []listedPackage
	exports := make(map[string]string)
	for dec := json.NewDecoder(strings.NewReader(string(listed))); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.Module != nil && p.Module.Main {
			ours = append(ours, p)
		}
	}
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	var all []typedPackage
	for _, p := range ours {
		of := typedPackage{path: p.ImportPath, info: &types.Info{Types: make(map[ast.Expr]types.TypeAndValue),
			Uses: make(map[*ast.Ident]types.Object)}}
		for _, name := range p.CompiledGoFiles {
			if !filepath.IsAbs(name) { // cgo's files are in the cache
				name = filepath.Join(p.Dir, name)
			}
			file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			of.files = append(of.files, file)
		}
		config := types.Config{Importer: imports}
		if _, err := config.Check(p.ImportPath, fset, of.files, of.info); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", p.ImportPath, err))
		}
		all = append(all, of)
	}
	return all
}
